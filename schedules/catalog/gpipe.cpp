// SPDX-License-Identifier: Apache-2.0
// GPipe (Huang et al., NeurIPS'19): all m forwards, then all m backwards, on one weight version.
// `gpipe` runs the backwards in reverse (B_m ... B_1, as torchgpipe's dependencies force them),
// `gpipe-fifo` in ascending order (PyTorch's ScheduleGPipe, Megatron).
// `torchgpipe` (Kim et al., "torchgpipe: On-the-fly Pipeline Parallelism for Training Giant
// Models", arXiv:2004.09910) is gpipe with a choice of the microbatches whose activations are
// recomputed in the backward: all, all but the last (whose backward follows its forward at once, so
// recomputing it saves nothing), or none.
#include "schedules/catalog.hpp"

namespace penstock {
namespace {

void generate_gpipe(const ScheduleShape& shape, OpLists& order, bool reverse) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    const std::uint32_t m = shape.per_batch(s);
    const auto stage = static_cast<std::uint16_t>(s);
    for (std::uint32_t k = 0; k < m; ++k) order.add_op({.microbatch = k, .stage = stage});
    for (std::uint32_t j = 0; j < m; ++j) {
      order.add_op(
          {.microbatch = reverse ? m - 1 - j : j, .stage = stage, .kind = OpKind::backward});
    }
    order.end_device();
  }
}

void generate_reversed(const ScheduleShape& shape, OpLists& order) {
  generate_gpipe(shape, order, true);
}

/// Marks the ops of microbatches that are not recomputed.
void generate_torchgpipe(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t before = order.size();
  generate_gpipe(shape, order, true);
  if (shape.checkpoint == Checkpoint::always) return;
  for (std::uint32_t g = before; g < order.size(); ++g) {
    const bool last = order[g].microbatch + 1 == shape.per_batch(order[g].stage);
    if (last || shape.checkpoint == Checkpoint::never) order[g].flags |= Op::stored;
  }
}

void generate_fifo(const ScheduleShape& shape, OpLists& order) {
  generate_gpipe(shape, order, false);
}

/// Where all microbatches of a batch are recomputed, or none is.
double alike_microbatches(const ScheduleShape& shape) {
  return shape.checkpoint == Checkpoint::except_last ? kNoClaim : fill_and_drain(shape);
}

double all_microbatches(const ScheduleShape& shape, std::uint32_t) {
  return shape.microbatches_per_update;
}

}  // namespace

Schedule gpipe() {
  return {.name = "gpipe",
          .paper = "GPipe, NeurIPS'19",
          .summary = "all forwards, then all backwards in reverse; flush",
          .bubble = "(p-1)/(m+p-1)",
          .stash = "m",
          .when = "The simplest schedule. 1F1B is as fast and holds p instead of m microbatches.",
          .generate = generate_reversed,
          .ideal_bubble = fill_and_drain,
          .peak = all_microbatches};
}

Schedule gpipe_fifo() {
  return {.name = "gpipe-fifo",
          .aliases = {"ScheduleGPipe"},
          .paper = "GPipe, NeurIPS'19",
          .summary = "all forwards, then all backwards in order; flush",
          .bubble = "(p-1)/(m+p-1)",
          .stash = "m",
          .when = "GPipe as PyTorch and Megatron order it; use it to compare with them.",
          .generate = generate_fifo,
          .ideal_bubble = fill_and_drain,
          .peak = all_microbatches};
}

Schedule torchgpipe() {
  return {.name = "torchgpipe",
          .paper = "torchgpipe, arXiv:2004.09910",
          .summary = "gpipe that recomputes all microbatches, all but the last, or none; flush",
          .bubble = "(p-1)/(m+p-1)",
          .stash = "m, of which 0, 1 or m with all activations",
          .when =
              "GPipe as torchgpipe runs it: checkpoint: except_last spares one recomputation per "
              "batch for the activations of one microbatch.",
          .generate = generate_torchgpipe,
          .ideal_bubble = alike_microbatches,
          .peak = all_microbatches,
          .checkpoints = true};
}

}  // namespace penstock
