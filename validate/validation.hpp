// SPDX-License-Identifier: Apache-2.0
// Predicted against measured: one recording (and its repeats) beside the timeline that was
// predicted for the same Program.
//
// Errors are fractions, (predicted - measured) / measured. Iteration times and op times are
// compared over the iterations after the warm-up (validate/iterations.hpp), medians with medians;
// memory, busy time and the order of ops over whole runs.
#pragma once

#include "traces/memory.hpp"
#include "validate/causes.hpp"
#include "validate/iterations.hpp"
#include "base/statistics.hpp"

#include <map>

namespace penstock {

/// What happens when the Program runs, as predicted and as recorded.
struct ValidationInput {
  const SimulationInput& simulation;
  const Timeline& predicted;
  const std::vector<MemoryPeak>& predicted_memory;  ///< one entry per device
  const Recording& recording;
  const std::vector<RecordedTimeline>& runs;  ///< the recording's runs, in order
};

struct IterationTimes {
  std::optional<double> predicted_s, measured_s;  ///< medians; none without a whole iteration
  std::optional<double> error;
  Spread spread;                    ///< the spread of the measured iterations of all runs
  std::vector<double> run_medians;  ///< the median of each run that has a whole iteration
  std::size_t samples = 0;
  SteadyUpdates steady;
};

/// Ops of one kind, or messages (SEND_F, SEND_B), over all stages or of one.
struct KindRow {
  std::string kind;
  int stage = -1;         ///< -1: all stages
  std::size_t count = 0;  ///< how many were measured, over all runs
  double predicted_mean_s = 0, predicted_median_s = 0;
  Spread measured;
  std::optional<double> error;  ///< the error of the medians
};

struct DeviceRow {
  int device = 0;
  double predicted_busy_s = 0, predicted_idle_s = 0;
  double measured_busy_s = 0, measured_idle_s = 0;  ///< means over the runs
  std::optional<double> busy_error;
  MemoryUse predicted_memory;
  std::optional<MemoryUse> measured_memory;  ///< that of the run with the highest peak
  std::optional<std::int64_t> allocator_peak_bytes;
  std::optional<double> memory_error;
};

/// Where a device's order of ops first differs from the Program's.
struct OrderDifference {
  std::size_t run;
  int device;
  std::size_t position;  ///< the place in the device's list of ops
  Op expected, measured;
};

struct Validation {
  std::string name;
  int depth = 0;
  IterationTimes iteration;
  std::optional<Causes> causes;  ///< none without a whole iteration
  /// The error of the iteration time that is predicted with the run's own median op times instead
  /// of calibrated ones: the error of schedule, messages and launches.
  std::optional<double> own_ops_error;
  std::vector<KindRow> kinds;   ///< a row per kind, over all stages
  std::vector<KindRow> stages;  ///< a row per stage and kind
  std::vector<DeviceRow> devices;
  /// The peak of the fullest device, as predicted and as measured; none where it was not recorded.
  std::optional<std::int64_t> predicted_bytes, measured_bytes;
  std::optional<double> memory_error;
  std::vector<OrderDifference> order_differences;  ///< the first difference of each run and device
  std::vector<std::string> notes;
};

/// Returns the comparison of a recording with its prediction. Requires that the runs hold no op
/// that the Program lacks.
Validation validate(const ValidationInput& input);

/// The errors of one recording, for the summary.
struct RowErrors {
  int depth = 0;
  std::optional<double> time = {}, memory = {}, own_ops = {};
};

/// The errors of many recordings.
struct ValidationSummary {
  ErrorSummary time, memory, own_ops;
  std::map<int, ErrorSummary> time_by_depth;
};
/// Returns the summary of these recordings.
ValidationSummary summarize(const std::vector<RowErrors>& rows);

}  // namespace penstock
