#include "cli/execution.hpp"

#include "base/error.hpp"
#include "sim/bucket_times.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

std::vector<ChannelPlan> channels_of(const Simulation& s) {
  std::vector<ChannelPlan> channels;
  for (const Transfer& c : s.traffic->messages())
    channels.push_back({c.source, c.destination, c.backward, c.latency_s, c.bytes_per_s});
  return channels;
}

/// Of a stage's gradients, the smallest bucket but the last; 1: they leave in one.
double bucket_share_of(const ReductionOptions& reduction) {
  double least = 1;
  for (const std::vector<GradientBucket>& buckets : reduction.buckets) {
    for (std::size_t i = 0; i + 1 < buckets.size(); ++i)
      if (buckets[i].share > 0) least = std::min(least, buckets[i].share);
  }
  return least;
}

}  // namespace

ComputeChoice compute_of(const Arguments& arguments) {
  const std::string name = arguments.value("compute", "auto");
  return name == "real"       ? ComputeChoice::real
         : name == "stand-in" ? ComputeChoice::stand_in
                              : ComputeChoice::automatic;
}

RunPlan run_plan_of(const Simulation& s, ComputeChoice compute, bool perturbed) {
  for (const Axis axis : kInnerAxes) {
    if (s.scenario.mesh.size(axis) == 1) continue;
    throw InputError(s.scenario.origin,
                     fmt::format("the executor gives each stage to one device, not to {} GPUs; use "
                                 "--set pipeline.{}=1",
                                 s.scenario.mesh.size(axis), traits(axis).name));
  }
  if (s.scenario.mesh.divided) {
    throw InputError(s.scenario.origin,
                     "the executor gives each stage to one device, not to replicas that split its "
                     "microbatches; use --set pipeline.width=1");
  }
  if (!perturbed &&
      (s.scenario.perturbations.changes_times() || s.scenario.perturbations.reliability)) {
    throw InputError(s.scenario.origin,
                     "'perturbations' can be predicted, not executed; leave them out");
  }
  RunPlan plan;
  plan.name = s.scenario.name;
  plan.scenario = s.scenario.text;
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
