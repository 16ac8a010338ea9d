// SPDX-License-Identifier: Apache-2.0
// Visits the ops of a Program in an order that respects every wait: each device runs its list in
// order, an op that receives waits for its message, a barrier for all of its members.
//
// The walk knows no time. A Clock gives the events a meaning: the checker's only remembers that a
// message was sent, the exact engine's computes when it arrives. One pass, a few nanoseconds per
// op: a device that must wait is parked and looked at again when somebody it waits for has moved.
//
// With `coupled` transfers a message needs both ends: its sender has run the producing op, and its
// receiver the compute op before the consuming one (steps and reductions between them do not delay
// the post); whatever the sender does next waits for it, too.
//
// A detached REDUCE_GRAD does not hold its device: the STEP of the same update waits in its place.
//
// With post-validation a STEP also waits for the partial norm of the position before, a message
// that leaves when that position's STEP starts (norm_chain.hpp).
//
// An overlapped F and B (Op::paired) start together, when the messages of both are there, and end
// together. `coupled` transfers know no pairs.
#pragma once

#include "program/dependencies.hpp"
#include "program/norm_chain.hpp"
#include "program/program.hpp"

#include <algorithm>

namespace penstock {

/// Who meets at a barrier: a replica group (XLA's word), which is the replicas of a position and,
/// where the placement is mirrored, of its mirror (REDUCE_GRAD), or all devices (a global STEP).
/// Asynchronous replicas are replica groups of one.
class Barriers {
 public:
  explicit Barriers(const Program& program);
  /// Does a device wait before this op until the others have come?
  bool holds(const Op& op, int device) const {
    if (op.kind == OpKind::reduce_grad) return !op.has(Op::detached);
    return op.kind == OpKind::step &&
           (global_step_ ||
            (detached_ && (reduces_within_ || replica_group_size(replica_group_of(device)) > 1)));
  }
  /// Is the op a device's way of coming to the meeting?
  bool comes(const Op& op) const {
    return op.kind == OpKind::reduce_grad || (op.kind == OpKind::step && global_step_);
  }
  /// A dense number of the meeting an op comes to or waits for.
  std::uint32_t group(const Op& op, int device) const;
  std::uint32_t members(const Op& op, int device) const {
    return everybody(op) ? devices() : replica_group_size(replica_group_of(device));
  }
  /// Number of the replica group that a device reduces gradients with: its position (the first of
  /// two mirrored ones), or itself.
  std::uint32_t replica_group_of(int device) const {
    if (asynchronous_) return static_cast<std::uint32_t>(device);
    const std::uint32_t position = placement_->position_of(device);
    return std::min(position, placement_->mirror_of(position));
  }
  std::uint32_t replica_group_size(std::uint32_t replica_group) const {
    if (asynchronous_) return 1;
    return replicas(replica_group) *
           (placement_->mirror_of(replica_group) == replica_group ? 1 : 2);
  }
  /// The i-th device of a replica group.
  int replica_group_member(std::uint32_t replica_group, std::uint32_t i) const {
    if (asynchronous_) return static_cast<int>(replica_group);
    const std::uint32_t here = replicas(replica_group);
    return i < here ? placement_->device_at(i, replica_group)
                    : placement_->device_at(i - here, placement_->mirror_of(replica_group));
  }
  /// Calls `visit(device)` for every member of the meeting of an op.
  template <class Visit>
  void for_each_member(const Op& op, int device, const Visit& visit) const {
    const std::uint32_t count = members(op, device);
    for (std::uint32_t i = 0; i < count; ++i)
      visit(everybody(op) ? static_cast<int>(i)
                          : replica_group_member(replica_group_of(device), i));
  }
  std::uint32_t groups() const { return groups_; }
  /// The meetings of a replica group's reductions, by update: [first, end).
  std::pair<std::uint32_t, std::uint32_t> reductions(std::uint32_t replica_group) const {
    return {first_[replica_group], first_[replica_group + 1]};
  }

 private:
  bool everybody(const Op& op) const { return op.kind == OpKind::step && global_step_; }
  std::uint32_t devices() const { return static_cast<std::uint32_t>(placement_->devices()); }
  std::uint32_t replicas(std::uint32_t position) const {
    return static_cast<std::uint32_t>(placement_->widths()[position]);
  }

  const Placement* placement_;
  bool global_step_;
  bool asynchronous_;
  bool detached_ = false, reduces_within_ = false;
  std::vector<std::uint32_t> first_;  // meeting of each replica group's first update
  std::uint32_t reductions_ = 0, groups_ = 0;
};

// A Clock has
//   bool arrived(g)                        has the message that op g waits for been sent (and
//   timed)? void transfer(from, from_device, to)   the message from op `from` to op `to` is sent
//   void run_op(device, g, held_by)        op g (and its pair) runs; `held_by`: the op whose
//                                          incoming message the device also waits for (coupled),
//                                          or kNoOp
//   void meet(device, g, group, held_by)   the device has come to the meeting of op g
//   void leave(device, g, group)           all have, and op g, which waited for them, runs next
template <class Clock>
class Walk {
 public:
  Walk(const Program& program, const DependencyTable& table, Clock& clock)
      : program_(program),
        table_(table),
        clock_(clock),
        barriers_(program),
        norms_(program),
        met_(barriers_.groups(), 0) {
    const int devices = program.ops.devices();
    for (int d = 0; d < devices; ++d) cursor_.push_back(program.ops.begin(d));
    parked_.assign(static_cast<std::size_t>(devices), 0);
    waiting_at_.assign(static_cast<std::size_t>(devices), kNoOp);
  }

  /// Runs as far as possible; true when every op ran.
  bool run() {
    return program_.transfers == Transfers::coupled ? run_all<true>() : run_all<false>();
  }
  /// The op a device stands before; `program.ops.end(device)` when it is done.
  std::uint32_t cursor(int device) const { return cursor_[static_cast<std::size_t>(device)]; }

 private:
  template <bool coupled>
  bool run_all() {
    const OpLists& ops = program_.ops;
    for (int d = ops.devices() - 1; d >= 0; --d) runnable_.push_back(d);
    while (!runnable_.empty()) {
      const int device = runnable_.back();
      runnable_.pop_back();
      advance<coupled>(device);
    }
    for (int d = 0; d < ops.devices(); ++d) {
      if (cursor(d) != ops.end(d)) return false;
    }
    return true;
  }

  template <bool coupled>
  void advance(int device) {
    const OpLists& ops = program_.ops;
    const auto d = static_cast<std::size_t>(device);
    const std::uint32_t end = ops.end(device);
    std::uint32_t g = cursor_[d];
    while (g < end) {
      const Op& op = ops[g];
      std::uint32_t held_by = kNoOp;
      if constexpr (coupled) held_by = previous_send(device, g);
      const bool computes = is_compute(op.kind);
      const std::uint32_t count = ops.together(g);
      const bool waits = (op.has(Op::receives) && !clock_.arrived(g)) ||
                         (count > 1 && ops[g + 1].has(Op::receives) && !clock_.arrived(g + 1)) ||
                         (coupled && held_by != kNoOp && !clock_.arrived(held_by)) ||
                         (!computes && waits_for_others(device, g, held_by));
      if (waits) break;
      if (op.has(Op::detached)) come(device, g, held_by);
      clock_.run_op(device, g, held_by);
      cursor_[d] = g += count;
      if (!computes) hand_norm(device, g - 1);
      if constexpr (coupled) {
        after_run_coupled(device, g - 1);
      } else {
        for (std::uint32_t done = g - count; done < g; ++done) {
          if (ops[done].has(Op::sends))
            send(done, device, table_.consumer(ops[done]), table_.consumer_device(ops[done]));
        }
      }
    }
    parked_[d] = g < end ? 1 : 0;
  }

  /// Of a REDUCE_GRAD or STEP. To ask is to come to the meeting, so what else holds the op was
  /// asked before.
  bool waits_for_others(int device, std::uint32_t g, std::uint32_t held_by) {
    const Op& op = program_.ops[g];
    return (norms_.takes(op, device) && !clock_.arrived(g)) ||
           (barriers_.holds(op, device) && !all_met(device, g, held_by));
  }

  void hand_norm(int device, std::uint32_t g) {
    norms_.for_each_taker(program_.ops[g], device,
                          [&](std::uint32_t step, int taker) { send(g, device, step, taker); });
  }

  /// The op that consumes what the device's last compute op before `g` sends, or kNoOp.
  std::uint32_t previous_send(int device, std::uint32_t g) const {
    const std::uint32_t previous = program_.ops.previous_compute(device, g);
    if (previous == kNoOp || !program_.ops[previous].has(Op::sends)) return kNoOp;
    return table_.consumer(program_.ops[previous]);
  }

  /// Has the device run every compute op before `to`, so that its receive is posted?
  bool posted(int device, std::uint32_t to) const {
    const std::uint32_t previous = program_.ops.previous_compute(device, to);
    return previous == kNoOp || cursor(device) > previous;
  }

  void send(std::uint32_t from, int from_device, std::uint32_t to, int to_device) {
    clock_.transfer(from, from_device, to);
    const std::uint32_t at = cursor(to_device);
    if (at == to || (at + 1 == to && program_.ops.second_of_pair(to))) wake(to_device);
  }

  /// Both ends of a batch may now be there: what `done` sends, what the next compute op receives.
  void after_run_coupled(int device, std::uint32_t done) {
    const OpLists& ops = program_.ops;
    if (!is_compute(ops[done].kind)) return;
    if (ops[done].has(Op::sends)) {
      const std::uint32_t to = table_.consumer(ops[done]);
      const int to_device = table_.consumer_device(ops[done]);
      if (posted(to_device, to)) send(done, device, to, to_device);
    }
    const std::uint32_t next = ops.next_compute(device, done);
    if (next == kNoOp || !ops[next].has(Op::receives)) return;
    const std::uint32_t from = table_.producer(ops[next]);
    const int from_device = table_.producer_device(ops[next]);
    if (cursor(from_device) <= from) return;
    clock_.transfer(from, from_device, next);
    wake(from_device);
  }

  void come(int device, std::uint32_t g, std::uint32_t held_by) {
    const Op& op = program_.ops[g];
    const std::uint32_t group = barriers_.group(op, device);
    clock_.meet(device, g, group, held_by);
    if (++met_[group] < barriers_.members(op, device)) return;
    barriers_.for_each_member(op, device, [&](int other) {
      const std::uint32_t at = waiting_at_[static_cast<std::size_t>(other)];
      if (at != kNoOp && other != device && cursor(other) == at) wake(other);
    });
  }

  bool all_met(int device, std::uint32_t g, std::uint32_t held_by) {
    const auto d = static_cast<std::size_t>(device);
    const Op& op = program_.ops[g];
    if (waiting_at_[d] != g) {
      waiting_at_[d] = g;
      if (barriers_.comes(op)) come(device, g, held_by);
    }
    const std::uint32_t group = barriers_.group(op, device);
    if (met_[group] < barriers_.members(op, device)) return false;
    clock_.leave(device, g, group);
    return true;
  }

  void wake(int device) {
    char& parked = parked_[static_cast<std::size_t>(device)];
    if (parked == 0) return;
    parked = 0;
    runnable_.push_back(device);
  }

  const Program& program_;
  const DependencyTable& table_;
  Clock& clock_;
  Barriers barriers_;
  NormChain norms_;
  std::vector<std::uint32_t> met_;
  std::vector<std::uint32_t> cursor_;
  std::vector<std::uint32_t> waiting_at_;  // per device: the barrier it has reached
  std::vector<char> parked_;
  std::vector<int> runnable_;
};

}  // namespace penstock
