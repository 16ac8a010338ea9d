// SPDX-License-Identifier: Apache-2.0
// Memory of a device over time, by owner, from a Timeline and the stages' costs.
//
// Who holds what from when until when: program/holdings.hpp.
#pragma once

#include "program/dependencies.hpp"
#include "program/holdings.hpp"
#include "program/timeline.hpp"

#include <array>
#include <functional>

namespace penstock {

struct MemoryUse {
  std::array<std::int64_t, kOwners> bytes{};
  std::int64_t& operator[](Owner owner) { return bytes[static_cast<std::size_t>(owner)]; }
  std::int64_t operator[](Owner owner) const { return bytes[static_cast<std::size_t>(owner)]; }
  std::int64_t total() const;
};

struct MemoryPeak {
  MemoryUse use;  ///< at the peak
  double at_s = 0;
  std::uint32_t op = kNoOp;  ///< the op whose allocation made it; kNoOp: what is always there
};

/// What the memory of a device depends on.
struct MemoryInput {
  const OpLists& ops;
  const DependencyTable& table;
  const Timeline& timeline;
  const std::vector<StageCosts>& costs;             ///< per virtual stage
  const std::vector<std::uint32_t>& more_versions;  ///< per virtual stage: held beyond the live one
  /// Per virtual stage: GPUs that hold a part of each message; empty: one that holds all of it.
  std::vector<int> parts{};
};

/// Calls `sample(time_s, use)` once at the start and after every instant that changed something.
using MemorySample = std::function<void(double time_s, const MemoryUse& use)>;

/// The peak of one device; `sample` may be empty. O(n log n) in the device's ops.
MemoryPeak memory_over_time(const MemoryInput& input, int device, const MemorySample& sample = {});

}  // namespace penstock
