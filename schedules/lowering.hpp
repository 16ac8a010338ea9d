// SPDX-License-Identifier: Apache-2.0
// Lowering: from a schedule's compute order to a Program that engines run.
//
// Adds what the order leaves out: the batches of a flushing schedule one after the other, the
// replicas, which ops send and receive, and after a device's last backward of an update the
// gradient reduction (where several GPUs hold its weights) and the optimizer step. The input
// gradient leaves right after the op that made it (I, or the whole B).
#pragma once

#include "schedules/generator.hpp"

namespace penstock {

struct LoweringOptions {
  Transfers transfers = Transfers::overlapped;
  StepSync step_sync = StepSync::device;  ///< optimizer_sync
  /// The reduction runs beside the next batch (2BW's cost model).
  bool detached_reductions = false;
  bool reduces_within = false;  ///< Mesh::reduces_within
  /// A backward and the forward that comes next run together, forward first (Op::paired): the
  /// combined 1F1B of Megatron-LM, in which one computes while the tokens of the other one are
  /// exchanged.
  bool pairs = false;
  bool gathers = false;  ///< an update's weights are gathered in each stage's first F (Op::gathers)

  bool operator==(const LoweringOptions&) const = default;
};

/// The Program of a schedule. Precondition: `schedule.refuse(shape)` is empty and the run has fewer
/// than 2^32 - 1 ops (throws InputError).
Program lower(const Schedule& schedule, const ScheduleShape& shape, const LoweringOptions& options);

/// The same from an order: `rules` is a Program without ops; `order` has the compute ops of each
/// position, of one batch where the pipeline flushes, microbatches counted as one replica does.
/// Precondition: each op is at a place where the position has it, and all are fewer than 2^32 - 1.
Program lower(Program rules, const OpLists& order);

/// The order that such a Program was lowered from.
OpLists compute_order(const Program& lowered);

/// The ops a run of this shape will have, for limits and progress.
std::uint64_t count_ops(const ScheduleShape& shape);

}  // namespace penstock
