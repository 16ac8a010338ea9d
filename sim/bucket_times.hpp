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
    double ready;    ///< share of the last backward's time
    double bytes;    ///< to reduce
    double seconds;  ///< alone
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
        buckets.push_back({b.ready, bytes, seconds});
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

/// Seconds of the reduction that a position takes part in, alone; 0: it reduces nothing.
inline std::vector<double> reductions_alone_s(const SimulationInput& input) {
  const Placement& placement = input.program.placement;
  const BucketTimes times(input);
  std::vector<double> seconds;
  for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(placement.depth()); ++p) {
    double& sum = seconds.emplace_back();
    for (const BucketTimes::Bucket& b : times.buckets_of(std::min(p, placement.mirror_of(p))))
      sum += b.seconds;
  }
  return seconds;
}

}  // namespace penstock
