// Scenarios trained for real, each with several seeds: what `penstock train` shows of them.
#pragma once

#include "base/json.hpp"
#include "cli/options.hpp"
#include "results/simulation.hpp"

namespace penstock {

struct LearningPoint {
  std::uint32_t update = 0;  ///< updates made
  double samples = 0;        ///< that they are made of
  double simulated_s = 0;    ///< until then, on the scenario's cluster
  double loss = 0;           ///< of the update's samples, before it; NaN: no number
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

/// Trains all scenarios of the arguments with all their seeds (`--seeds`, `--updates`, `--jobs`,
/// `--checkpoint`, `--resume`). `status`: what penstock-run ended with; runs that it did not begin
/// are missing.
std::vector<LearnedScenario> train_all(const Arguments& arguments, int& status);

/// Mean, least and most over the seeds that got so far, of the loss or the evaluation loss.
struct Band {
  std::uint32_t update = 0;
  double samples = 0, simulated_s = 0;
  double mean = 0, least = 0, most = 0;
};
std::vector<Band> bands(const LearnedScenario& scenario, bool evaluated);

/// Null where it is no number.
Json loss_json(double loss);
Json to_json(const LearnedScenario& scenario, bool reproducible);

}  // namespace penstock
