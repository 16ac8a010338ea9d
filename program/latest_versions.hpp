// SPDX-License-Identifier: Apache-2.0
// Weight versions of replicas that update shared weights without waiting for one another
// (asynchronous data parallelism). A version is the number of updates that all replicas have made.
// The end of a replica's STEP is when its update is made and when it has new weights; updates of
// the same nanosecond are made in the order of the devices.
//   version(r, u)   = 1 + updates made before its update u - 1; 0 for its first one
//   staleness(r, u) = updates made before it - version(r, u)
// With w replicas that update equally often the staleness is w - 1.
#pragma once

#include "program/op_lists.hpp"
#include "program/timeline.hpp"

#include <cstdint>
#include <vector>

namespace penstock {

class LatestVersions {
 public:
  /// Of a run in which every device is a replica.
  LatestVersions(const OpLists& ops, const Timeline& timeline);

  /// The version that the microbatches of a device's update are computed with.
  std::uint32_t version(int device, std::uint32_t update) const;
  /// Updates that others made between a device's weights and its update; the most, 0 without any.
  std::uint32_t staleness_max(int device) const;
  /// The mean over all updates of all devices but each one's first; 0 without any.
  double staleness_mean() const;

 private:
  std::uint32_t staleness(std::size_t device, std::size_t update) const;

  std::vector<std::vector<std::uint32_t>> made_;  // [device][update]: updates made before it
};

}  // namespace penstock
