// SPDX-License-Identifier: Apache-2.0
#include "plan/block_partition.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

class Blocks {
 public:
  Blocks(const std::vector<double>& costs, int blocks) : costs_(scaled(costs)) {
    const auto k = static_cast<std::size_t>(blocks);
    for (std::size_t b = 1; b < k; ++b) ends_.push_back(costs.size() / k * b);
    ends_.push_back(costs.size());
  }

  /// Elements per block once the blocks are balanced.
  std::vector<int> balanced() {
    std::size_t largest = largest_block();
    for (std::size_t least = least_block(); size(largest) > size(least) + 1;
         least = least_block()) {
      if (feed(least, largest) == largest) largest = largest_block();
    }
    std::vector<int> counts;
    for (std::size_t b = 0; b < ends_.size(); ++b)
      counts.push_back(static_cast<int>(ends_[b] - begin(b)));
    return counts;
  }

 private:
  static std::vector<double> scaled(const std::vector<double>& costs) {
    const auto [least, most] = std::ranges::minmax(costs);
    std::vector<double> scaled;
    for (const double cost : costs)
      scaled.push_back(most > least ? (cost - least) / (most - least) : 0);
    return scaled;
  }

  std::size_t begin(std::size_t b) const { return b == 0 ? 0 : ends_[b - 1]; }
  double size(std::size_t b) const {
    const auto at = [&](std::size_t i) { return costs_.begin() + static_cast<std::ptrdiff_t>(i); };
    return std::accumulate(at(begin(b)), at(ends_[b]), 0.0);
  }
  std::size_t largest_block() const {
    std::size_t found = 0;
    for (std::size_t b = 1; b < ends_.size(); ++b)
      if (size(b) >= size(found)) found = b;
    return found;
  }
  std::size_t least_block() const {
    std::size_t found = 0;
    for (std::size_t b = 1; b < ends_.size(); ++b)
      if (size(b) < size(found)) found = b;
    return found;
  }

  bool is_empty(std::size_t b) const { return begin(b) == ends_[b]; }

  /// Moves an element into `least` from its neighbour towards `largest`; returns the neighbour. An
  /// empty neighbour has nothing to give, but is as small: it is fed instead.
  std::size_t feed(std::size_t least, std::size_t largest) {
    while (largest < least && is_empty(least - 1)) --least;
    while (largest > least && is_empty(least + 1)) ++least;
    if (largest < least) {
      --ends_[least - 1];
      return least - 1;
    }
    ++ends_[least];
    return least + 1;
  }

  std::vector<double> costs_;
  std::vector<std::size_t> ends_;
};

}  // namespace

std::vector<int> block_partition(const std::vector<double>& costs, int blocks) {
  return Blocks(costs, blocks).balanced();
}

}  // namespace penstock
