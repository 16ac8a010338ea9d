// SPDX-License-Identifier: Apache-2.0
#include "cli/execution.hpp"

#include "base/error.hpp"
#include "results/execution.hpp"
#include "sim/bucket_times.hpp"
#include "sim/durations.hpp"

namespace penstock {
namespace {

std::vector<Channel> channels_of(const Simulation& s) {
  std::vector<Channel> channels;
  for (const Transfer& c : s.traffic->messages())
    channels.push_back({c.source, c.destination, c.backward, c.latency_s, c.bytes_per_s});
  return channels;
}

/// Each device is executed by `ranks(device)` of its GPUs.
template <class Ranks>
ReductionPlan reduction_of(const Simulation& s, const Ranks& ranks) {
  ReductionPlan reduction;
  reduction.algorithm = s.scenario.reduction.algorithm;
  reduction.servers = s.scenario.reduction.servers;
  for (const auto& parts : parts_by_position(s.input())) {
    auto& here = reduction.parts.emplace_back();
    for (const auto& [ready, share, seconds, stage] : parts)
      here.push_back({ready, share, seconds, stage});
  }
  for (std::size_t d = 0; d < s.scenario.mesh.gpus.size(); ++d) {
    const std::vector<int>& gpus = s.scenario.mesh.gpus[d];
    for (int rank = 0; rank < ranks(static_cast<int>(d)); ++rank) {
      reduction.gpus.push_back(gpus[static_cast<std::size_t>(rank)]);
      reduction.nodes.push_back(s.scenario.cluster.node_of(reduction.gpus.back()));
    }
  }
  return reduction;
}

std::vector<ExchangeSeconds> exchanges_of(const Simulation& s) {
  std::vector<ExchangeSeconds> all;
  const Durations durations(s.input());
  const Placement& placement = s.program.placement;
  for (int d = 0; d < placement.devices(); ++d) {
    for (const std::uint32_t stage : placement.stages_at(placement.position_of(d))) {
      for (const bool stored : {false, true}) {
        const std::uint8_t flags = stored ? std::uint8_t{Op::stored} : std::uint8_t{0};
        const auto seconds = [&](OpKind kind, std::uint8_t more = 0) {
          return durations.exchange_s({.stage = static_cast<std::uint16_t>(stage),
                                       .kind = kind,
                                       .flags = static_cast<std::uint8_t>(flags | more)},
                                      d, 0);
        };
        const ExchangeSeconds e{d,
                                stage,
                                stored,
                                seconds(OpKind::forward),
                                seconds(OpKind::backward),
                                seconds(OpKind::backward_input),
                                seconds(OpKind::backward_weight),
                                seconds(OpKind::forward, Op::gathers)};
        if (e.forward > 0 || e.backward > 0 || e.gathering > 0) all.push_back(e);
      }
    }
  }
  return all;
}

}  // namespace

ComputeChoice compute_of(const Arguments& arguments) {
  const std::string name = arguments.value("compute", "auto");
  return name == "real"       ? ComputeChoice::real
         : name == "stand-in" ? ComputeChoice::stand_in
                              : ComputeChoice::automatic;
}

RunPlan run_plan_of(const Simulation& s, ComputeChoice compute, bool perturbed) {
  const bool real = s.scenario.transformer && compute != ComputeChoice::stand_in &&
                    s.scenario.training.problem == TrainingSpec::Problem::model;
  require_executable(s.scenario, perturbed, real);
  RunPlan plan;
  plan.name = s.scenario.name;
  plan.scenario = s.scenario.text();
  plan.program = s.program;
  plan.costs = s.scenario.costs;
  plan.channels = channels_of(s);
  if (real) {
    const Mesh& mesh = s.scenario.mesh;
    plan.division = {mesh.size(Axis::tensor), s.scenario.sequence_parallel};
    if (mesh.divided) plan.division.replicas = mesh.widths(s.scenario.shape.depth);
  }
  plan.reduction = reduction_of(s, [&](int device) { return ranks_of_device(plan, device); });
  plan.exchange_s = exchanges_of(s);
  if (!s.scenario.sharding.gathers_in_reduction()) plan.sharding = s.scenario.sharding;
  plan.microbatch_size = s.scenario.microbatch_size;
  plan.recompute = s.scenario.recompute;
  plan.optimizer = s.scenario.optimizer;
  plan.training = s.scenario.training;
  if (plan.training.problem != TrainingSpec::Problem::model) {
    plan.compute = plan.training.problem == TrainingSpec::Problem::linear ? Compute::linear
                                                                          : Compute::quadratic;
    return plan;
  }
  if (compute == ComputeChoice::real && !s.scenario.transformer) {
    throw InputError("--compute real",
                     "the model is given by its costs; there is nothing real to compute");
  }
  if (!s.scenario.transformer || compute == ComputeChoice::stand_in) return plan;
  plan.compute = Compute::transformer;
  plan.model = *s.scenario.transformer;
  plan.layers = s.scenario.layers;
  return plan;
}

}  // namespace penstock
