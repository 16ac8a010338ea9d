// SPDX-License-Identifier: Apache-2.0
// Computes the memory of a device over time, by owner, from a Timeline and the stages' costs.
// program/holdings.hpp says who holds which bytes from when until when.
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
  MemoryUse use;  ///< the bytes at the peak, by owner
  double at_s = 0;
  /// the op whose allocation made the peak; kNoOp: it is there from the start
  std::uint32_t op = kNoOp;
};

/// What the memory of a device depends on.
struct MemoryInput {
  const OpLists& ops;
  const DependencyTable& table;
  const Timeline& timeline;
  const std::vector<StageCosts>& costs;  ///< one entry per virtual stage
  const std::vector<std::uint32_t>&
      more_versions;  ///< per virtual stage, weight versions beyond the live one
  /// Per virtual stage, the number of GPUs that each hold a part of a message; empty: each holds
  /// all of it.
  std::vector<int> parts{};
};

/// Calls `sample(time_s, use)` once at the start and after every instant that changed something.
using MemorySample = std::function<void(double time_s, const MemoryUse& use)>;

/// Returns the peak of one device, and calls `sample` (may be empty) over time. Takes O(n log n) in
/// the device's ops.
MemoryPeak memory_over_time(const MemoryInput& input, int device, const MemorySample& sample = {});

}  // namespace penstock
