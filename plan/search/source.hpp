// SPDX-License-Identifier: Apache-2.0
// What is planned for: a model, the devices and how they are joined, from a profile, a shipped or
// own model on a cluster, a calibration, or a scenario.
#pragma once

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "scenarios/scenario.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Microbatches of an update, where no batch is given.
inline constexpr std::int64_t kBatchPerDevice = 4;

enum class PlanInput : std::uint8_t {
  profile,  ///< a table of layers, or a graph of them
  scenario,
  calibration,  ///< what `penstock calibrate` wrote
  model,        ///< by shape: a file, a name, or a map
};

/// Is it the name of a YAML file, not what is shipped or a map?
bool is_yaml(const std::string& name);

struct PlanSource {
  std::string name;  ///< a file, what is shipped, or a map as scenarios have them
  PlanInput input = PlanInput::model;
  std::optional<std::string> cluster{};         ///< likewise; none: its own, or levels
  std::vector<Override> changes{};              ///< of a scenario
  std::vector<PlanLevel> levels{};              ///< in place of a cluster's, innermost first
  std::optional<double> memory_bytes{};         ///< of a device, likewise
  std::optional<std::int64_t> profile_batch{};  ///< samples of the profile's minibatch; none: 1
  bool sequence_parallel = false, distributed_optimizer = false;  ///< of a model
  std::optional<std::string> stack{};                             ///< the software, of a model
  std::optional<std::int64_t> seq_length{};  ///< in place of the model's, of a model
  /// What the batch was given as: tokens, or samples however many tokens these are.
  std::optional<std::int64_t> batch_tokens{};
  bool batch_in_samples = false;

  std::int64_t minibatch() const { return profile_batch.value_or(1); }
  /// Of messages about what is wrong with it.
  std::string origin() const { return "penstock plan " + name; }
};

/// Samples of an update of so many tokens. Throws InputError where no number of samples makes them.
std::int64_t samples_of(std::int64_t tokens, std::int64_t tokens_per_sample);

/// Throws InputError, which asks, for a batch that is plainly one of tokens. `tokens_per_sample`: 0
/// where samples have no length.
void check_batch(std::int64_t samples, std::int64_t tokens_per_sample, const PlanSource& source);

/// A profile on its cluster, or else on one or two levels, as a scenario without choices.
std::string profile_problem(const PlanSource& source);

/// A model on its cluster, or a calibration on its own, as a scenario without choices.
std::string model_problem(const PlanSource& source);

/// What is wrong first.
std::string first_message(const InputError& error);

struct PlannedScenario {
  Scenario scenario;
  std::string why_not_as_given{};  ///< not empty: it is that on one stage
};

/// A scenario. One that cannot run as it is given, such as with as many stages as GPUs, is planned
/// all the same, where nothing but its shape is wrong. Throws InputError.
PlannedScenario planned_scenario(const PlanSource& source);

/// What is no profile, as published planners plan it: on one stage until they say how many.
Scenario scenario_of(const PlanSource& source);

/// The cluster of a profile. Precondition: it has one.
Cluster cluster_of_profile(const PlanSource& source);

}  // namespace penstock
