// SPDX-License-Identifier: Apache-2.0
// Computes how many microbatches a device holds at once from the order of its ops alone, which no
// engine changes.
#pragma once

#include "plan/search/candidate.hpp"

#include <map>
#include <span>
#include <vector>

namespace penstock {

/// A stage that a device holds, and the microbatches of it that it computes.
struct Share {
  std::uint32_t stage;
  double microbatches;
};

/// Returns the stages of each device. Where one direction is mirrored (Chimera, DualPipe) a stage
/// has two devices.
std::vector<std::vector<Share>> shares_of(const PlanFamily& family);

/// Returns the device of each virtual stage; where one direction is mirrored, that of the first
/// direction.
std::vector<std::uint32_t> positions_of(const PlanFamily& family);

/// Returns whether device d of p has stages d and 2p - 1 - d.
bool is_there_and_back(const PlanFamily& family);

/// How many microbatches of every layer a device holds at one time until their I or B, and at
/// another time until their W.
struct Held {
  double until_input = 0, until_weights = 0;

  auto operator<=>(const Held&) const = default;
};

/// For each device a lower bound on the microbatches of every layer that it holds, however the
/// layers are spread over its stages.
struct Stash {
  std::vector<double> until_input, until_weights;

  Held held_on(std::size_t device) const { return {until_input[device], until_weights[device]}; }
};

/// Returns how many microbatches of each of its stages a device holds, at every time at which it
/// holds more of one stage than at any other time.
std::vector<std::vector<int>> most_held(std::span<const Op> ops, const std::vector<Share>& shares,
                                        bool until_weights);

/// Returns the family with a shorter batch, in which its devices hold as much as with the whole
/// one.
PlanFamily with_fewer_microbatches(const PlanFamily& family);

/// Computes stashes, and keeps what it computed.
class Stashes {
 public:
  const Stash& stash_of(const PlanFamily& family);

 private:
  std::map<std::vector<std::int64_t>, Stash> known_;
};

}  // namespace penstock
