// SPDX-License-Identifier: Apache-2.0
// The order that Chimera and Hanayo share: a unit of n microbatches enters a wave of n devices two
// slots apart, and each goes on by one stage a slot, forward and then back.
//
// The wave runs there and back w times, so it has S = 2nw stages and a microbatch takes 2S slots.
// At slot t after its entry it is at position t: F of stage t below S, B of stage 2S-1-t from S on.
// Device d meets the positions that are d or 2n-1-d mod 2n. One microbatch entering two slots after
// the other, the first kind comes in all slots of d's parity (lane A), the second in all of the
// other parity (lane B), n in a row of each position: no two ops ever want one slot, and when the
// last microbatch of a unit has left its first slots are those of the next unit.
#pragma once

#include "schedules/generator.hpp"

namespace penstock {

/// Calls visit(kind, stage, k) in the order of device d's slots, with k the microbatch counted over
/// all of `units` units. Slots beyond the last microbatch are the caller's to leave empty: a unit
/// that is not full takes as long to visit as a full one.
template <class Visit>
void for_each_slot(std::uint32_t n, std::uint32_t waves, std::uint32_t d, std::uint32_t units,
                   const Visit& visit) {
  const std::uint32_t stages = 2 * n * waves;
  const auto lane = [&](std::uint32_t turn, std::uint32_t first_position) {
    const std::uint32_t unit = turn / stages;
    const std::uint32_t position = turn % stages / n * 2 * n + first_position;
    const bool forward = position < stages;
    visit(forward ? OpKind::forward : OpKind::backward,
          forward ? position : 2 * stages - 1 - position, unit * n + turn % n);
  };
  // Lane A starts at slot d, lane B at 2n-1-d: n-d turns later, just before lane A's slot.
  const std::uint32_t turns = units * stages, later = n - d;
  for (std::uint32_t turn = 0; turn < turns + later; ++turn) {
    if (turn >= later) lane(turn - later, 2 * n - 1 - d);
    if (turn < turns) lane(turn, d);
  }
}

/// The bubble of full units, as a share of the makespan. With F as long as B all slots but `gaps`
/// are used; else the shorter of the two leaves its difference in all units but the last.
double bubble_of_units(const ScheduleShape& shape, double gaps, double stages_per_device,
                       std::uint32_t unit);

}  // namespace penstock
