// SPDX-License-Identifier: Apache-2.0
// How the loss falls when scenarios are trained for real, each with several seeds, against the time
// that their clusters would take.
#pragma once

#include "base/json.hpp"
#include "results/simulation.hpp"

namespace penstock {

struct LearningPoint {
  std::uint32_t update = 0;  ///< updates made
  double samples = 0;        ///< the samples of these updates
  double simulated_s = 0;    ///< the time until then on the scenario's cluster
  double loss = 0;  ///< the loss of the update's samples before the update; may be NaN or infinite
  std::optional<double> evaluation_loss = {};
};

/// One scenario with one seed.
struct Learning {
  std::uint64_t seed = 1;
  std::vector<LearningPoint> curve;
  std::string weights_digest, stopped_because;
  double seconds = 0;  ///< the time that training took on this machine
};

/// One scenario with all its seeds.
struct LearnedScenario {
  std::string name, schedule;
  int stages = 0, replicas = 1;
  std::int64_t parameters = 0;
  double samples_per_update = 0;
  std::optional<double> loss_floor;
  std::string optimizer;
  double learning_rate = 0;
  std::vector<Learning> runs;
};

/// Returns what is known of a scenario before it is trained: no runs.
LearnedScenario learned_scenario(const Scenario& scenario);

/// Returns when each update of a run ends, in their order; with asynchronous replicas, the updates
/// of each.
std::vector<double> all_update_ends_s(const Simulation& simulated);

/// The loss after some updates: mean, lowest and highest over the seeds that got so far.
struct Band {
  std::uint32_t update = 0;
  double samples = 0, simulated_s = 0;
  double mean = 0, least = 0, most = 0;
};
/// Returns the bands of the loss; with `evaluated`, of the evaluation loss.
std::vector<Band> bands(const LearnedScenario& scenario, bool evaluated);

/// Returns the bands that scenarios are judged by: of the evaluation loss where there is held-out
/// data.
std::vector<Band> judged_by(const LearnedScenario& scenario);

/// The scenario with the lowest last loss.
struct LearnedMost {
  const LearnedScenario* best = nullptr;  ///< null: no run came to a loss
  /// Names of scenarios that may be as good: the spread of their seeds overlaps that of the best.
  std::vector<std::string> rivals = {};
};
/// Returns the scenario with the lowest last loss.
LearnedMost learned_most(const std::vector<LearnedScenario>& all);

/// Returns the scenario as JSON; with `reproducible`, without the time that training took.
Json to_json(const LearnedScenario& scenario, bool reproducible);

}  // namespace penstock
