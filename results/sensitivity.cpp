// SPDX-License-Identifier: Apache-2.0
#include "results/sensitivity.hpp"

#include "results/played_ops.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {
namespace {

/// A changed scenario; its iteration is that of `samples` of today's.
struct Change {
  std::string what;
  Scenario scenario;
  double samples = 1;
  bool of_stage = false;
};

/// Of the position with the most work; several stages where it has chunks.
Change with_a_faster_stage(const Simulation& before) {
  const Scenario& scenario = before.scenario;
  const Placement& placement = before.program.placement;
  const auto work_s = [&](std::uint32_t position) {
    double sum = 0;
    for (const std::uint32_t stage : placement.stages_at(position))
      sum += scenario.costs[stage][OpKind::forward].seconds +
             scenario.costs[stage][OpKind::backward].seconds;
    return sum;
  };
  std::uint32_t busiest = 0;
  for (std::uint32_t p = 1; p < scenario.shape.depth; ++p)
    if (work_s(p) > work_s(busiest)) busiest = p;
  const std::vector<std::uint32_t> stages = placement.stages_at(busiest);
  Change change{fmt::format("stage{} {} compute{} 10 % faster", stages.size() > 1 ? "s" : "",
                            fmt::join(stages, " and "), stages.size() > 1 ? "" : "s"),
                scenario, 1, true};
  const auto hurry = [&](std::vector<StageCosts>& costs) {
    for (const std::uint32_t which : stages)
      costs[which].for_each_compute_s([](double& seconds) { seconds *= 0.9; });
  };
  hurry(change.scenario.costs);
  for (std::vector<StageCosts>& costs : change.scenario.unlike.costs) hurry(costs);
  return change;
}

Change with_wider_links(const Scenario& scenario, const char* which, LinkClass links) {
  Change change{fmt::format("links{} of twice the bandwidth", which), scenario};
  scale_bandwidth(change.scenario.cluster, 2, links);
  change.scenario.costs =
      with_reduction_times(scenario.costs, scenario, change.scenario.cluster, scenario.reduction);
  return change;
}

/// Does anything that the run sends cross a link whose bandwidth a change has changed?
bool concerns(const Change& change, const Simulation& before) {
  const Traffic after(before.program, change.scenario.cluster, change.scenario.mesh,
                      change.scenario.reduction, collectives_of(change.scenario.costs));
  const auto& links = before.traffic->links();
  invariant(links.size() == after.links().size(), "a wider link is another one");
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (links[l].bytes_per_s != after.links()[l].bytes_per_s) return true;
  }
  return false;
}

std::vector<Change> changes_of(const Simulation& before) {
  const Scenario& scenario = before.scenario;
  std::vector<Change> changes{with_a_faster_stage(before)};
  Change within = with_wider_links(scenario, " within nodes", LinkClass::within_nodes);
  Change between = with_wider_links(scenario, " between nodes", LinkClass::between_nodes);
  if (concerns(within, before) && concerns(between, before)) {
    changes.push_back(std::move(within));
    changes.push_back(std::move(between));
  }
  changes.push_back(with_wider_links(scenario, "", LinkClass::all));
  Scenario longer = scenario;
  longer.shape.microbatches_per_update *= 2;
  const Schedule& schedule = *scenario.schedule;
  const bool drawn =
      std::ranges::any_of(longer.costs, [](const StageCosts& c) { return c.drawn != nullptr; });
  if (drawn) draw_microbatches(longer, 0);  // there are more of them
  if (schedule.refuse(longer.shape).empty() &&
      schedule.claimed_bubble(longer.shape) < schedule.claimed_bubble(scenario.shape)) {
    changes.push_back(
        {"twice the microbatches per update (time per batch of today's size)", longer, 2});
  }
  return changes;
}

}  // namespace

Sensitivities study_sensitivities(const Simulation& today, AdviceBudget& budget,
                                  ProgramCache* programs) {
  Sensitivities found;
  // Nothing helps a run that is too short for an iteration, or that never ends.
  if (!iteration_time_s(today)) return found;
  const EngineChoice engine = engine_for(today, EngineChoice::automatic);
  try {
    for (const Change& change : changes_of(today)) {
      if (!budget.afford(played_ops(change.scenario, engine), engine)) continue;
      const Simulation changed = simulate(change.scenario, engine, programs);
      if (const auto seconds = iteration_time_s(changed))
        found.changes.push_back({change.what, *seconds / change.samples, change.of_stage});
    }
  } catch (const SystemError& error) {
    found.none_because = fmt::format("what would help is not complete: {}", error.what());
  }
  return found;
}

}  // namespace penstock
