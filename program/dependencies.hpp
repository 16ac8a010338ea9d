// SPDX-License-Identifier: Apache-2.0
// Which op waits for which: one table for the checker, every engine, the executor and the metrics.
//
// Dependencies follow from (kind, stage, microbatch) and are never stored as edges:
//   F(s,k) waits for F(s-1,k);  B or I(s,k) waits for B or I(s+1,k) and for F(s,k);
//   W(s,k) waits for I(s,k).
// The table only knows where each op stands: four bytes per op.
#pragma once

#include "program/op_lists.hpp"

namespace penstock {

class DependencyTable {
 public:
  /// `microbatches` is the number of microbatches of the whole run. Ops that stand twice or are
  /// out of range are left to the checker: the table keeps the first.
  DependencyTable(const OpLists& lists, const Placement& placement, std::uint32_t microbatches);

  /// Index of F, of B or I, or of W of a microbatch on a stage; kNoOp when it has none.
  std::uint32_t forward(std::uint32_t stage, std::uint32_t microbatch) const {
    return forward_[at(stage, microbatch)];
  }
  std::uint32_t backward(std::uint32_t stage, std::uint32_t microbatch) const {
    return backward_[at(stage, microbatch)];
  }
  std::uint32_t weight(std::uint32_t stage, std::uint32_t microbatch) const {
    return weight_.empty() ? kNoOp : weight_[at(stage, microbatch)];
  }

  /// The op that waits for the output of `op` on the next (previous) stage; kNoOp at the ends.
  std::uint32_t consumer(const Op& op) const {
    if (op.kind == OpKind::forward) {
      return op.stage + 1U < stages_ ? forward(op.stage + 1U, op.microbatch) : kNoOp;
    }
    const bool carries_gradient = is_backward(op.kind) || op.kind == OpKind::backward_weight;
    if (!carries_gradient || op.stage == 0) return kNoOp;
    return backward(op.stage - 1U, op.microbatch);
  }
  /// The op whose output `op` waits for on the previous (next) stage; kNoOp at the ends. When a
  /// stage sends its input gradient only after W, that W.
  std::uint32_t producer(const Op& op) const {
    if (op.kind == OpKind::forward) {
      return op.stage > 0 ? forward(op.stage - 1U, op.microbatch) : kNoOp;
    }
    if (!is_backward(op.kind) || op.stage + 1U >= stages_) return kNoOp;
    const std::uint32_t late = weight(op.stage + 1U, op.microbatch);
    if (late != kNoOp && (*lists_)[late].has(Op::sends)) return late;
    return backward(op.stage + 1U, op.microbatch);
  }

  /// Where an op runs; a REDUCE_GRAD or STEP stands for all stages of its device.
  int device_of(const Op& op) const {
    if (placement_->mirrored() && !is_compute(op.kind)) {
      const std::uint32_t replica = op.microbatch % placement_->width_of(op.stage);
      return placement_->device_at(replica, placement_->positions()[op.stage]);
    }
    return placement_->device_of(op.stage, op.microbatch);
  }
  /// Devices of `consumer(op)` and `producer(op)`, without looking at those ops.
  int consumer_device(const Op& op) const {
    return placement_->device_of(op.kind == OpKind::forward ? op.stage + 1U : op.stage - 1U,
                                 op.microbatch);
  }
  int producer_device(const Op& op) const {
    return placement_->device_of(op.kind == OpKind::forward ? op.stage - 1U : op.stage + 1U,
                                 op.microbatch);
  }
  /// Ops that could not be entered because their place was taken or out of range.
  const std::vector<std::uint32_t>& rejected() const { return rejected_; }
  std::uint32_t microbatches() const { return microbatches_; }
  const Placement& placement() const { return *placement_; }

 private:
  std::size_t at(std::uint32_t stage, std::uint32_t microbatch) const {
    return std::size_t{stage} * microbatches_ + microbatch;
  }

  const OpLists* lists_;
  const Placement* placement_;
  std::uint32_t stages_;
  std::uint32_t microbatches_;
  LargeVector<std::uint32_t> forward_, backward_, weight_;
  std::vector<std::uint32_t> rejected_;
};

}  // namespace penstock
