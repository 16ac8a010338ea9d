// SPDX-License-Identifier: Apache-2.0
#include "results/schedule_claims.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// The shape with the times that formulas look at, those of one microbatch.
ScheduleShape claimed_shape(const Simulation& s) {
  const std::vector<StageCosts>& costs = s.scenario.costs;
  ScheduleShape shape = told_shape(s.scenario, costs, s.scenario.cluster);
  for (StageTimes& t : shape.times) {
    t.backward_input /= costs.front().backward_microbatches;
    t.backward_weight /= costs.front().backward_microbatches;
  }
  return shape.one_step();
}

/// Ops that formulas do not know of, or that take longer for some microbatches than for others.
bool is_plain(const StageCosts& c, const Scenario& scenario) {
  const bool some_again = c.stored && scenario.schedule->checkpoints &&
                          scenario.shape.checkpoint == Checkpoint::except_last;
  return c.step_s == 0 && c.reduce_grad_s == 0 && c.overlap_saving_s == 0 && !some_again &&
         !c.drawn;
}

bool claims_bubble(const Simulation& s, const ScheduleShape& shape) {
  const Schedule& schedule = *s.scenario.schedule;
  const auto unlike_first = [&](const StageTimes& t) { return t != shape.times.front(); };
  return schedule.ideal_bubble != nullptr && shape.replicas.alike() && s.perturbation == nullptr &&
         shape.transfer == 0 && s.program.transfers != Transfers::coupled &&
         (shape.batches == 1 || !schedule.flushes() || schedule.whole_model) &&
         std::ranges::none_of(shape.times, unlike_first) &&
         std::ranges::all_of(s.scenario.costs,
                             [&](const StageCosts& c) { return is_plain(c, s.scenario); });
}

/// Of the time of an iteration, what a device does not compute. Filling and draining take up to 2p
/// microbatches each; a run of four times as many has a steady state between them.
std::optional<double> steady_bubble(const Simulation& s, const Result& r) {
  if (!r.iteration_time_s || s.scenario.shape.total() < 8 * s.scenario.shape.depth)
    return std::nullopt;
  const StageCosts& c = s.scenario.costs.front();
  const double work =
      c[OpKind::forward].seconds + c[OpKind::backward].seconds / c.backward_microbatches;
  const double microbatches = s.scenario.shape.microbatches_per_update * s.scenario.shape.chunks;
  return 1 - microbatches * work / *r.iteration_time_s;
}

std::optional<double> claimed(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

std::optional<double> simulated_bubble(const Simulation& s, const Result& r) {
  if (!s.scenario.schedule->flushes()) return steady_bubble(s, r);
  return s.scenario.schedule->of_stage_time ? r.stage_bubble_fraction : r.bubble_fraction;
}

}  // namespace

std::string_view bubble_of(const Schedule& schedule) {
  if (!schedule.flushes()) return "steady state";
  return schedule.of_stage_time ? "longest device" : "makespan";
}

Claims claims_of(const Simulation& s, const Result& r) {
  const Schedule& schedule = *s.scenario.schedule;
  const ScheduleShape shape = claimed_shape(s);
  Claims claims;
  claims.simulated_bubble = simulated_bubble(s, r);
  if (claims_bubble(s, shape)) claims.bubble = claimed(schedule.ideal_bubble(shape));
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    const std::uint32_t position = s.program.placement.position_of(d);
    claims.peaks.push_back(schedule.peak == nullptr ? std::nullopt
                                                    : claimed(schedule.peak(shape, position)));
  }
  return claims;
}

void add_claims(const Simulation& simulation, const Result& result, Json& json) {
  const Claims claims = claims_of(simulation, result);
  const auto nullable = [](const std::optional<double>& x) { return x ? Json(*x) : Json(); };
  json["bubble_of"] = bubble_of(*simulation.scenario.schedule);
  json["ideal_bubble"] = nullable(claims.bubble);
  json["simulated_bubble"] = nullable(claims.simulated_bubble);
  json["ideal_peak"] = Json::array();
  for (const auto& peak : claims.peaks) json["ideal_peak"].push_back(nullable(peak));
}

}  // namespace penstock
