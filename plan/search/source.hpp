// SPDX-License-Identifier: Apache-2.0
// Reads what is planned for, a model and a cluster, from a profile, a shipped or own model on a
// cluster, a calibration, or a scenario.
#pragma once

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "scenarios/scenario.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// The microbatches of an update per device, where no batch is given.
inline constexpr std::int64_t kBatchPerDevice = 4;

enum class PlanInput : std::uint8_t {
  profile,  ///< a table of layers, or a graph of them
  scenario,
  calibration,  ///< what `penstock calibrate` wrote
  model,        ///< by shape: a file, a name, or a map
};

/// Returns whether it is the name of a YAML file, rather than of something shipped, or a map.
bool is_yaml(const std::string& name);

struct PlanSource {
  std::string name;  ///< the name of a file or of something shipped, or a map as in a scenario
  PlanInput input = PlanInput::model;
  std::optional<std::string>
      cluster{};                    ///< the same of the cluster; none: the input's own, or levels
  std::vector<Override> changes{};  ///< changes of a scenario
  std::vector<PlanLevel> levels{};  ///< levels in place of a cluster's, innermost first
  std::optional<double> memory_bytes{};         ///< the memory of a device in place of a cluster's
  std::optional<std::int64_t> profile_batch{};  ///< the samples of the profile's minibatch; none: 1
  bool sequence_parallel = false, distributed_optimizer = false;  ///< set for a model
  std::optional<std::string> stack{};                             ///< the software of a model
  std::optional<std::int64_t> seq_length{};  ///< the sequence length in place of the model's
  /// How the batch was given: in tokens, or expressly in samples.
  std::optional<std::int64_t> batch_tokens{};
  bool batch_in_samples = false;

  std::int64_t minibatch() const { return profile_batch.value_or(1); }
  /// Returns what messages about it call it.
  std::string origin() const { return "penstock plan " + name; }
};

/// Returns the samples of an update of so many tokens. Throws InputError where no number of samples
/// has so many.
std::int64_t samples_of(std::int64_t tokens, std::int64_t tokens_per_sample);

/// Throws InputError with a question for a batch that is plainly in tokens. `tokens_per_sample` is
/// 0 where samples have no length.
void check_batch(std::int64_t samples, std::int64_t tokens_per_sample, const PlanSource& source);

/// Returns a profile on its cluster, or on one or two levels, as a scenario without choices.
std::string profile_problem(const PlanSource& source);

/// Returns a model on its cluster, or a calibration on its own, as a scenario without choices.
std::string model_problem(const PlanSource& source);

/// Returns the first message of an error.
std::string first_message(const InputError& error);

struct PlannedScenario {
  Scenario scenario;
  /// why it cannot run as given; then `scenario` has one stage. Empty: it can
  std::string why_not_as_given{};
};

/// Returns the scenario to plan for. Where it cannot run as given and only its shape is wrong, such
/// as too many stages, it is planned all the same. Throws InputError.
PlannedScenario planned_scenario(const PlanSource& source);

/// Returns the scenario that published planners plan for, on one stage. Requires that the source is
/// no profile.
Scenario scenario_of(const PlanSource& source);

/// Returns the cluster of a profile. Requires that it has one.
Cluster cluster_of_profile(const PlanSource& source);

}  // namespace penstock
