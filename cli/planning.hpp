// What `penstock plan` is asked: a model, the devices and how they are joined, from a profile, a
// shipped or own model on a cluster, or a scenario.
#pragma once

#include "cli/options.hpp"
#include "plan/plan.hpp"
#include "scenarios/scenario.hpp"

#include <memory>

namespace penstock {

/// Microbatches of an update, where no batch is given.
inline constexpr std::int64_t kBatchPerDevice = 4;

struct PlanTask {
  std::string name;  ///< of the model
  std::unique_ptr<PlanModel> model;
  PlanRequest request;
  const Planner* planner = nullptr;  ///< null: our own search
  std::vector<std::string> notes;    ///< what was assumed
  /// Of the scenario, profile or model; of a shipped model empty: its name says all.
  std::string text;
};

/// Throws InputError with everything that is wrong with the options. Precondition: they name a
/// published planner.
PlanTask plan_task(const Arguments& arguments);

/// The same model and devices for every planner; `scenario` says which. Throws InputError when its
/// model has no layers. Its planner is to be set.
PlanTask task_of(const Scenario& scenario);

/// A profile on the devices of --level or --cluster as a scenario without choices.
std::string profile_problem(const Arguments& arguments);

/// A model by shape on --cluster as a scenario without choices.
std::string model_problem(const Arguments& arguments);

bool is_profile_file(const std::string& name);

/// Throws InputError when it cannot be read.
bool is_scenario_file(const std::string& name);

}  // namespace penstock
