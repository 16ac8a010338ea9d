// SPDX-License-Identifier: Apache-2.0
// What the parts of each replica group's gradient reduction take where nothing else uses their
// links.
#pragma once

#include "program/op_costs.hpp"
#include "sim/engine.hpp"

#include <algorithm>

namespace penstock {

class BucketTimes {
 public:
  struct Bucket {
    double ready;    ///< share of the time of its stage's last backward
    double share;    ///< of all bytes
    double bytes;    ///< to reduce
    double seconds;  ///< alone
    std::uint16_t stage;
  };
  explicit BucketTimes(const SimulationInput& input) {
    for (std::uint32_t replica_group = 0; replica_group < input.traffic.reductions().size();
         ++replica_group) {
      const Transfer& reduction = input.traffic.reductions()[replica_group];
      const auto all = [&](auto what) {
        return static_cast<double>(at_position(input.program.placement, input.costs,
                                               static_cast<std::uint32_t>(reduction.source), what));
      };
      const double all_bytes = all(&StageCosts::reduced_bytes);
      const double all_s = all(&StageCosts::reduce_grad_s);
      auto& buckets = replica_groups_.emplace_back();
      for (const GradientBucket& b : input.traffic.buckets(replica_group)) {
        const double bytes = b.share * all_bytes;
        const double seconds =
            reduction.phases.empty() ? b.share * all_s : reduction.alone_s(bytes);
        buckets.push_back({b.ready, b.share, bytes, seconds, b.stage});
      }
      most_ = std::max(most_, buckets.size());
    }
  }
  /// Of a replica group of Barriers.
  const std::vector<Bucket>& buckets_of(std::uint32_t replica_group) const {
    return replica_groups_[replica_group];
  }
  /// The most parts any of them has.
  std::size_t most() const { return most_; }

 private:
  std::vector<std::vector<Bucket>> replica_groups_;
  std::size_t most_ = 1;
};

struct PartAlone {
  double ready, share, seconds;
  std::uint16_t stage;
};
/// Returns the parts of the reduction that each position takes part in, alone; none where no device
/// has others with the same stages.
inline std::vector<std::vector<PartAlone>> parts_by_position(const SimulationInput& input) {
  const Placement& placement = input.program.placement;
  if (!placement.mirrored() && !placement.replicated() && !input.program.reduces_within) return {};
  const BucketTimes times(input);
  std::vector<std::vector<PartAlone>> parts;
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(placement.depth()); ++p) {
    auto& here = parts.emplace_back();
    // Asynchronous ones are replica groups by themselves: all of them alike.
    const std::uint32_t group = std::min(p, placement.mirror_of(p));
    for (const BucketTimes::Bucket& b : times.buckets_of(group))
      here.push_back({b.ready, b.share, b.seconds, b.stage});
  }
  return parts;
}

}  // namespace penstock
