#include "schedules/search/pair_slots.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock {
namespace {

using Paces = std::array<std::uint32_t, 4>;  // slots from one device to the next, on each leg
using Turns = std::array<std::uint32_t, 3>;  // slots from one leg to the next, on one device

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

Turns any_turns(std::mt19937_64& random) {
  Turns turns{};
  for (std::uint32_t& turn : turns) turn = static_cast<std::uint32_t>(1 + random() % 4);
  return turns;
}

/// Down and up the V, and down and up again. From device `bend` on the paces are `far`.
PairSlots slots_of(std::uint32_t p, const Paces& near, const Paces& far, std::uint32_t bend,
                   const Turns& turns) {
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

std::vector<PairSlots> regular_blocks(std::uint32_t p, double room) {
  constexpr std::uint32_t kPaces = 5, kTurns = 4;
  struct Candidate {
    double peak, last;
    PairSlots slots;
  };
  std::vector<Candidate> candidates;
  for (std::uint32_t i = 0; i < kPaces * kPaces * kTurns * kTurns * kTurns; ++i) {
    std::uint32_t digits = i;
    const auto digit = [&](std::uint32_t base) {
      const std::uint32_t value = 1 + digits % base;
      digits /= base;
      return value;
    };
    const std::uint32_t down = digit(kPaces), up = digit(kPaces);
    const Paces paces{down, up, down, up};
    const std::uint32_t turn = digit(kTurns), top = digit(kTurns), back = digit(kTurns);
    PairSlots slots = slots_of(p, paces, paces, p, {turn, top, back});
    if (!is_block(slots)) continue;
    const double peak = expected_peak(slots), last = slots[0][3];
    if (peak <= room) candidates.push_back({peak, last, std::move(slots)});
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.peak != b.peak ? a.peak > b.peak : a.last < b.last;
  });
  std::vector<PairSlots> blocks;
  for (Candidate& c : candidates) blocks.push_back(std::move(c.slots));
  return blocks;
}

Block block_of(const PairSlots& slots) {
  const std::size_t p = slots.size();
  Block block;
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

double expected_peak(const PairSlots& slots) {
  double most = 0;
  for (const auto& [f_lower, f_upper, i_upper, i_lower] : slots) {
    const auto held = [&](double now) {
      const auto passed = [&](double slot) { return std::floor((now - slot) / kBlockInterval); };
      return passed(f_lower) - passed(i_lower + 2) + passed(f_upper) - passed(i_upper + 2);
    };
    most = std::max({most, held(f_lower), held(f_upper)});
  }
  return most;
}

}  // namespace penstock
