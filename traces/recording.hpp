// SPDX-License-Identifier: Apache-2.0
// A recording says what happened when a Program was executed for real, once or several times. It is
// one readable JSON file (gzip when its name ends in `.gz`); docs/recording-format.md has every
// field.
//
// Ops are identified by device and token, never by their place in the file, so a partial recording
// (a run that was stopped, a trace of another framework) is read like a whole one. Times are
// seconds on the clock of the run; where it has several processes, on that of rank 0.
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
  std::string name;  ///< the part of the op that it belongs to, such as "attention"
  Collective what = Collective::all_reduce;
  std::int64_t bytes = 0;
  Span span;
};

struct RecordedOp {
  int device = 0;
  Op op;      ///< its kind, stage and microbatch; flags are not recorded
  Span span;  ///< when the op itself ran
  /// The message that it waited for, from its departure until it had arrived.
  std::optional<Span> message = {};
  std::optional<std::uint32_t> weight_version = {};  ///< the version that an F, B, I or W used
  std::vector<RecordedExchange> exchanges = {};      ///< its exchanges, one after the other
};

struct RecordedDevice {
  int device = 0;
  MemoryUse peak = {};  ///< the bytes that the executor held at the peak, by owner
  double peak_at_s = 0;
  std::optional<Op> peak_op = {};  ///< the op whose allocation made the peak
  /// The most bytes taken from the allocator: those of its blocks, or its pool's mark. None:
  /// unknown.
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
  /// Whether the final weights equal those of a sequential run, bit for bit. None: not checked.
  std::optional<bool> weights_equal = {};
  /// Whether the updates changed the weights of every stage; if not, equal weights prove nothing.
  /// None: not checked.
  std::optional<bool> weights_moved = {};
  /// A digest of the final weights of all stages. None: not asked for, or replicas of a stage
  /// differ.
  std::optional<std::string> weights_digest = {};
};

struct Recording {
  std::string name;
  std::string scenario;  ///< the resolved scenario, as YAML
  std::string profile;   ///< the measured profile that predicts it: file name or text; may be empty
  std::string backend;   ///< host, cuda
  std::string clock;     ///< wall, virtual
  std::map<std::string, std::string> description;  ///< machine, cpu, versions, settings
  std::string schedule;                            ///< empty where the recording does not say
  std::string transfers;                           ///< empty where the recording does not say
  int depth = 0;                                   ///< devices of one pipeline
  std::uint32_t microbatches = 0;                  ///< per weight update, of one replica
  std::uint32_t batches = 0;                       ///< weight updates of a run
  std::string compute;                             ///< stand_in, transformer
  std::vector<RecordedRun> runs;                   ///< repeats of the same run
};

/// Returns the text of the file, which parse_recording reads.
std::string recording_text(const Recording& recording);

/// Writes a recording to a file, completely or not at all; the same recording makes the same bytes.
/// `path` "-" is standard output. Throws SystemError.
void write_recording(const Recording& recording, const std::string& path);

/// Reads a recording, or spans of Megatron-LM (traces/megatron_spans.hpp). Throws InputError with
/// everything that is wrong with the file, and SystemError when it cannot be read.
Recording read_recording(const std::string& path);

/// Reads the same from the text of a file, which errors call `origin`.
Recording parse_recording(const std::string& text, const std::string& origin);

/// Returns whether a file's text begins as a recording does, or as exported spans do.
bool is_recording(std::string_view text);

/// A recorded run as a Timeline of a Program.
struct RecordedTimeline {
  Timeline timeline;  ///< parallel to the Program's ops; a missing op has start_s = end_s = -1
  std::vector<std::uint32_t> missing;  ///< ops of the Program that were not recorded
  std::vector<RecordedOp>
      unknown;  ///< ops that were recorded but are not the Program's on that device
  /// For each device, the Program's ops in the order in which they started.
  std::vector<std::vector<std::uint32_t>> order;
  std::vector<double> exchange_s = {};  ///< for each op, the seconds of the exchanges inside of it
};

/// Returns the run as a Timeline of the ops, matched by device and token. Of an op that was
/// recorded twice the first counts, and the other is unknown.
RecordedTimeline to_timeline(const OpLists& ops, const DependencyTable& table,
                             const RecordedRun& run);

/// The recorded part of a run as a Program of its own, in the order in which it happened, without
/// ops that did not run and without messages of which one end did not run.
class WhatRan {
 public:
  /// Makes it of the Program whose Timeline `run` is; `table` has the Program's dependencies.
  WhatRan(const Program& program, const DependencyTable& table, const RecordedTimeline& run);
  WhatRan(const WhatRan&) = delete;
  WhatRan& operator=(const WhatRan&) = delete;

  TimelineView view() const { return {program_, *table_, *timeline_}; }

 private:
  Program program_;
  std::unique_ptr<DependencyTable> table_;
  std::unique_ptr<Timeline> timeline_;
};

/// Returns the op of a token such as `2F5` or `1STEP4`, without flags; none when it is no token.
std::optional<Op> parse_op(std::string_view token);

}  // namespace penstock
