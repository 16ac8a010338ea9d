#include "schedules/lowering.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

VersionRule version_rule(const Schedule& schedule, const ScheduleShape& shape) {
  VersionRule rule;
  rule.kind = schedule.update;
  if (schedule.update != UpdateRule::stash) return rule;
  rule.extra_copies = shape.extra_copies;
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    rule.delay.push_back(shape.depth - 1 - (shape.vertical_sync ? 0 : s));
  }
  return rule;
}

std::uint8_t flags(const Op& op, const Placement& placement) {
  const int here = placement.device_of(op.stage, op.microbatch);
  const auto elsewhere = [&](std::uint32_t stage) {
    return placement.device_of(stage, op.microbatch) != here;
  };
  const bool first = op.stage == 0;
  const bool last = op.stage + 1 == placement.stages();
  const bool sends = op.kind == OpKind::forward ? !last && elsewhere(op.stage + 1U)
                     : is_backward(op.kind)     ? !first && elsewhere(op.stage - 1U)
                                                : false;
  const bool receives = op.kind == OpKind::forward ? !first && elsewhere(op.stage - 1U)
                        : is_backward(op.kind)     ? !last && elsewhere(op.stage + 1U)
                                                   : false;
  return static_cast<std::uint8_t>((sends ? Op::sends : 0) | (receives ? Op::receives : 0));
}

/// Appends one device's compute order, shifted by `first_microbatch`, with a step after the last
/// gradient of every update.
class DeviceLowering {
 public:
  DeviceLowering(Program& program, std::span<const Op> order, int replica)
      : program_(program), order_(order), replica_(static_cast<std::uint32_t>(replica)) {
    // Gradients still to come before the step: one per microbatch and stage of this device.
    gradients_.assign(program.batches, 0);
  }

  void append(std::uint32_t first_microbatch) {
    for (const Op& op : order_) {
      if (finishes_gradient(op)) ++gradients_[update_of(op.microbatch + first_microbatch)];
    }
    for (const Op& op : order_) append_op(op, op.microbatch + first_microbatch);
  }

 private:
  bool finishes_gradient(const Op& op) const {
    return op.kind == OpKind::backward || op.kind == OpKind::backward_weight;
  }
  std::uint32_t update_of(std::uint32_t local) const {
    return local / program_.microbatches_per_update;
  }

  void append_op(Op op, std::uint32_t local) {
    const auto width = static_cast<std::uint32_t>(program_.placement.width);
    op.microbatch = local * width + replica_;
    op.flags = flags(op, program_.placement);
    program_.ops.add(op);
    if (!finishes_gradient(op)) return;
    const std::uint32_t update = update_of(local);
    if (--gradients_[update] > 0) return;
    // Stage of REDUCE_GRAD and STEP: the device's first; they stand for all of its stages.
    const Op tail{.microbatch = update * width + replica_,
                  .stage = order_.front().stage,
                  .kind = OpKind::step};
    if (width > 1) {
      Op reduce = tail;
      reduce.kind = OpKind::reduce_grad;
      program_.ops.add(reduce);
    }
    program_.ops.add(tail);
  }

  Program& program_;
  std::span<const Op> order_;
  std::uint32_t replica_;
  std::vector<std::uint32_t> gradients_;
};

}  // namespace

std::uint64_t count_ops(const ScheduleShape& shape, int width) {
  const std::uint64_t per_device =
      2 * std::uint64_t{shape.microbatches_per_update} * shape.batches +
      2 * std::uint64_t{shape.batches};
  return per_device * shape.depth * static_cast<std::uint64_t>(width);
}

Program lower(const Schedule& schedule, const ScheduleShape& shape,
              const LoweringOptions& options) {
  const std::uint64_t size = count_ops(shape, options.width);
  if (size >= kNoOp) {
    throw InputError("pipeline",
                     fmt::format("the run has {} ops, more than the {} penstock can hold; "
                                 "simulate fewer batches",
                                 size, kNoOp - 1));
  }
  OpLists order;
  schedule.generate(shape, order);

  Program program;
  program.schedule = schedule.name;
  program.placement = loop_placement(static_cast<int>(shape.depth), 1, options.width);
  program.versions = version_rule(schedule, shape);
  program.transfers = options.transfers;
  program.microbatches_per_update = shape.microbatches_per_update;
  program.batches = shape.batches;
  program.flushes = schedule.flushes();
  program.global_step = options.global_step;
  program.ops.reserve(static_cast<std::size_t>(program.placement.devices()), size);
  for (int replica = 0; replica < options.width; ++replica) {
    for (int d = 0; d < program.placement.depth; ++d) {
      DeviceLowering device(program, order.of(d), replica);
      const std::uint32_t repeats = schedule.flushes() ? shape.batches : 1;
      for (std::uint32_t r = 0; r < repeats; ++r) device.append(r * shape.microbatches_per_update);
      program.ops.end_device();
    }
  }
  return program;
}

}  // namespace penstock
