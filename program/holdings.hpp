// SPDX-License-Identifier: Apache-2.0
// Holdings: everything that occupies the memory of a GPU, by owner, between two points of the run.
//   weights, versions held, gradients, optimizer   all the time
//   activations   from the start of F: a part until the end of I or B, another until that of W or
//                 B; what I leaves for W, from its end until that of W
//   buffers       a received message from its departure until F starts, or the backward has ended;
//                 a sent one from the end of its op until it has arrived
//   workspace     while an op runs
// The predicted memory (traces/memory.hpp) and the executor's ledger (hw/ledger.hpp) go through the
// same ones. At one instant, what ends is freed before what starts is allocated.
#pragma once

#include "program/op_lists.hpp"

namespace penstock {

enum class Owner : std::uint8_t {
  weights,
  weight_versions,
  gradients,
  optimizer,
  activations,
  buffers,
  workspace
};
inline constexpr std::size_t kOwners = 7;
inline constexpr std::string_view kOwnerNames[kOwners] = {
    "weights", "weight_versions", "gradients", "optimizer", "activations", "buffers", "workspace"};

/// Bytes of one virtual stage on a GPU.
struct StageBytes {
  std::int64_t weights = 0, version = 0, gradients = 0, optimizer = 0;
  std::int64_t until_input = 0;         ///< activations from F to the end of I or B
  std::int64_t until_weight = 0;        ///< from F to the end of W or B
  std::int64_t kept = 0;                ///< what I makes for W: from its end to that of W
  std::int64_t forward_workspace = 0;   ///< while F runs
  std::int64_t backward_workspace = 0;  ///< while a whole B runs
  std::int64_t part_workspace = 0;      ///< while I runs
  std::int64_t weight_workspace = 0;    ///< while W runs
  std::int64_t input_message = 0, output_message = 0;  ///< of F; gradients are as large
};

/// As its costs say; `stored`: of microbatches of which nothing is recomputed (Op::stored);
/// `parts`: GPUs that hold a part of each message.
StageBytes stage_bytes(const std::vector<StageCosts>& costs, std::uint32_t stage, bool stored,
                       int parts = 1);

/// Calls `change(owner, bytes)` for what a stage holds all the time, with so many versions of its
/// weights beyond the live one.
template <class Change>
void for_each_constant_holding(const StageBytes& b, std::int64_t versions, const Change& change) {
  change(Owner::weights, b.weights);
  change(Owner::weight_versions, b.version * versions);
  change(Owner::gradients, b.gradients);
  change(Owner::optimizer, b.optimizer);
}

/// Of an op: its message departs, it starts, it ends, the message that it sends arrives.
enum class OpPoint : std::uint8_t { departure, start, end, arrival };

/// Calls `change(point, owner, bytes)` for what a compute op takes and, negative, gives back; at
/// most once for each point and owner. `microbatches`: those that a backward is of.
template <class Change>
void for_each_holding(const Op& op, const StageBytes& b, std::int64_t microbatches,
                      const Change& change) {
  const bool forward = op.kind == OpKind::forward;
  if (op.has(Op::receives)) {
    const std::int64_t bytes = forward ? b.input_message : b.output_message * microbatches;
    change(OpPoint::departure, Owner::buffers, bytes);
    change(forward ? OpPoint::start : OpPoint::end, Owner::buffers, -bytes);
  }
  if (op.has(Op::sends)) {
    const std::int64_t bytes = forward ? b.output_message : b.input_message * microbatches;
    change(OpPoint::end, Owner::buffers, bytes);
    change(OpPoint::arrival, Owner::buffers, -bytes);
  }
  const std::int64_t works = forward                              ? b.forward_workspace
                             : op.kind == OpKind::backward        ? b.backward_workspace
                             : op.kind == OpKind::backward_weight ? b.weight_workspace
                                                                  : b.part_workspace;
  change(OpPoint::start, Owner::workspace, works);
  change(OpPoint::end, Owner::workspace, -works);
  switch (op.kind) {
    case OpKind::forward:
      return change(OpPoint::start, Owner::activations, b.until_input + b.until_weight);
    case OpKind::backward:
      return change(OpPoint::end, Owner::activations,
                    -(b.until_input + b.until_weight) * microbatches);
    case OpKind::backward_input:
      return change(OpPoint::end, Owner::activations, b.kept - b.until_input * microbatches);
    default:
      return change(OpPoint::end, Owner::activations, -b.kept - b.until_weight * microbatches);
  }
}

}  // namespace penstock
