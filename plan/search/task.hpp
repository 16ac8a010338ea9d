// SPDX-License-Identifier: Apache-2.0
// The task of a planner: a model as layers, and a cluster as levels of devices.
#pragma once

#include "plan/plan.hpp"
#include "plan/search/candidate.hpp"
#include "plan/search/source.hpp"
#include "scenarios/scenario.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock {

struct PlanTask {
  std::string name;  ///< the name of the model
  std::unique_ptr<PlanModel> model;
  std::unique_ptr<Problem>
      problem;  ///< the problem that `request.simulate` uses; null where that is not set
  PlanRequest request;
  const Planner* planner = nullptr;
  std::vector<std::string> notes;  ///< what was assumed
  /// The text of the scenario, profile or model; empty for a shipped model, which its name
  /// identifies.
  std::string text;
  std::int64_t asked_batch = 0;  ///< the batch that the scenario or an option asks for; 0: none

  /// Returns the samples of an update of the best plan; without a plan, those that were asked for.
  std::int64_t batch_of(const PlanResult& result) const;
  /// Returns why these are not the samples that were asked for; "" where they are.
  std::string batch_note(const PlanResult& result) const;
};

/// Returns a task without a planner, with the model and the devices of a scenario, for any planner.
/// Throws InputError when the model has no layers.
PlanTask task_of(const Scenario& scenario);

/// Returns the task of a published planner. Sizes of `request` that are 0 follow from the source.
/// Throws InputError.
PlanTask task_of(const PlanSource& source, const Planner& planner, PlanRequest request);

/// Sets the devices of a cluster and their memory, unless the task has them.
void plan_for_cluster(const Cluster& cluster, PlanTask& task);
/// Sets the model, devices and batch of a scenario.
void plan_for_scenario(const Scenario& scenario, PlanTask& task);

}  // namespace penstock
