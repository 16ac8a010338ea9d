// SPDX-License-Identifier: Apache-2.0
// A recording beside the prediction of its scenario, which runs as long as the recording did.
#pragma once

#include "results/simulation.hpp"
#include "validate/validation.hpp"

namespace penstock {

/// A recording and the simulation of its scenario. It cannot be moved, as a simulation points into
/// itself.
class RecordedPrediction {
 public:
  /// Reads the recording at `path` and simulates the scenario of a file, or, where `scenario` is
  /// empty, the recording's own. Throws InputError when the two are not of the same run.
  RecordedPrediction(const std::string& path, const std::string& scenario,
                     const std::vector<Override>& changes, EngineChoice engine);
  RecordedPrediction(const RecordedPrediction&) = delete;
  RecordedPrediction& operator=(const RecordedPrediction&) = delete;

  ValidationInput input() const {
    return {simulated_, *simulation.timeline, memory_, recording, runs_};
  }
  Validation validation() const;
  /// Writes the prediction and the first recorded run as one Chrome trace. Throws SystemError.
  void write_trace(const std::string& path, const std::string& version) const;

  const Recording recording;
  const Simulation simulation;

 private:
  SimulationInput simulated_;
  std::vector<MemoryPeak> memory_;
  std::vector<RecordedTimeline> runs_;
};

}  // namespace penstock
