// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/problem.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// By pass, the op of the same chunk that has to come before: the F of an I, the I of a W.
constexpr std::array kBefore = {kF0, kF1, kF1, kF0, kI1, kI0};

}  // namespace

OpKind kind_of(Pass pass) {
  if (is_forward(pass)) return OpKind::forward;
  return is_weight(pass) ? OpKind::backward_weight : OpKind::backward_input;
}

std::span<const Pass> OrderProblem::passes() const {
  static constexpr std::array kOfOne = {kF0, kI0, kW0};
  static constexpr std::array kOfTwo = {kF0, kF1, kI1, kI0, kW1, kW0};
  if (chunks == 1) return kOfOne;
  return kOfTwo;
}

double OrderProblem::duration(std::uint32_t d, Pass pass) const {
  const StageTimes& t = time(d, pass);
  if (is_forward(pass)) return t.forward;
  return is_weight(pass) ? t.backward_weight : t.backward_input;
}

double OrderProblem::change(std::uint32_t d, Pass pass) const {
  const StageTimes& t = time(d, pass);
  if (is_forward(pass)) return t.activation;
  return is_weight(pass) ? -t.activation_after_input : t.activation_after_input - t.activation;
}

double OrderProblem::one_microbatch(std::uint32_t d) const {
  return time(d, kF0).activation + (chunks == 1 ? 0 : time(d, kF1).activation);
}

double OrderProblem::work(std::uint32_t d) const {
  double once = 0;
  for (const Pass pass : passes()) {
    if (is_forward(pass)) once += time(d, pass).forward + time(d, pass).backward();
  }
  return once * microbatches;
}

std::vector<PassLine> pass_lines(const OrderProblem& problem) {
  std::vector<PassLine> lines(std::size_t{kPasses} * problem.devices);
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    for (const Pass pass : problem.passes()) {
      PassLine& line = lines[std::size_t{kPasses} * d + index(pass)];
      line = {.duration = problem.duration(d, pass),
              .change = problem.change(d, pass),
              .from = std::size_t{kPasses} * d + index(kBefore[index(pass)]),
              .to = lines.size(),
              .output = problem.message_rows() - 1};
    }
  }
  std::size_t row = 0, last = lines.size();
  const auto go_on = [&](std::uint32_t s, Pass lower, Pass upper) {
    const std::uint32_t d = problem.device(s);
    const std::size_t at = std::size_t{kPasses} * d + index(s == d ? lower : upper);
    if (last < lines.size()) {
      lines[last].to = at;
      lines[last].message = problem.message(static_cast<std::uint32_t>(last / kPasses), d);
    }
    lines[at].from = last;
    lines[at].input = row;
    lines[at].output = ++row;
    last = at;
  };
  for (std::uint32_t s = 0; s < problem.stage_count(); ++s) go_on(s, kF0, kF1);
  for (std::uint32_t s = problem.stage_count(); s-- > 0;) go_on(s, kI0, kI1);
  return lines;
}

bool same_time(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(a, b); }

void OrderCost::add_device(double begin, double end, std::uint32_t devices) {
  stage_time = std::max(stage_time, end - begin);
  makespan = std::max(makespan, end);
  mean += (end - begin) / devices;
}

bool OrderCost::operator<(const OrderCost& other) const {
  if (std::isinf(other.stage_time)) return !std::isinf(stage_time);
  if (!same_time(stage_time, other.stage_time)) return stage_time < other.stage_time;
  return makespan < other.makespan && !same_time(makespan, other.makespan);
}

OrderProblem order_problem(const ScheduleShape& shape, double usual_limit) {
  OrderProblem problem{.devices = shape.depth,
                       .chunks = shape.chunks,
                       .microbatches = shape.microbatches_per_update,
                       .transfer = shape.transfer,
                       .limit_unit = one_f_one_b_peak(shape)};
  for (std::uint32_t s = 0; s < shape.stages(); ++s) problem.times.push_back(shape.time(s));
  const auto keeps_none = [](const StageTimes& t) { return t.activation <= 0; };
  if (shape.chunks == 1 && std::ranges::all_of(problem.times, keeps_none))
    for (StageTimes& t : problem.times) t.activation = t.activation_after_input = 1;
  const double common = shape.memory_limit > 0 ? shape.memory_limit : usual_limit;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    const double share = shape.memory_limits.empty() ? common : shape.memory_limits[d];
    problem.limits.push_back(share * problem.limit_unit);
  }
  return problem;
}

double least_limit(const OrderProblem& problem) {
  double least = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d)
    least = std::max(least, problem.one_microbatch(d) / problem.limit_unit);
  constexpr double kPrinted = 1e4;
  return std::ceil(least * kPrinted * (1 - 1e-9)) / kPrinted;
}

bool fits_at_all(const OrderProblem& problem) {
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    if (problem.one_microbatch(d) > problem.limit(d)) return false;
  }
  return true;
}

bool admissible(const OrderProblem& problem, std::uint32_t d, std::span<const Pass> passes) {
  std::array<std::uint32_t, kPasses> done{};
  std::array<double, kPasses> change{};
  for (const Pass pass : problem.passes()) change[index(pass)] = problem.change(d, pass);
  const double limit = problem.limit(d);
  double held = 0;
  for (const Pass pass : passes) {
    const std::uint32_t count = ++done[index(pass)];
    held += change[index(pass)];
    if (held > limit || count > done[index(kBefore[index(pass)])]) return false;
  }
  return true;
}

bool admissible(const OrderProblem& problem, const std::vector<Pass>& word) {
  const std::uint32_t length = problem.word_length();
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    if (!admissible(problem, d, std::span(word).subspan(std::size_t{d} * length, length)))
      return false;
  }
  return true;
}

std::vector<Pass> word_of(const OrderProblem& problem, const OpLists& order) {
  std::vector<Pass> word;
  word.reserve(problem.ops());
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    for (const Op& op : order.of_device(static_cast<int>(d))) {
      const bool upper = op.stage != d;
      if (op.kind == OpKind::forward) word.push_back(upper ? Pass::f_upper : Pass::f_lower);
      if (is_backward(op.kind)) word.push_back(upper ? Pass::i_upper : Pass::i_lower);
      if (op.kind == OpKind::backward || op.kind == OpKind::backward_weight)
        word.push_back(upper ? Pass::w_upper : Pass::w_lower);
    }
  }
  return word;
}

std::size_t period_in(std::span<const Pass> passes, std::size_t length) {
  if (passes.size() < length) return passes.size();
  const std::size_t last = passes.size() - length, middle = last / 2;
  const auto is_period = [&](std::size_t from) {
    std::array<std::size_t, kPasses> count{};
    for (const Pass pass : passes.subspan(from, length)) ++count[index(pass)];
    return std::ranges::all_of(count, [&](std::size_t n) { return n * kPasses == length; });
  };
  for (std::size_t away = 0; away <= middle; ++away) {
    if (is_period(middle - away)) return middle - away;
    if (middle + away <= last && is_period(middle + away)) return middle + away;
  }
  return passes.size();
}

std::vector<Pass> lengthened(const OrderProblem& problem, const std::vector<Pass>& word) {
  const std::size_t before = word.size() / problem.devices;
  const std::size_t more = problem.word_length() - before;
  std::vector<Pass> longer;
  longer.reserve(problem.ops());
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const auto passes = std::span(word).subspan(d * before, before);
    std::size_t length = kPasses, from = period_in(passes, length);
    if (from == before && more % (2 * kPasses) == 0) from = period_in(passes, length = 2 * kPasses);
    if (from == before) return {};
    longer.insert(longer.end(), passes.begin(), passes.begin() + static_cast<std::ptrdiff_t>(from));
    for (std::size_t i = 0; i < more; ++i) longer.push_back(passes[from + i % length]);
    longer.insert(longer.end(), passes.begin() + static_cast<std::ptrdiff_t>(from), passes.end());
  }
  return longer;
}

void append_order(const OrderProblem& problem, std::span<const Pass> word, OpLists& order) {
  order.reserve(problem.devices, problem.ops());
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    std::array<std::uint32_t, kPasses> next{};
    for (const Pass pass :
         word.subspan(std::size_t{d} * problem.word_length(), problem.word_length()))
      order.add_op(make_op(kind_of(pass), problem.stage(d, pass), next[index(pass)]++));
    order.end_device();
  }
}

}  // namespace penstock
