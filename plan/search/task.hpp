// SPDX-License-Identifier: Apache-2.0
// A scenario as a planner is asked: its model as layers, its cluster as levels of devices.
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
  std::string name;  ///< of the model
  std::unique_ptr<PlanModel> model;
  std::unique_ptr<Problem> problem;  ///< that `request.simulate` asks; null: it is not set
  PlanRequest request;
  const Planner* planner = nullptr;
  std::vector<std::string> notes;  ///< what was assumed
  /// Of the scenario, profile or model; of a shipped model empty: its name says all.
  std::string text;
  std::int64_t asked_batch = 0;  ///< by the scenario or an option; 0: by nobody

  /// Samples of an update of the best plan; of none those that it was asked for.
  std::int64_t batch_of(const PlanResult& result) const;
  /// Why these are not those that it was asked for; "" where they are.
  std::string batch_note(const PlanResult& result) const;
};

/// The same model and devices for every planner; `scenario` says which. Throws InputError when its
/// model has no layers. Its planner is to be set.
PlanTask task_of(const Scenario& scenario);

/// The task of a published planner: `request` says what was chosen beside the source, its sizes,
/// where they are 0, follow from that. Throws InputError.
PlanTask task_of(const PlanSource& source, const Planner& planner, PlanRequest request);

/// The devices of a cluster and their memory, where the task does not give them.
void plan_for_cluster(const Cluster& cluster, PlanTask& task);
/// Model, devices and batch of a scenario.
void plan_for_scenario(const Scenario& scenario, PlanTask& task);

}  // namespace penstock
