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
  if (plan.program.placement.mirrored() || plan.program.placement.replicated())
    plan.reduce_s = reductions_alone_s(s.input());
  if (plan.program.placement.replicated())
    plan.bucket_share = bucket_share_of(s.scenario.reduction);
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
