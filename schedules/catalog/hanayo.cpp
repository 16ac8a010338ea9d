// SPDX-License-Identifier: Apache-2.0
// Hanayo (Liu et al., SC'23): W waves. A pipeline of S = 2PW stages runs there and back over P
// devices W times, so each device has 2W chunks and one copy of the weights. It is Chimera folded:
// the second half of a wave stands where Chimera has the opposite pipeline, so the unit is P
// microbatches, entering two slots apart and going on by one stage a slot; see two_lanes.hpp.
//
// Where the paper is silent this is assumed: more than P microbatches are further units, directly
// one after the other, so that microbatch k enters when k-P has left and no device holds more than
// 1F1B's first one (P microbatches of all its chunks); m mod P left over are a unit that is not
// full. The order is that of slots with F as long as B, whatever the times are.
//
// Bubble for m = P K, F and B of one chunk: 2(P-1)(K max(F,B) - (K-1) min(F,B)). With m = P that is
// (P-1)/(2PW+P-1) for F = B and (2P-2)/(3PW+2P-2) for B = 2F. The paper's estimate for the latter,
// (2P-2)/(3PW+P-1), is larger; no order has exactly that share (P = 2, W = 1: 4.8 slots of F).
#include "schedules/catalog.hpp"
#include "schedules/catalog/two_lanes.hpp"

#include <algorithm>

namespace penstock {
namespace {

void generate_hanayo(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t p = shape.depth, m = shape.microbatches_per_update;
  for (std::uint32_t d = 0; d < p; ++d) {
    for_each_slot(p, shape.chunks / 2, d, (m + p - 1) / p,
                  [&](OpKind kind, std::uint32_t stage, std::uint32_t k) {
                    if (k < m) order.add_op(make_op(kind, stage, k));
                  });
    order.end_device();
  }
}

double bubble_hanayo(const ScheduleShape& shape) {
  return bubble_of_units(shape, 2 * (shape.depth - 1.0), shape.chunks, shape.depth);
}

double peak_hanayo(const ScheduleShape& shape, std::uint32_t device) {
  const std::uint32_t in_unit = std::min(shape.depth, shape.microbatches_per_update);
  return (shape.chunks - 1.0) * in_unit + std::min(in_unit, device + 1);
}

Refusal refuse_hanayo(const ScheduleShape& shape) { return refuse_uneven("hanayo", shape); }

}  // namespace

Schedule hanayo() {
  return {.name = "hanayo",
          .paper = "Liu et al., SC'23",
          .summary = "W waves: there and back over the devices W times, v = 2W chunks; flush",
          .bubble = "idle 2(p-1)(K max(F,B) - (K-1) min(F,B)), m = K p",
          .stash = "(v-1)p + s+1",
          .when =
              "When m is about p and one copy of the weights must do: more waves, smaller bubble, "
              "more messages. For m of many p, 1F1B-V or interleaved 1F1B idle less.",
          .generate = generate_hanayo,
          .ideal_bubble = bubble_hanayo,
          .refuse_shape = refuse_hanayo,
          .peak = peak_hanayo,
          .layout = Layout::snake,
          .chunks = {.least = 2, .most = kAnyNumber, .usual = 2, .step = 2}};
}

}  // namespace penstock
