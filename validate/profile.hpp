// SPDX-License-Identifier: Apache-2.0
// Fits a profile, which scenarios use, to what was measured, and writes it as YAML.
//
// A layer is the slope and the overhead the intercept of a middle stage's time over its layers; the
// embedding and the LM head are what a first and a last stage take beyond that. Latency and
// bandwidth are intercept and slope of the time of messages over their bytes (models/line_fit.hpp).
// Two flows that take more than 1.5 times as long as one share something: the two directions (half
// duplex), two channels of one direction (fair when both get slower, fifo when only the second one
// does), the flows out of or into one device (a port to a switch).
#pragma once

#include "hw/calibration.hpp"
#include "models/cluster.hpp"
#include "models/layer_profile.hpp"
#include "models/stage_costs.hpp"

#include <string>
#include <utility>
#include <vector>

namespace penstock {

/// The spread of repeated times, (p95 - p5) / median, above which the machine must have done other
/// work, too. Such a median may be off by more than a prediction should be.
inline constexpr double kBusySpread = 0.5;

struct Profile {
  std::vector<std::pair<std::string, std::string>> machine;  ///< names and values of facts
  TransformerSpec model;
  struct Row {
    ProfileRow costs;
    std::string note;  ///< the number of samples, their spread, and how well the fit holds
  };
  std::vector<Row> rows;
  struct Step {
    ProfileStep costs;
    std::string note;
  };
  std::vector<Step> steps;
  Cluster cluster;
  std::vector<std::string> link_notes;
};

/// Returns the profile of what was measured. Throws InputError when the result lacks what it needs.
Profile fit_profile(const CalibrationResult& result);

/// Returns the profile as a file that `model:` and `cluster:` of a scenario can name.
std::string to_yaml(const Profile& profile);

}  // namespace penstock
