#include "schedules/search/pair_problem.hpp"

#include <algorithm>
#include <cmath>

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

/// What 1F1B holds on device 0.
double limit_unit(const PairProblem& problem) {
  return problem.devices * both_activations(problem, 0);
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
  stage_time = std::min(stage_time, known.stage_time);
  makespan = std::min(makespan, known.makespan);
}

double PairAim::cost(double stage, double whole) const {
  constexpr double kWorse = 1000;
  return stage + whole +
         kWorse * (std::max(0.0, stage - stage_time) + std::max(0.0, whole - makespan));
}

PairProblem pair_problem(const ScheduleShape& shape, const Placement& where, double usual_limit) {
  PairProblem problem{.devices = shape.depth,
                      .microbatches = shape.microbatches_per_update,
                      .transfer = shape.transfer};
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
    problem.limits.push_back(share * limit_unit(problem) * (1 + kSlack));
  }
  return problem;
}

double least_limit(const PairProblem& problem, const ScheduleShape& shape) {
  double least = 0;
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const double needed = both_activations(problem, d);
    if (!shape.memory_limits.empty() && needed <= problem.limits[d]) continue;
    least = std::max(least, needed / limit_unit(problem));
  }
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

void append_order(const PairProblem& problem, std::span<const Pass> word, OpLists& order) {
  order.reserve(problem.devices, problem.ops());
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    std::array<std::uint32_t, kPasses> next{};
    for (const Pass pass : word.subspan(std::size_t{d} * problem.word_length(), problem.word_length()))
      order.add(make_op(kind_of(pass), problem.stage(d, pass), next[index(pass)]++));
    order.end_device();
  }
}

}  // namespace penstock
