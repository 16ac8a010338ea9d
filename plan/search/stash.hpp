// SPDX-License-Identifier: Apache-2.0
// Microbatches that a device holds at once, by the order of its ops alone, which no engine changes.
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

/// [device]: its stages. Where one direction is mirrored (Chimera, DualPipe) a stage has two
/// devices.
std::vector<std::vector<Share>> shares_of(const PlanFamily& family);

/// [virtual stage]: the device that has it; of mirrored ones that of the first direction.
std::vector<std::uint32_t> positions_of(const PlanFamily& family);

/// Has device d of p stages d and 2p - 1 - d?
bool is_there_and_back(const PlanFamily& family);

/// Microbatches of every layer of a device that are held at one time until their I or B, and at
/// another until their W.
struct Held {
  double until_input = 0, until_weights = 0;

  auto operator<=>(const Held&) const = default;
};

/// Per device: k microbatches of every layer, at least, however the layers are spread over its
/// stages.
struct Stash {
  std::vector<double> until_input, until_weights;

  Held held_on(std::size_t device) const { return {until_input[device], until_weights[device]}; }
};

/// Microbatches that a device holds of each of its stages, where it holds most: at times at which
/// it holds more of some than at any other.
std::vector<std::vector<int>> most_held(std::span<const Op> ops, const std::vector<Share>& shares,
                                        bool until_weights);

/// The family with a batch that is long enough for what its devices hold of the whole.
PlanFamily with_fewer_microbatches(const PlanFamily& family);

/// Keeps what it computed.
class Stashes {
 public:
  const Stash& stash_of(const PlanFamily& family);

 private:
  std::map<std::vector<std::int64_t>, Stash> known_;
};

}  // namespace penstock
