// SPDX-License-Identifier: Apache-2.0
#include "plan/search/overfull.hpp"

#include "plan/search/stash.hpp"

#include <algorithm>

namespace penstock {

bool recompute_more_on(Candidate& candidate, const Overfull& overfull,
                       const RecomputeSteps& steps) {
  const auto shares = shares_of(candidate.family);
  bool any = false;
  for (const auto& [device, held] : overfull) {
    const auto takes_more = [&](const Share& share) {
      return steps.take_more(candidate.recompute, candidate.layers, share.stage);
    };
    any |= std::ranges::any_of(shares[static_cast<std::size_t>(device)], takes_more);
  }
  return any;
}

bool move_layers_off(Candidate& candidate, const Overfull& overfull) {
  const auto shares = shares_of(candidate.family);
  std::vector<bool> takes(candidate.layers.size(), true);
  int given = 0;
  for (const auto& [device, held] : overfull)
    for (const Share& share : shares[static_cast<std::size_t>(device)]) {
      int& layers = candidate.layers[share.stage];
      const int kept = std::max(
          1, std::min(layers - 1, static_cast<int>(layers * held.capacity_bytes / held.bytes)));
      given += layers - kept;
      layers = kept;
      takes[share.stage] = false;
    }
  if (std::ranges::none_of(takes, [](bool t) { return t; })) return false;
  for (int i = 0; i < given; ++i) {
    std::size_t shortest = takes.size();
    for (std::size_t s = 0; s < takes.size(); ++s)
      if (takes[s] &&
          (shortest == takes.size() || candidate.layers[s] < candidate.layers[shortest]))
        shortest = s;
    ++candidate.layers[shortest];
  }
  return given > 0;
}

}  // namespace penstock
