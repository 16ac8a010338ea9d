#include "plan/search/published.hpp"

#include <algorithm>

namespace penstock {
namespace {

Recompute recompute_of(const Plan& plan) {
  // torchgpipe stores the last microbatch, as its authors ran it; see PlanFamily.
  return plan.schedule == "torchgpipe" ? Recompute::selective : plan.recompute;
}

/// Can every stage divide a microbatch among its replicas?
bool divides(const Plan& plan) {
  return std::ranges::all_of(plan.stages, [&](const PlannedStage& stage) {
    return plan.microbatch_size % stage.replicas == 0;
  });
}

}  // namespace

Choice choice_of(const Plan& plan) {
  Choice choice;
  PlanFamily& family = choice.family;
  const bool versions = plan.schedule == "pipedream";
  family.schedule = find_schedule(versions && plan.depth() == 1 ? "data-parallel" : plan.schedule);
  Shape& shape = family.shape;
  shape.depth = plan.depth();
  shape.microbatch_size = plan.microbatch_size;
  shape.microbatches = plan.microbatches;
  shape.recompute = recompute_of(plan);
  for (const PlannedStage& stage : plan.stages) {
    shape.width = std::max(shape.width, stage.replicas);
    choice.layers.push_back(stage.last_layer - stage.first_layer + 1);
    choice.placed.insert(choice.placed.end(), stage.devices.begin(), stage.devices.end());
    if (plan.uneven()) choice.widths.push_back(stage.replicas);
  }
  choice.split = plan.planner == "dapple" && shape.width > 1 && divides(plan);
  if (plan.planner == "dapple" && !choice.split)  // its microbatches are those of all replicas
    shape.microbatches =
        std::max<std::int64_t>(1, plan.microbatches / plan.stages.front().replicas);
  return choice;
}

}  // namespace penstock
