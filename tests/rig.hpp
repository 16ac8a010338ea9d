// SPDX-License-Identifier: Apache-2.0
// Shorthand of tests: a schedule with uniform costs, lowered, checked and simulated.
#pragma once

#include "base/error.hpp"
#include "program/check.hpp"
#include "program/order_facts.hpp"
#include "schedules/lowering.hpp"
#include "sim/engine.hpp"

#include <memory>
#include <numeric>

namespace penstock {

struct RigSpec {
  std::string schedule = "1f1b";
  ScheduleShape shape{4, 8, 1, false, 0};
  int width = 1;
  Transfers transfers = Transfers::overlapped;
  StepSync step_sync = StepSync::device;
  std::vector<StageCosts> costs{};             ///< empty: F = 1, B = 2 on every stage
  LinkSpec link{};                             ///< a private link per channel
  ReductionOptions reduction{.priced = true};  ///< priced: as costs say
  bool detached = false;                       ///< reductions run beside the next batch
  bool reduces_within = false;                 ///< a device is GPUs that add their gradients
  const Schedule* own = nullptr;               ///< in place of the one called `schedule`

  ScheduleShape replicated() const {
    ScheduleShape more = shape;
    if (more.replicas == PerStage<int>(1)) more.replicas = width;
    return more;
  }
};

/// The gradients of each stage are reduced in three parts, two of them beside its last backward.
inline void divide_reduction(RigSpec& spec) {
  const Placement placement = placement_of(*find_schedule(spec.schedule), spec.replicated());
  spec.reduction.buckets.clear();
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(placement.depth()); ++p) {
    auto& here = spec.reduction.buckets.emplace_back();
    const std::vector<std::uint32_t>& stages = placement.stages_at(p);
    for (const std::uint32_t s : stages)
      for (const auto& [ready, share] : {std::pair{0.25, 0.5}, {0.5, 0.25}, {1.0, 0.25}})
        here.push_back(
            {ready, share / static_cast<double>(stages.size()), static_cast<std::uint16_t>(s)});
  }
}

inline StageCosts unit_costs(double forward = 1, double backward = 2) {
  StageCosts c;
  c[OpKind::forward].seconds = forward;
  c[OpKind::backward].seconds = backward;
  c[OpKind::backward_input].seconds = c[OpKind::backward_weight].seconds = backward / 2;
  return c;
}

/// A run with everything an engine needs, kept alive together.
struct Rig {
  explicit Rig(const RigSpec& spec)
      : program(lower(spec.own != nullptr ? *spec.own : *find_schedule(spec.schedule),
                      spec.replicated(),
                      {spec.transfers, spec.step_sync, spec.detached, spec.reduces_within})),
        reduction(spec.reduction),
        table(program.ops, program.placement, program.microbatches()),
        costs(spec.costs.empty()
                  ? std::vector<StageCosts>(static_cast<std::size_t>(program.placement.stages()),
                                            unit_costs())
                  : spec.costs) {
    if (program.whole_backward) join_backwards();
    cluster.devices_per_node = program.placement.devices();
    cluster.link = spec.link;
    connect();
  }
  /// The costs are of one microbatch.
  void join_backwards() {
    for (StageCosts& c : costs) {
      c.backward_microbatches = static_cast<int>(program.microbatches_per_update);
      c[OpKind::backward].seconds *= c.backward_microbatches;
    }
  }
  void connect() {
    std::vector<int> gpus(static_cast<std::size_t>(program.placement.devices()));
    std::iota(gpus.begin(), gpus.end(), 0);
    traffic = std::make_unique<Traffic>(program, cluster, one_gpu_each(gpus), reduction);
  }
  SimulationInput input() const { return {program, table, costs, *traffic}; }

  Program program;
  ReductionOptions reduction;
  DependencyTable table;
  std::vector<StageCosts> costs;
  Cluster cluster;
  std::unique_ptr<Traffic> traffic;
};

/// Makespan, then start and end of every op and of every message.
inline std::vector<double> flatten(const Timeline& t) {
  std::vector<double> out{t.makespan_s};
  for (std::uint32_t g = 0; g < t.size(); ++g) {
    out.insert(out.end(),
               {t.op(g).start_s, t.op(g).end_s, t.message(g).start_s, t.message(g).end_s});
  }
  return out;
}

inline std::vector<double> run_simgrid(const Rig& run, const SimgridOptions& options = {}) {
  return flatten(simulate_simgrid(run.input(), options));
}

}  // namespace penstock
