// SPDX-License-Identifier: Apache-2.0
// V-shaped schedules of building blocks (Qi et al., "Pipeline Parallelism with Controllable
// Memory", NeurIPS'24): two chunks per device, there and back, so that the stage which holds a
// microbatch longest shares its device with the one that holds it shortest. Slots between
// neighbours on the four legs of a microbatch's way (F there, F back, I there, I back):
//             legs        turns between them          peak, of 2p of 1F1B
//   V-Min     1 1 1 1     1, 1 (3 if 3 | p), 1        2 floor((p+4)/3)      ~ 1/3
//   V-Half    2 1 2 1     1, 1 (4 if 2 | p), 2        2 floor((p+2)/2)      ~ 1/2
//   V-ZB      4 2 4 2     1, 1, 1                     2p
//   1F1B-V    1 1, B of two slots, three in a row     2 floor((2p+3)/3)     ~ 2/3
// A device that holds k activations is idle for 6p - 1 - 3k slots or more, which
// V-Half and V-ZB reach with enough microbatches, and V-Min unless p mod 3 is 2 (four more).
#include "schedules/blocks.hpp"
#include "schedules/catalog.hpp"
#include "schedules/catalog/v_blocks.hpp"

#include <algorithm>

namespace penstock {

BuildingBlock v_min_block(std::uint32_t p) {
  return v_block(p, {.turns = {1, p % 3 == 0 ? 3U : 1U, 1}});
}

BuildingBlock v_half_block(std::uint32_t p) {
  return v_block(p, {.legs = {2, 1, 2, 1}, .turns = {1, p % 2 == 0 ? 4U : 1U, 2}});
}

BuildingBlock v_zb_block(std::uint32_t p) { return v_block(p, {.legs = {4, 2, 4, 2}}); }

BuildingBlock one_f_one_b_v_block(std::uint32_t p) {
  BuildingBlock block;
  for (std::uint32_t s = 0; s < 2 * p; ++s) block.forward.push_back(s);
  block.backward.resize(block.forward.size());
  // Bs go in threes, six slots, then leave three slots to the Fs of other microbatches.
  std::uint32_t slot = 2 * p + (p % 3 == 0 ? 3 : 0);
  std::uint32_t in_a_row = (p % 3 == 1) ? 0 : p % 3 == 2 ? 2 : 1;
  for (std::uint32_t s = 2 * p; s-- > 0; slot += 2) {
    block.backward[s] = slot;
    if (++in_a_row % 3 == 0) slot += 3;
  }
  return block;
}

namespace {

template <BuildingBlock (*kBlock)(std::uint32_t), Reorder kReorder>
void generate_repeated(const ScheduleShape& shape, OpLists& order) {
  generate_from_block(kBlock(shape.depth), shape, order, kReorder);
}

std::uint32_t v_min_peak(std::uint32_t p) { return 2 * ((p + 4) / 3); }
std::uint32_t v_half_peak(std::uint32_t p) { return 2 * ((p + 2) / 2); }
std::uint32_t v_zb_peak(std::uint32_t p) { return 2 * p; }
std::uint32_t one_f_one_b_v_peak(std::uint32_t p) { return 2 * ((2 * p + 3) / 3); }

/// Every device, once there are as many microbatches.
template <std::uint32_t (*kPeak)(std::uint32_t)>
double peak_v(const ScheduleShape& shape, std::uint32_t) {
  const std::uint32_t full = kPeak(shape.depth);
  return shape.microbatches_per_update >= full ? full : kNoClaim;
}

/// The first two devices hold less where the block's peak is rounded up.
double peak_of_v_min(const ScheduleShape& shape, std::uint32_t device) {
  const bool rounded_up = shape.depth % 3 == 2 && device < 2;
  return rounded_up ? kNoClaim : peak_v<v_min_peak>(shape, device);
}

/// Idle slots of the longest device, as a share of its time, from `least` microbatches on. Slots
/// are for passes that take equally long.
double share(const ScheduleShape& shape, double idle, std::uint32_t least) {
  const StageTimes t = shape.time(0);
  const std::uint32_t m = shape.microbatches_per_update;
  if (t.forward != t.backward_input || t.forward != t.backward_weight || m < least) return kNoClaim;
  return idle / (idle + 6.0 * m);
}

/// 6p - 1 - 3k, and four more where the block needs them.
double v_min_idle(const ScheduleShape& shape) {
  const std::uint32_t p = shape.depth;
  const double idle = 6.0 * p - 1 - 3 * v_min_peak(p) + (p % 3 == 2 ? 4 : 0);
  return share(shape, std::max(idle, 0.0), p + 1);
}

double v_half_idle(const ScheduleShape& shape) {
  const std::uint32_t p = shape.depth;
  const double idle = p == 2 ? 1 : 6.0 * p - 1 - 3 * v_half_peak(p);
  return share(shape, std::max(idle, 0.0), p + 2);
}

double v_zb_idle(const ScheduleShape& shape) { return share(shape, 0, 2 * shape.depth); }

double one_f_one_b_v_idle(const ScheduleShape& shape) {
  const std::uint32_t p = shape.depth;
  if (p % 3 == 0 || p == 2) return kNoClaim;
  return share(shape, 5.0 * p - (p % 3 == 1 ? 5 : 7), p);
}

constexpr const char* kPaper = "Pipeline Parallelism with Controllable Memory, NeurIPS'24";

}  // namespace

Schedule v_min() {
  return {.name = "v-min",
          .paper = kPaper,
          .summary =
              "building block 1-1-1-1 on two chunks there and back, a third of 1F1B's "
              "activations; flush",
          .bubble = "6p-1-3k slots of a device's time, k = 2 floor((p+4)/3), 4 more if p%3 = 2",
          .stash = "2 floor((p+4)/3) of chunks",
          .when =
              "When activations decide what fits. Where F, I and W take unlike times, every "
              "microbatch waits: compare v-half and v-search at the memory you have.",
          .generate = generate_repeated<v_min_block, Reorder::both_ends>,
          .ideal_bubble = v_min_idle,
          .peak = peak_of_v_min,
          .of_stage_time = true,
          .layout = Layout::snake,
          .chunks = {2, 2, 2, 1},
          .splits_backward = true,
          .block = v_min_block};
}

Schedule v_half() {
  return {.name = "v-half",
          .paper = kPaper,
          .summary =
              "building block 2-1-2-1 on two chunks there and back, half of 1F1B's "
              "activations; flush",
          .bubble = "6p-1-3k slots of a device's time, k = 2 floor((p+2)/2)",
          .stash = "2 floor((p+2)/2) of chunks",
          .when = "Half the activations of 1F1B and half its bubble, for twice its messages.",
          .generate = generate_repeated<v_half_block, Reorder::both_ends>,
          .ideal_bubble = v_half_idle,
          .peak = peak_v<v_half_peak>,
          .of_stage_time = true,
          .layout = Layout::snake,
          .chunks = {2, 2, 2, 1},
          .splits_backward = true,
          .block = v_half_block};
}

Schedule v_zb() {
  return {.name = "v-zb",
          .paper = kPaper,
          .summary =
              "building block 4-2-4-2 on two chunks there and back, no bubble at equal "
              "times; flush",
          .bubble = "0 of a device's time (F = I = W, m >= 2p)",
          .stash = "2p of chunks",
          .when =
              "No bubble with the activations of 1F1B, at equal times. zb-v is as short or a "
              "little shorter; this is the block to start from for one of your own.",
          .generate = generate_repeated<v_zb_block, Reorder::both_ends>,
          .ideal_bubble = v_zb_idle,
          .peak = peak_v<v_zb_peak>,
          .of_stage_time = true,
          .layout = Layout::snake,
          .chunks = {2, 2, 2, 1},
          .splits_backward = true,
          .block = v_zb_block};
}

Schedule one_f_one_b_v() {
  return {.name = "1f1b-v",
          .paper = kPaper,
          .summary = "1F1B on two chunks there and back, two thirds of its activations; flush",
          .bubble = "5p-5 (p%3 = 1) or 5p-7 (p%3 = 2) slots of a device's time",
          .stash = "2 floor((2p+3)/3) of chunks",
          .when = "Less memory than 1F1B where the backward cannot be split.",
          .generate = generate_repeated<one_f_one_b_v_block, Reorder::everywhere>,
          .ideal_bubble = one_f_one_b_v_idle,
          .peak = peak_v<one_f_one_b_v_peak>,
          .of_stage_time = true,
          .layout = Layout::snake,
          .chunks = {2, 2, 2, 1},
          .block = one_f_one_b_v_block};
}

}  // namespace penstock
