#include "schedules/search/pair_problem.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace penstock {
namespace {

/// Sums of activations are compared with limits that are products: a little more is the same.
constexpr double kSlack = 1e-9;

OpKind kind_of(Pass pass) {
  if (is_forward(pass)) return OpKind::forward;
  return is_weight(pass) ? OpKind::backward_weight : OpKind::backward_input;
}

double both_activations(const PairProblem& problem, std::uint32_t d) {
  const auto [lower, upper] = problem.stages[d];
  return problem.times[lower].activation + problem.times[upper].activation;
}

}  // namespace

double PairProblem::duration(std::uint32_t d, Pass pass) const {
  const StageTimes& t = times[stage(d, pass)];
  if (is_forward(pass)) return t.forward;
  return is_weight(pass) ? t.backward_weight : t.backward_input;
}

double PairProblem::work(std::uint32_t d) const {
  double once = 0;
  for (const std::uint32_t s : stages[d]) once += times[s].forward + times[s].backward();
  return once * microbatches;
}

void PairAim::add(const PairOrder& known) {
  if (std::tie(known.stage_time, known.makespan) >= std::tie(stage_time, makespan)) return;
  stage_time = known.stage_time;
  makespan = known.makespan;
}

double PairAim::cost(double stage, double whole) const {
  constexpr double kWorse = 1000;
  return stage + whole +
         kWorse * (std::max(0.0, stage - stage_time) + std::max(0.0, whole - makespan));
}

PairProblem pair_problem(const ScheduleShape& shape, const Placement& where, double usual_limit) {
  PairProblem problem;
  problem.devices = shape.depth;
  problem.microbatches = shape.microbatches_per_update;
  problem.transfer = shape.transfer;
  problem.limit_unit = one_f_one_b_peak(shape);
  for (std::uint32_t s = 0; s < shape.stages(); ++s) {
    problem.times.push_back(shape.time(s));
    problem.device.push_back(where.positions()[s]);
  }
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    const std::vector<std::uint32_t> here = where.stages_at(d);
    problem.stages.push_back({here.at(0), here.at(1)});
  }
  const double common = shape.memory_limit > 0 ? shape.memory_limit : usual_limit;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    const double share = shape.memory_limits.empty() ? common : shape.memory_limits[d];
    problem.limits.push_back(share * problem.limit_unit * (1 + kSlack));
  }
  return problem;
}

double least_limit(const PairProblem& problem) {
  double least = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d)
    least = std::max(least, both_activations(problem, d) / problem.limit_unit);
  constexpr double kPrinted = 1e4;
  return std::ceil(least * kPrinted * (1 - kSlack)) / kPrinted;
}

bool fits_at_all(const PairProblem& problem) {
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    if (both_activations(problem, d) > problem.limits[d]) return false;
  }
  return true;
}

PairAim least_times(const PairProblem& problem) {
  PairAim least{0, 0};
  std::vector<double> arrival(problem.devices, kNever);  // of the first microbatch
  double at = 0;
  for (std::uint32_t s = 0; s < problem.stage_count(); ++s) {
    const std::uint32_t d = problem.device[s];
    if (s > 0) at += problem.message(problem.device[s - 1], d);
    arrival[d] = std::min(arrival[d], at);
    at += problem.times[s].forward;
  }
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    least.stage_time = std::max(least.stage_time, problem.work(d));
    least.makespan = std::max(least.makespan, arrival[d] + problem.work(d));
  }
  return least;
}

bool admissible(const PairProblem& problem, std::uint32_t d, std::span<const Pass> passes) {
  std::array<std::uint32_t, kPasses> done{};
  const auto count = [&](Pass pass) { return done[index(pass)]; };
  double held = 0;
  for (const Pass pass : passes) {
    const StageTimes& t = problem.times[problem.stage(d, pass)];
    ++done[index(pass)];
    if (is_forward(pass)) {
      held += t.activation;
      if (held > problem.limits[d]) return false;
    } else {
      held -= is_weight(pass) ? t.activation_after_input : t.activation - t.activation_after_input;
    }
    if (count(Pass::i_lower) > count(Pass::f_lower) ||
        count(Pass::i_upper) > count(Pass::f_upper) ||
        count(Pass::w_lower) > count(Pass::i_lower) || count(Pass::w_upper) > count(Pass::i_upper))
      return false;
  }
  return true;
}

bool admissible(const PairProblem& problem, const std::vector<Pass>& word) {
  const std::uint32_t length = problem.word_length();
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    if (!admissible(problem, d, std::span(word).subspan(std::size_t{d} * length, length)))
      return false;
  }
  return true;
}

std::vector<Pass> word_of(const PairProblem& problem, const OpLists& order) {
  std::vector<Pass> word;
  word.reserve(problem.ops());
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    for (const Op& op : order.of(static_cast<int>(d))) {
      const bool upper = op.stage == problem.stages[d][1];
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

std::vector<Pass> lengthened(const PairProblem& problem, const std::vector<Pass>& word) {
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

void append_order(const PairProblem& problem, std::span<const Pass> word, OpLists& order) {
  order.reserve(problem.devices, problem.ops());
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    std::array<std::uint32_t, kPasses> next{};
    for (const Pass pass :
         word.subspan(std::size_t{d} * problem.word_length(), problem.word_length()))
      order.add(make_op(kind_of(pass), problem.stage(d, pass), next[index(pass)]++));
    order.end_device();
  }
}

}  // namespace penstock
