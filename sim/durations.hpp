// Durations of ops as a flat table: [stage][kind], seconds.
#pragma once

#include "base/vocabulary.hpp"

namespace penstock {

class Durations {
 public:
  explicit Durations(const std::vector<StageCosts>& costs) {
    for (const StageCosts& c : costs) {
      for (int kind = 0; kind < kKinds; ++kind)
        seconds_.push_back(c.duration_s(static_cast<OpKind>(kind)));
    }
  }
  double operator()(const Op& op) const {
    return seconds_[std::size_t{op.stage} * kKinds + static_cast<std::size_t>(op.kind)];
  }

 private:
  static constexpr int kKinds = 6;
  std::vector<double> seconds_;
};

}  // namespace penstock
