// SPDX-License-Identifier: Apache-2.0
// A run of a plan in this process and its peers: devices issue, the backend works, rank 0 gets what
// happened, and compares the weights with those of the sequential reference.
#pragma once

#include "hw/executor.hpp"
#include "traces/recording.hpp"

namespace penstock {

struct RunOptions {
  std::string backend = "host";
  RunSettings settings;
  bool check_weights = true;  ///< compare with the reference, on rank 0, after the run
  StageFactory make_stage;    ///< empty: those of the plan
  /// Who can stop what is going on, and null when that is over. From any thread, one at a time.
  std::function<void(RunControl*)> on_control = {};
  /// On rank 0, now and then: ops that have ended, of all devices.
  std::function<void(std::int64_t done)> progress = {};
  /// The plan whose weights are the right ones; null: the plan that runs.
  const RunPlan* reference = nullptr;
};

/// Opens the backend of this name for these devices. Throws InputError, NoHardware, SystemError.
std::unique_ptr<Backend> open_backend(const std::string& name, const BackendRequest& request);

/// Throws InputError where replicas that wait for no other (hw/parameter_server.hpp) would have to
/// run on a clock that decides who comes first.
void require_wall_clock(const RunPlan& plan, const RunOptions& options);

/// Runs the plan once. Rank 0 gets the run of all devices; another rank its own part. A run that
/// was stopped is returned, too: `complete` is false, `stopped_because` says why, and every rank
/// has the part it saw. Throws when it cannot even start.
RecordedRun execute_plan(const RunPlan& plan, const RunOptions& options, Group& group,
                         Description* description = nullptr);

/// A recording of the plan, still without runs.
Recording recording_of(const RunPlan& plan, const RunOptions& options);

/// Bits of the weights, for comparing them between processes: two independent 64-bit hashes.
std::string digest(const std::string& bytes);
/// Of the weights of all virtual stages: equal where each stage's are, bit for bit.
std::string weights_digest(const std::vector<std::string>& weights);

}  // namespace penstock
