// SPDX-License-Identifier: Apache-2.0
// What scenarios learn when they are trained for real, each with several seeds, in the time that
// their clusters would take.
#pragma once

#include "base/json.hpp"
#include "results/simulation.hpp"

namespace penstock {

struct LearningPoint {
  std::uint32_t update = 0;  ///< updates made
  double samples = 0;        ///< that they are made of
  double simulated_s = 0;    ///< until then, on the scenario's cluster
  double loss = 0;           ///< of the update's samples, before it; not finite: no number
  std::optional<double> evaluation_loss = {};
};

/// One scenario with one seed.
struct Learning {
  std::uint64_t seed = 1;
  std::vector<LearningPoint> curve;
  std::string weights_digest, stopped_because;
  double seconds = 0;  ///< of training, on this machine
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

/// Nothing has been learned yet.
LearnedScenario learned_scenario(const Scenario& scenario);

/// Of all updates of a run, in their order; of replicas that wait for no other, those of each.
std::vector<double> all_update_ends_s(const Simulation& simulated);

/// Mean, least and most over the seeds that got so far, of the loss or the evaluation loss.
struct Band {
  std::uint32_t update = 0;
  double samples = 0, simulated_s = 0;
  double mean = 0, least = 0, most = 0;
};
std::vector<Band> bands(const LearnedScenario& scenario, bool evaluated);

/// On held-out data where there is some.
std::vector<Band> judged_by(const LearnedScenario& scenario);

/// Who has the lowest last loss.
struct LearnedMost {
  const LearnedScenario* best = nullptr;  ///< null: no run came to a loss
  /// Whose seeds reach as low as the best's do, whose mean is lower by chance.
  std::vector<std::string> rivals = {};
};
LearnedMost learned_most(const std::vector<LearnedScenario>& all);

/// `reproducible`: without the time that training took.
Json to_json(const LearnedScenario& scenario, bool reproducible);

}  // namespace penstock
