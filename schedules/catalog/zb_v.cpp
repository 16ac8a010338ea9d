// SPDX-License-Identifier: Apache-2.0
// ZB-V (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR'24, section 6), the handcrafted order:
// two chunks per device, there and back, so the last stage lies on device 0 with the first and the
// first backward starts as soon as the first forward is through. Device i, with 0 and 1 its chunks:
//   warm-up      F0 x 2(p-i)-1, (F1 F0) x i, (F1 I1 W1) x p-i
//   steady       F0 I0 W0 F1 I1 W1 until all have entered
//   cool-down    (I0 I1) x i, (I0 W0) x p-i, the Ws that are left: chunk 1, then chunk 0
// Fewer than 2p-1 microbatches: the order of 2p-1 without those that are not there.
#include "schedules/catalog.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Writes one device's order, dropping microbatches that are not there.
class Writer {
 public:
  Writer(const ScheduleShape& shape, std::uint32_t device, OpLists& order)
      : order_(order),
        stages_{device, 2 * shape.depth - 1 - device},
        microbatches_(shape.microbatches_per_update) {}

  void forward(int chunk) { add_pass(OpKind::forward, chunk); }
  void input(int chunk) { add_pass(OpKind::backward_input, chunk); }
  void weight(int chunk) { add_pass(OpKind::backward_weight, chunk); }
  void backward(int chunk) {
    input(chunk);
    weight(chunk);
  }
  std::uint32_t forwards(int chunk) const { return counts_[chunk][0]; }
  /// I that have no W yet.
  bool owes_weights(int chunk) const {
    constexpr auto kInput = static_cast<std::size_t>(OpKind::backward_input);
    constexpr auto kWeight = static_cast<std::size_t>(OpKind::backward_weight);
    return counts_[chunk][kWeight] < counts_[chunk][kInput];
  }

 private:
  void add_pass(OpKind kind, int chunk) {
    const std::uint32_t k = counts_[chunk][static_cast<std::size_t>(kind)]++;
    if (k < microbatches_) order_.add_op(make_op(kind, stages_[chunk], k));
  }

  OpLists& order_;
  std::uint32_t stages_[2];
  std::uint32_t microbatches_;
  std::uint32_t counts_[2][4] = {};  // by chunk and kind
};

void generate_device(Writer& write, std::uint32_t p, std::uint32_t i, std::uint32_t m) {
  for (std::uint32_t k = 0; k < 2 * (p - i) - 1; ++k) write.forward(0);
  for (std::uint32_t k = 0; k < i; ++k) {
    write.forward(1);
    write.forward(0);
  }
  for (std::uint32_t k = 0; k < p - i; ++k) {
    write.forward(1);
    write.backward(1);
  }
  while (write.forwards(1) < m) {
    if (write.forwards(0) < m) write.forward(0);
    write.backward(0);
    write.forward(1);
    write.backward(1);
  }
  for (std::uint32_t k = 0; k < i; ++k) {
    write.input(0);
    write.input(1);
  }
  for (std::uint32_t k = 0; k < p - i; ++k) write.backward(0);
  for (const int chunk : {1, 0})
    while (write.owes_weights(chunk)) write.weight(chunk);
}

void generate_zb_v_order(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t p = shape.depth;
  for (std::uint32_t i = 0; i < p; ++i) {
    Writer write(shape, i, order);
    generate_device(write, p, i, std::max(2 * p - 1, shape.microbatches_per_update));
    order.end_device();
  }
}

double idle(const ScheduleShape& shape) {
  const StageTimes t = shape.time(0);
  const bool equal = t.forward == t.backward_input && t.forward == t.backward_weight;
  return equal && shape.microbatches_per_update >= 2 * shape.depth - 1 ? 0 : kNoClaim;
}

double peak_zb_v(const ScheduleShape& shape, std::uint32_t device) {
  const std::uint32_t m = shape.microbatches_per_update;
  return std::min({2 * shape.depth, m + 1 + device, 2 * m});
}

}  // namespace

Schedule zb_v() {
  return {.name = "zb-v",
          .aliases = {"ScheduleZBVZeroBubble", "ZBVZeroBubble"},
          .paper = "Zero Bubble Pipeline Parallelism, ICLR'24",
          .summary = "two chunks there and back, no bubble at equal times; flush",
          .bubble = "0 of a device's time (F = I = W, m >= 2p-1)",
          .stash = "min(2p, m+1+d, 2m) of chunks on device d",
          .when =
              "No bubble with the activations of 1F1B, when F, I and W take about as long. Where "
              "they do not, or stages differ, a search (zb-v-search, v-search) is better.",
          .generate = generate_zb_v_order,
          .ideal_bubble = idle,
          .peak = peak_zb_v,
          .of_stage_time = true,
          .layout = Layout::snake,
          .chunks = {2, 2, 2, 1},
          .splits_backward = true};
}

}  // namespace penstock
