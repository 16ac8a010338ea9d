// SPDX-License-Identifier: Apache-2.0
// Building blocks of a V at random (blocks.hpp has what a block is): slots of one microbatch that
// repeat every six, in which no two of the four F and I of a device meet.
#pragma once

#include "schedules/blocks.hpp"

#include <array>
#include <random>

namespace penstock {

/// Slots per microbatch of a device with two chunks and a split backward.
inline constexpr std::uint32_t kBlockInterval = 6;

/// By device: slots of F lower, F upper, I upper, I lower of the first microbatch.
using PairSlots = std::vector<std::array<double, 4>>;

/// Slots of p devices that hold about `room` activations each per device of the pipeline. They are
/// those of a block, unless none was found in a few tries.
PairSlots any_slots(std::mt19937_64& random, std::uint32_t p, double room);
bool is_block(const PairSlots& slots);
BuildingBlock block_of(const PairSlots& slots);

/// Blocks of p devices whose F of the lower chunk and I of the upper one, on their way down the V,
/// change pace on one device, and of which a device holds at most `room` activations: of each known
/// family the one that holds most. With F, I and W of one length and an even `room`, one of them
/// reaches the least idle time once its ends are reordered, as far as `room` is no less than
/// V-Min's.
std::vector<PairSlots> bent_blocks(std::uint32_t p, double room);

/// Activations that a device holds at most when a block repeats, with W's that take the next free
/// slot, first come, first served.
double repeated_peak(const PairSlots& slots);

}  // namespace penstock
