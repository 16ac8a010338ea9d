// SPDX-License-Identifier: Apache-2.0
// A recording: what happened when a Program was executed for real, once or several times, as one
// readable JSON file (gzip when its name ends in `.gz`). docs/recording-format.md has every field.
//
// Ops are found again by (device, token), never by their place in the file, so a partial recording
// (a run that was stopped, a trace of another framework) is read like a whole one. Times are
// seconds on the clock of the run; of a run over several processes, all on rank 0's clock.
#pragma once

#include "program/dependencies.hpp"
#include "program/recipe.hpp"
#include "program/timeline.hpp"
#include "traces/memory.hpp"
#include "traces/metrics.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

inline constexpr int kRecordingVersion = 1;

/// What the ranks of a device exchanged inside of an op, as its first rank saw it.
struct RecordedExchange {
  std::string name;  ///< "attention": the part of the op that it belongs to
  Collective what = Collective::all_reduce;
  std::int64_t bytes = 0;
  Span span;
};

struct RecordedOp {
  int device = 0;
  Op op;      ///< its kind, stage and microbatch; flags are not recorded
  Span span;  ///< of the op itself
  /// Of the message it waited for, from its departure until it had arrived.
  std::optional<Span> message = {};
  std::optional<std::uint32_t> weight_version = {};  ///< that an F, B, I or W used
  std::vector<RecordedExchange> exchanges = {};      ///< one after the other
};

struct RecordedDevice {
  int device = 0;
  MemoryUse peak = {};  ///< bytes the executor held at the peak, by owner
  double peak_at_s = 0;
  std::optional<Op> peak_op = {};  ///< whose allocation made the peak
  /// Taken from the allocator at most: bytes of blocks, or a pool's mark. None: unknown.
  std::optional<std::int64_t> allocator_peak_bytes = {};
};

/// The loss of one microbatch, as the last stage computed it.
struct RecordedLoss {
  std::uint32_t microbatch = 0;
  double loss = 0;
};

struct RecordedRun {
  bool complete = true;         ///< false: the run was stopped
  std::string stopped_because;  ///< empty when complete
  std::vector<RecordedOp> ops;
  std::vector<RecordedDevice> devices;  ///< empty: memory was not recorded
  std::vector<RecordedLoss> losses;
  /// Do the final weights equal, bit for bit, those of a sequential run? None: not checked.
  std::optional<bool> weights_equal = {};
  /// Did the updates change the weights of every stage? If not, equal ones show nothing. None: not
  /// checked.
  std::optional<bool> weights_moved = {};
  /// Of the final weights of all stages. None: not asked for, or replicas of a stage differ.
  std::optional<std::string> weights_digest = {};
};

struct Recording {
  std::string name;
  std::string scenario;  ///< its resolved text, as YAML
  std::string profile;   ///< the measured profile that predicts it: file name or text; may be empty
  std::string backend;   ///< host, cuda
  std::string clock;     ///< wall, virtual
  std::map<std::string, std::string> description;  ///< machine, cpu, versions, settings
  std::string schedule;                            ///< empty: the recording does not say
  std::string transfers;                           ///< so may this be
  int depth = 0;                                   ///< devices of one pipeline
  std::uint32_t microbatches = 0;                  ///< per weight update, of one replica
  std::uint32_t batches = 0;                       ///< weight updates of a run
  std::string compute;                             ///< stand_in, transformer
  std::vector<RecordedRun> runs;                   ///< repeats of the same run
};

/// The text of the file; parse_recording reads it again.
std::string recording_text(const Recording& recording);

/// Complete or not there; the same recording makes the same bytes. "-" is standard output. Throws
/// SystemError.
void write_recording(const Recording& recording, const std::string& path);

/// A recording, or spans of Megatron-LM (traces/megatron_spans.hpp). Throws InputError with
/// everything that is wrong with the file, SystemError when it cannot be read.
Recording read_recording(const std::string& path);

/// The same from the text of a file; `origin` names it in errors.
Recording parse_recording(const std::string& text, const std::string& origin);

/// Does a file's text begin as a recording does, or as exported spans?
bool is_recording(std::string_view text);

/// A run laid beside the ops of a Program.
struct RecordedTimeline {
  Timeline timeline;  ///< parallel to the Program's ops; a missing op has start_s = end_s = -1
  std::vector<std::uint32_t> missing;  ///< ops of the Program that were not recorded
  std::vector<RecordedOp> unknown;     ///< recorded, but not in the Program on that device
  /// Per device, the Program's ops in the order in which they started.
  std::vector<std::vector<std::uint32_t>> order;
  std::vector<double> exchange_s = {};  ///< by op, of what was exchanged inside of it
};

/// Matches ops by device and token; of an op recorded twice, the first counts and the other is
/// unknown.
RecordedTimeline to_timeline(const OpLists& ops, const DependencyTable& table,
                             const RecordedRun& run);

/// What was recorded of a run, as a program of its own in the order in which it happened: ops that
/// did not run are left out, and so are messages whose other end did not run.
class WhatRan {
 public:
  /// Of the program that `run` was laid beside, whose dependencies are `table`.
  WhatRan(const Program& program, const DependencyTable& table, const RecordedTimeline& run);
  WhatRan(const WhatRan&) = delete;
  WhatRan& operator=(const WhatRan&) = delete;

  TimelineView view() const { return {program_, *table_, *timeline_}; }

 private:
  Program program_;
  std::unique_ptr<DependencyTable> table_;
  std::unique_ptr<Timeline> timeline_;
};

/// `2F5`, `1STEP4` as an op without flags; nothing when it is no token.
std::optional<Op> parse_op(std::string_view token);

}  // namespace penstock
