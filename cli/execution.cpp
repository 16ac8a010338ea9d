// SPDX-License-Identifier: Apache-2.0
#include "cli/execution.hpp"

#include "base/error.hpp"
#include "results/execution.hpp"
#include "sim/bucket_times.hpp"

namespace penstock {
namespace {

std::vector<Channel> channels_of(const Simulation& s) {
  std::vector<Channel> channels;
  for (const Transfer& c : s.traffic->messages())
    channels.push_back({c.source, c.destination, c.backward, c.latency_s, c.bytes_per_s});
  return channels;
}

/// Each device is one GPU.
ReductionPlan reduction_of(const Simulation& s) {
  ReductionPlan reduction;
  reduction.algorithm = s.scenario.reduction.algorithm;
  reduction.servers = s.scenario.reduction.servers;
  for (const auto& parts : parts_by_position(s.input())) {
    auto& here = reduction.parts.emplace_back();
    for (const auto& [ready, share, seconds, stage] : parts)
      here.push_back({ready, share, seconds, stage});
  }
  for (const std::vector<int>& gpus : s.scenario.mesh.gpus) {
    reduction.gpus.push_back(gpus.front());
    reduction.nodes.push_back(s.scenario.cluster.node_of(gpus.front()));
  }
  return reduction;
}

}  // namespace

ComputeChoice compute_of(const Arguments& arguments) {
  const std::string name = arguments.value("compute", "auto");
  return name == "real"       ? ComputeChoice::real
         : name == "stand-in" ? ComputeChoice::stand_in
                              : ComputeChoice::automatic;
}

RunPlan run_plan_of(const Simulation& s, ComputeChoice compute, bool perturbed) {
  require_executable(s.scenario, perturbed);
  RunPlan plan;
  plan.name = s.scenario.name;
  plan.scenario = s.scenario.text();
  plan.program = s.program;
  plan.costs = s.scenario.costs;
  plan.channels = channels_of(s);
  plan.reduction = reduction_of(s);
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
