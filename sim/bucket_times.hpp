// What the parts of each party's gradient reduction take where nothing else uses their links.
#pragma once

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
    const auto& positions = input.program.placement.positions();
    for (const Reduction& reduction : input.channels.reductions()) {
      const auto stage = std::ranges::find(positions, reduction.position) - positions.begin();
      const StageCosts& costs = input.costs[static_cast<std::size_t>(stage)];
      auto& buckets = parties_.emplace_back();
      for (const GradientBucket& b : reduction.buckets) {
        const double bytes = b.share * static_cast<double>(costs.reduced_bytes);
        const double seconds = reduction.phases.empty() ? b.share * costs.reduce_grad_s
                                                        : input.channels.alone_s(reduction, bytes);
        buckets.push_back({b.ready, bytes, seconds});
      }
      most_ = std::max(most_, buckets.size());
    }
  }
  /// Of a party of Barriers.
  const std::vector<Bucket>& of(std::uint32_t party) const { return parties_[party]; }
  /// The most parts any of them has.
  std::size_t most() const { return most_; }

 private:
  std::vector<std::vector<Bucket>> parties_;
  std::size_t most_ = 1;
};

}  // namespace penstock
