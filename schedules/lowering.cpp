// SPDX-License-Identifier: Apache-2.0
#include "schedules/lowering.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace penstock {
namespace {

VersionRule version_rule(const Schedule& schedule, const ScheduleShape& shape,
                         const OpLists& order) {
  VersionRule rule;
  rule.kind = schedule.update;
  rule.extra_copies = shape.extra_copies;
  if (schedule.list_versions != nullptr) schedule.list_versions(shape, order, rule);
  if (schedule.update != UpdateRule::stash) return rule;
  if (!shape.stashing) rule.kind = UpdateRule::latest;
  for (std::uint32_t s = 0; s < shape.depth; ++s)
    rule.delay.push_back(shape.warmup(shape.vertical_sync ? 0 : s));
  return rule;
}

/// Those that an order says; the others follow from the placement.
constexpr std::uint8_t kOfOrder = Op::paired | Op::stored;

/// On one replica of a position: of a batch where the pipeline flushes, else of the run.
std::uint32_t microbatches_of_order(const Program& program, std::uint32_t position) {
  const auto width = static_cast<std::uint32_t>(program.placement.widths()[position]);
  return program.microbatches() / width / (program.flushes ? program.batches : 1);
}

/// Of every stage, whether the stages before and after it live elsewhere: on another position, for
/// the mirror image of two positions is two positions.
class Neighbours {
 public:
  explicit Neighbours(const Placement& placement) {
    const auto& positions = placement.positions();
    for (std::size_t s = 0; s + 1 < positions.size(); ++s)
      next_elsewhere_.push_back(positions[s] != positions[s + 1]);
  }

  std::uint8_t flags(const Op& op) const {
    const bool before = op.stage > 0 && next_elsewhere_[op.stage - 1U] != 0;
    const bool after = op.stage < next_elsewhere_.size() && next_elsewhere_[op.stage] != 0;
    const bool forward = op.kind == OpKind::forward;
    const bool moves = forward || is_backward(op.kind);
    const bool sends = moves && (forward ? after : before);
    const bool receives = moves && (forward ? before : after);
    return static_cast<std::uint8_t>((op.flags & kOfOrder) | (sends ? Op::sends : 0) |
                                     (receives ? Op::receives : 0));
  }

 private:
  std::vector<char> next_elsewhere_;
};

/// Appends one device's compute order, shifted by `first_microbatch`, with a step after the last
/// gradient of every update.
class DeviceLowering {
 public:
  DeviceLowering(Program& program, const Neighbours& neighbours, std::span<const Op> order,
                 int device)
      : program_(program),
        neighbours_(neighbours),
        order_(order),
        replica_(program.placement.replica_of(device)) {
    const auto& positions = program.placement.positions();
    const auto first = std::ranges::find(positions, program.placement.position_of(device));
    stage_ = static_cast<std::uint16_t>(first - positions.begin());
    several_stages_ = program.placement.stages_at(program.placement.position_of(device)).size() > 1;
    // Gradients still to come before the step: one per microbatch and stage of this device.
    gradients_.assign(program.updates(stage()), 0);
  }

  void append(std::uint32_t first_microbatch) {
    for (const Op& op : order_) {
      if (finishes_gradient(op)) ++gradients_[update_of(op.microbatch + first_microbatch)];
    }
    for (const Op& op : order_) append_op(op, op.microbatch + first_microbatch);
  }

  /// Ends the device's list.
  void finish() {
    add_pending_step();
    program_.ops.end_device();
  }

 private:
  static bool finishes_gradient(const Op& op) {
    return op.kind == OpKind::backward || op.kind == OpKind::backward_weight;
  }
  /// Stage of REDUCE_GRAD and STEP: the position's first; they stand for all of its stages.
  std::uint16_t stage() const { return stage_; }
  std::uint32_t width() const { return program_.placement.width_of(stage()); }
  std::uint32_t update_of(std::uint32_t local) const {
    return local / program_.per_update(stage());
  }

  void append_op(Op op, std::uint32_t local) {
    op.microbatch = local * width() + replica_;
    op.flags = neighbours_.flags(op);
    if (pending_ && program_.version(op) > made_) add_pending_step();
    if (program_.gathers && op.kind == OpKind::forward && is_first_since_step(op.stage))
      op.flags |= several_stages_ ? Op::prefetched : Op::gathers;
    program_.ops.add_op(op);
    if (!finishes_gradient(op)) return;
    const std::uint32_t update = update_of(local);
    if (--gradients_[update] == 0) end_update(update);
  }

  /// Is this the first time that it is asked of a stage since the last step?
  bool is_first_since_step(std::uint16_t stage) {
    if (seen_at_.size() <= stage) seen_at_.resize(stage + 1U, kNoOp);
    return std::exchange(seen_at_[stage], made_) != made_;
  }

  /// The tail of an update. A detached reduction runs beside the next batch: its step stands before
  /// the first op that needs the new version.
  void end_update(std::uint32_t update) {
    add_pending_step();
    pending_ =
        Op{.microbatch = update * width() + replica_, .stage = stage(), .kind = OpKind::step};
    if (width() == 1 && !program_.reduces_within && !program_.placement.mirrored())
      return add_pending_step();
    Op reduce = *pending_;
    reduce.kind = OpKind::reduce_grad;
    reduce.flags = program_.detached_reductions ? Op::detached : 0;
    program_.ops.add_op(reduce);
    if (!program_.detached_reductions) add_pending_step();
  }

  void add_pending_step() {
    if (!pending_) return;
    program_.ops.add_op(*pending_);
    pending_.reset();
    ++made_;
  }

  Program& program_;
  const Neighbours& neighbours_;
  std::span<const Op> order_;
  std::uint32_t replica_;
  std::uint16_t stage_ = 0;
  bool several_stages_ = false;
  std::uint32_t made_ = 0;  // updates
  std::optional<Op> pending_;
  std::vector<std::uint32_t> gradients_;
  std::vector<std::uint32_t> seen_at_;  // by stage: steps that were made before its last F
};

}  // namespace

std::uint64_t count_ops(const ScheduleShape& shape) {
  // F and B, or F, I and W, which a count for limits may be generous with.
  const std::uint64_t kinds = shape.chunks > 1 ? 3 : 2;
  const std::uint64_t per_device =
      kinds * std::uint64_t{shape.microbatches_per_update} * shape.batches * shape.chunks +
      2 * std::uint64_t{shape.batches};
  std::uint64_t round = 1;
  for (const int w : shape.replicas.values())
    round = std::lcm(round, static_cast<std::uint64_t>(w));
  return per_device * shape.depth * round;
}

namespace {

/// Puts each forward that follows a backward before it, to run together with it.
void pair_passes(OpLists& order) {
  for (int d = 0; d < order.devices(); ++d) {
    for (std::uint32_t g = order.begin(d); g + 1 < order.end(d); ++g) {
      const bool backward =
          order[g].kind == OpKind::backward || order[g].kind == OpKind::backward_input;
      if (!backward || order[g + 1].kind != OpKind::forward || order[g + 1].has(Op::paired))
        continue;
      std::swap(order[g], order[g + 1]);
      order[g++].flags |= Op::paired;
    }
  }
}

}  // namespace

Program lower(const Schedule& schedule, const ScheduleShape& shape,
              const LoweringOptions& options) {
  const std::uint64_t size = count_ops(shape);
  if (size >= kNoOp) {
    throw InputError("pipeline",
                     fmt::format("the run has {} ops, more than the {} penstock can hold; "
                                 "simulate fewer batches",
                                 size, kNoOp - 1));
  }
  OpLists order;
  order.reserve(shape.depth, size / shape.batches);  // what is not needed is not touched
  schedule.append_order(shape, order);
  if (options.pairs) pair_passes(order);

  Program program;
  program.schedule = schedule.name;
  program.placement = placement_of(schedule, shape);
  program.versions = version_rule(schedule, shape, order);
  program.whole_backward = schedule.whole_backward;
  program.transfers = options.transfers;
  program.microbatches_per_update = shape.microbatches_per_update;
  program.batches = shape.batches;
  program.flushes = schedule.flushes();
  program.step_sync = options.step_sync;
  program.asynchronous = schedule.asynchronous;
  program.detached_reductions = options.detached_reductions;
  program.reduces_within = options.reduces_within;
  program.gathers = options.gathers;
  program.ops.reserve(static_cast<std::size_t>(program.placement.devices()), size);
  return lower(std::move(program), order);
}

Program lower(Program program, const OpLists& order) {
  const Neighbours neighbours(program.placement);
  for (int d = 0; d < program.placement.devices(); ++d) {
    const std::uint32_t position = program.placement.position_of(d);
    DeviceLowering device(program, neighbours, order.of_device(static_cast<int>(position)), d);
    const std::uint32_t repeats = program.flushes ? program.batches : 1;
    const std::uint32_t per_batch = microbatches_of_order(program, position);
    for (std::uint32_t r = 0; r < repeats; ++r) device.append(r * per_batch);
    device.finish();
  }
  return program;
}

OpLists compute_order(const Program& program) {
  OpLists order;
  for (std::uint32_t position = 0; position < program.placement.widths().size(); ++position) {
    const std::uint32_t end = microbatches_of_order(program, position);
    for (Op op : program.ops.of_device(program.placement.device_at(0, position))) {
      op.microbatch = program.local(op);
      if (!is_compute(op.kind) || op.microbatch >= end) continue;
      op.flags &= kOfOrder;
      order.add_op(op);
    }
    order.end_device();
  }
  return order;
}

}  // namespace penstock
