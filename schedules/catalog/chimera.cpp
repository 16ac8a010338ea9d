// SPDX-License-Identifier: Apache-2.0
// Chimera (Li & Hoefler, SC'21, section 3.1): two opposite 1F1B pipelines on the same D devices
// (D even), each device holding stage d of one and stage D-1-d of the other. A unit is D
// microbatches, half of them each way, one stage a slot: the two merge without conflict, and the
// forwards of a unit come as early as the order allows. More microbatches are more units, one
// directly after the other ("direct concatenation"): the forwards of the next fill the gaps at the
// end of the one before. What is left over (m mod D) is a unit that is not full, and m < D is one,
// too; microbatches are then divided over the two routes as evenly as possible, the odd one flowing
// down. Down flow 0 ... ceil(m/2)-1, up the others; units take each route's in order.
//
// Seen from one device the two ways are one wave: what comes early (stage s = min(d, D-1-d)) enters
// it, what comes late (stage D-1-s) is its way back; see two_lanes.hpp.
// Bubble for m = D K: (D-2)(K max(F,B) - (K-1) min(F,B)), so (D-2)/(2m+D-2) with F = B.
// Activations: D/2 + s + 1, between D/2+1 at the ends and D in the middle; two copies of weights.
#include "schedules/catalog.hpp"
#include "schedules/catalog/two_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// The microbatches of one route.
struct Direction {
  std::uint32_t first = 0, count = 0;
};

/// The route on which the device comes early, and the other.
std::pair<Direction, Direction> directions(const ScheduleShape& shape, std::uint32_t device) {
  const std::uint32_t m = shape.microbatches_per_update, down = (m + 1) / 2;
  const std::pair<Direction, Direction> of_first_half{{0, down}, {down, m - down}};
  if (device < shape.depth / 2) return of_first_half;
  return {of_first_half.second, of_first_half.first};
}

std::uint32_t steps_from_end(const ScheduleShape& shape, std::uint32_t device) {
  return std::min(device, shape.depth - 1 - device);
}

void generate_chimera(const ScheduleShape& shape, OpLists& order) {
  const std::uint32_t half = shape.depth / 2;
  const std::uint32_t units = (shape.microbatches_per_update + shape.depth - 1) / shape.depth;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    const auto [early, late] = directions(shape, d);
    const auto add = [&, early = early, late = late](OpKind kind, std::uint32_t stage,
                                                     std::uint32_t k) {
      const Direction& direction = stage < half ? early : late;
      if (k < direction.count) order.add_op(make_op(kind, stage, direction.first + k));
    };
    for_each_slot(half, 1, steps_from_end(shape, d), units, add);
    order.end_device();
  }
}

double bubble_chimera(const ScheduleShape& shape) {
  return bubble_of_units(shape, shape.depth - 2.0, 1, shape.depth);
}

double peak_chimera(const ScheduleShape& shape, std::uint32_t device) {
  const std::uint32_t half = shape.depth / 2;
  const auto [early, late] = directions(shape, device);
  return std::min(early.count, half) +
         std::min({late.count, half, steps_from_end(shape, device) + 1});
}

Refusal refuse_chimera(const ScheduleShape& shape) {
  return refuse_bidirectional("chimera", shape);
}

}  // namespace

Schedule chimera() {
  return {.name = "chimera",
          .paper = "Li & Hoefler, SC'21, section 3.1",
          .summary = "two opposite 1F1B pipelines merged, half of the microbatches each way; flush",
          .bubble = "idle (p-2)(K max(F,B) - (K-1) min(F,B)), m = K p",
          .stash = "p/2+1 at the ends ... p in the middle",
          .when =
              "When m is about p, so that 1F1B's bubble is large, and two copies of the weights "
              "fit; take m a multiple of p.",
          .generate = generate_chimera,
          .ideal_bubble = bubble_chimera,
          .refuse_shape = refuse_chimera,
          .peak = peak_chimera,
          .layout = Layout::mirrored,
          .chunks = {.least = 1, .most = 2, .usual = 1}};
}

}  // namespace penstock
