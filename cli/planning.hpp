// What `penstock plan` is asked: a model, the devices and how they are joined, from a profile, a
// shipped or own model on a cluster, or a scenario.
#pragma once

#include "cli/options.hpp"
#include "plan/plan.hpp"

#include <memory>

namespace penstock {

struct PlanTask {
  std::string name;  ///< of the model
  std::unique_ptr<PlanModel> model;
  PlanRequest request;
  const Planner* planner = nullptr;
  std::vector<std::string> notes;  ///< what was assumed
};

/// Throws InputError with everything that is wrong with the options.
PlanTask plan_task(const Arguments& arguments);

}  // namespace penstock
