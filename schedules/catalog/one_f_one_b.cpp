// SPDX-License-Identifier: Apache-2.0
// 1F1B with a flush: PipeDream-Flush (Narayanan et al., ICML'21), the same order as DAPPLE's P_A
// (Fan et al., PPoPP'21) and Megatron's default. Stage s runs K_s - 1 forwards ahead, then one
// forward and one backward in turn; at most K_s microbatches are stashed.
//   P_A: K_s = min(p - s, m)           P_B: K_s = min(2(p - s) - 1, m), for expensive transfers
// Eager 1F1B (Zhuang et al., "On Optimizing the Communication of Model Parallelism", MLSys'23,
// section 4) is P_B's order under the name and with the bound of another paper. With F and B on
// every stage and c for a transfer, a batch takes
//   1F1B    m(F+B) + (p-1)(F+B+2c) + 2c(m-1 - ceil((m-1)/p))
//   eager   m(F+B) + (p-1)(F+B+2c)        if 2c <= F+B
#include "schedules/catalog.hpp"

#include <algorithm>

namespace penstock {

void append_one_f_one_b(OpLists& order, std::uint32_t s, std::uint32_t warmup,
                        std::uint32_t count) {
  const auto stage = static_cast<std::uint16_t>(s);
  warmup = std::min(warmup, count);
  for (std::uint32_t k = 0; k < warmup; ++k) order.add_op({.microbatch = k, .stage = stage});
  for (std::uint32_t k = warmup; k < count; ++k) {
    order.add_op({.microbatch = k, .stage = stage});
    order.add_op({.microbatch = k - warmup, .stage = stage, .kind = OpKind::backward});
  }
  for (std::uint32_t k = count - warmup; k < count; ++k) {
    order.add_op({.microbatch = k, .stage = stage, .kind = OpKind::backward});
  }
}

void generate_one_f_one_b_without_flush(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, shape.warmup(s), shape.total(s));
    order.end_device();
  }
}

namespace {

void generate_1f1b(const ScheduleShape& shape, OpLists& order) {
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, shape.warmup(s), shape.per_batch(s));
    order.end_device();
  }
}

void generate_dapple_pb(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t m = shape.microbatches_per_update;
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    append_one_f_one_b(order, s, std::min(2 * (shape.depth - s) - 1, m) - 1, m);
    order.end_device();
  }
}

double distance_to_end_1f1b(const ScheduleShape& shape, std::uint32_t device) {
  if (!shape.replicas.alike()) return kNoClaim;
  return std::min(shape.depth - device, shape.microbatches_per_update);
}

double twice_the_distance(const ScheduleShape& shape, std::uint32_t device) {
  return std::min(2 * (shape.depth - device) - 1, shape.microbatches_per_update);
}

Refusal refuse_dapple_pb(const ScheduleShape& shape) { return refuse_uneven("dapple-pb", shape); }
Refusal refuse_eager(const ScheduleShape& shape) { return refuse_uneven("eager-1f1b", shape); }

}  // namespace

Schedule one_f_one_b() {
  return {.name = "1f1b",
          .aliases = {"pipedream-flush", "dapple", "dapple-pa", "Schedule1F1B"},
          .paper = "PipeDream-2BW, ICML'21; DAPPLE, PPoPP'21",
          .summary = "one forward, one backward in turn; flush",
          .bubble = "(p-1)/(m+p-1)",
          .stash = "min(p-s, m)",
          .when =
              "The default of every framework: little memory, and transfers that are seldom "
              "waited for when they are short.",
          .generate = generate_1f1b,
          .ideal_bubble = fill_and_drain,
          .peak = distance_to_end_1f1b};
}

Schedule dapple_pb() {
  return {.name = "dapple-pb",
          .paper = "DAPPLE, PPoPP'21",
          .summary = "1F1B with twice the warm-up, for expensive transfers; flush",
          .bubble = "(p-1)/(m+p-1)",
          .stash = "min(2(p-s)-1, m)",
          .when =
              "When a transfer takes a good part of a forward: the second half of the warm-up "
              "hides it, for twice the activations.",
          .generate = generate_dapple_pb,
          .ideal_bubble = fill_and_drain,
          .refuse_shape = refuse_dapple_pb,
          .peak = twice_the_distance};
}

Schedule eager_one_f_one_b() {
  return {.name = "eager-1f1b",
          .paper = "On Optimizing the Communication of Model Parallelism, MLSys'23",
          .summary = "1F1B with a warm-up of 2(p-1-s), which hides transfers up to (F+B)/2; flush",
          .bubble = "(p-1)/(m+p-1)",
          .stash = "min(2(p-s)-1, m)",
          .when =
              "When 1F1B waits for its transfers in every microbatch and twice the activations "
              "fit.",
          .generate = generate_dapple_pb,
          .ideal_bubble = fill_and_drain,
          .refuse_shape = refuse_eager,
          .peak = twice_the_distance};
}

}  // namespace penstock
