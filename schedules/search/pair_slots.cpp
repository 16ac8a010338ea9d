// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/pair_slots.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock {
namespace {

using Paces = std::array<std::uint32_t, 4>;      // slots from one device to the next, on each leg
using BendTurns = std::array<std::uint32_t, 3>;  // slots from one leg to the next, on one device

/// Paces with a sum near `sum`; half of them the same forward and backward.
Paces any_paces(std::mt19937_64& random, double sum) {
  Paces paces{1, 1, 1, 1};
  const bool alike = random() % 2 == 0;
  for (auto left = static_cast<int>(std::lround(sum)) - 4; left > 0; left -= alike ? 2 : 1) {
    const std::size_t leg = random() % 4;
    ++paces[leg];
    if (alike) ++paces[(leg + 2) % 4];
  }
  return paces;
}

BendTurns any_turns(std::mt19937_64& random) {
  BendTurns turns{};
  for (std::uint32_t& turn : turns) turn = static_cast<std::uint32_t>(1 + random() % 4);
  return turns;
}

/// Down and up the V, and down and up again. From device `bend` on the paces are `far`.
PairSlots slots_of(std::uint32_t p, const Paces& near, const Paces& far, std::uint32_t bend,
                   const BendTurns& turns) {
  PairSlots slots(p);
  double slot = 0;
  for (std::size_t leg = 0; leg < 4; ++leg) {
    const bool down = leg % 2 == 0;
    for (std::uint32_t i = 0; i < p; ++i) {
      const std::uint32_t d = down ? i : p - 1 - i;
      slots[d][leg] = slot;
      if (i + 1 < p) slot += (down ? d + 1 : d) < bend ? near[leg] : far[leg];
    }
    if (leg < 3) slot += turns[leg];
  }
  return slots;
}

}  // namespace

bool is_block(const PairSlots& slots) {
  return std::ranges::all_of(slots, [](const auto& device) {
    std::uint32_t taken = 0;
    for (const double slot : device)
      taken |= 1U << static_cast<std::uint32_t>(slot) % kBlockInterval;
    return std::popcount(taken) == 4;
  });
}

/// A block holds a sixth of the sum of its paces per device.
PairSlots any_slots(std::mt19937_64& random, std::uint32_t p, double room) {
  constexpr int kTries = 24;
  PairSlots slots;
  for (int i = 0; i < kTries; ++i) {
    const double sum = kBlockInterval * room + 1 - static_cast<double>(random() % 4);
    const double bent = random() % 2 == 0 ? 0 : static_cast<double>(random() % 4);
    const auto bend = static_cast<std::uint32_t>(random() % (p + 1));
    const Paces near = any_paces(random, sum - bent), far = any_paces(random, sum + bent);
    slots = slots_of(p, near, bent > 0 ? far : near, bend, any_turns(random));
    if (is_block(slots)) break;
  }
  return slots;
}

std::vector<PairSlots> bent_blocks(std::uint32_t p, double room) {
  struct Family {
    std::uint32_t near, far;  // paces down the V; up it, one slot per device
    BendTurns turns;
  };
  // Of the 1944 families with paces up to 5 and turns up to 6, chosen one after the other for the
  // limits at which they are the best of all, p = 3 ... 14: the first three for even ones.
  static constexpr std::array<Family, 6> kFamilies = {{{2, 5, {2, 4, 1}},
                                                       {1, 3, {1, 3, 1}},
                                                       {1, 3, {1, 1, 1}},
                                                       {2, 5, {2, 2, 1}},
                                                       {1, 3, {3, 1, 1}},
                                                       {1, 3, {1, 1, 3}}}};
  std::vector<PairSlots> blocks;
  for (const Family& family : kFamilies) {
    const Paces near{family.near, 1, family.near, 1}, far{family.far, 1, family.far, 1};
    double most = 0;
    PairSlots fullest;
    for (std::uint32_t bend = 1; bend <= p; ++bend) {
      PairSlots slots = slots_of(p, near, far, bend, family.turns);
      if (!is_block(slots)) continue;
      const double peak = repeated_peak(slots);
      if (peak > room || peak <= most) continue;
      most = peak;
      fullest = std::move(slots);
    }
    if (most > 0) blocks.push_back(std::move(fullest));
  }
  return blocks;
}

BuildingBlock block_of(const PairSlots& slots) {
  const std::size_t p = slots.size();
  BuildingBlock block;
  block.forward.resize(2 * p);
  block.backward_input.resize(2 * p);
  for (std::size_t d = 0; d < p; ++d) {
    const auto slot = [&](std::size_t leg) { return static_cast<std::uint32_t>(slots[d][leg]); };
    block.forward[d] = slot(0);
    block.forward[2 * p - 1 - d] = slot(1);
    block.backward_input[2 * p - 1 - d] = slot(2);
    block.backward_input[d] = slot(3);
  }
  return block;
}

namespace {

/// Slots of the W's of the upper and the lower chunk: of two that want the same, the one that has
/// waited longer takes it.
std::array<double, 2> weight_slots(const std::array<double, 4>& device) {
  const auto [f_lower, f_upper, i_upper, i_lower] = device;
  const auto next_free = [&](double slot) {
    const auto meets = [&](double taken) { return std::fmod(slot - taken, kBlockInterval) == 0; };
    do ++slot;
    while (std::ranges::any_of(device, meets));
    return slot;
  };
  double upper = next_free(i_upper), lower = next_free(i_lower);
  if (std::fmod(upper - lower, kBlockInterval) == 0) {
    double& later = upper - i_upper < lower - i_lower ? upper : lower;
    later = next_free(later);
  }
  return {upper, lower};
}

}  // namespace

double repeated_peak(const PairSlots& slots) {
  double most = 0;
  for (const auto& device : slots) {
    const auto [f_lower, f_upper, i_upper, i_lower] = device;
    const auto [w_upper, w_lower] = weight_slots(device);
    const auto held = [f_lower = f_lower, f_upper = f_upper, w_upper = w_upper,
                       w_lower = w_lower](double now) {
      const auto passed = [&](double slot) { return std::floor((now - slot) / kBlockInterval); };
      return passed(f_lower) - passed(w_lower) + passed(f_upper) - passed(w_upper);
    };
    most = std::max({most, held(f_lower), held(f_upper)});
  }
  return most;
}

}  // namespace penstock
