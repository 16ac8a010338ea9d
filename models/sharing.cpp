// SPDX-License-Identifier: Apache-2.0
#include "models/sharing.hpp"

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

/// The flows that still move, and what each of them gets.
class Filling {
 public:
  Filling(const std::vector<LinkFlow>& flows, const std::vector<NetworkLink>& links)
      : flows_(flows), links_(links), rates_(flows.size()) {
    for (std::size_t f = 0; f < flows.size(); ++f) {
      left_.push_back(flows[f].bytes);
      if (flows[f].bytes > 0) moving_.push_back(f);
    }
  }

  double run() {
    double now = 0;
    while (!moving_.empty()) {
      fill();
      std::erase_if(moving_, [&](std::size_t f) { return rates_[f] == kForever; });  // no time
      if (moving_.empty()) break;
      double next = kForever;
      for (const std::size_t f : moving_) next = std::min(next, left_[f] / rates_[f]);
      now += next;
      for (const std::size_t f : moving_) left_[f] -= next * rates_[f];
      std::erase_if(moving_, [&](std::size_t f) { return left_[f] <= flows_[f].bytes * kNothing; });
    }
    return now;
  }

 private:
  static constexpr double kNothing = 1e-12;

  /// Raises all rates together; a link that is full stops the flows that cross it.
  void fill() {
    std::vector<double> free(links_.size());
    std::vector<int> users(links_.size(), 0);
    for (std::size_t l = 0; l < links_.size(); ++l) free[l] = links_[l].bytes_per_s;
    for (const std::size_t f : moving_) {
      for (const int l : flows_[f].links) ++users[static_cast<std::size_t>(l)];
      rates_[f] = kForever;
    }
    std::vector<std::size_t> rising = moving_;
    while (!rising.empty()) {
      double least = kForever;
      for (std::size_t l = 0; l < links_.size(); ++l)
        if (users[l] > 0) least = std::min(least, free[l] / users[l]);
      if (least == kForever) return;  // nothing limits the others
      const auto stopped = [&](std::size_t f) {
        return std::ranges::any_of(flows_[f].links, [&](int link) {
          const auto l = static_cast<std::size_t>(link);
          return free[l] / users[l] <= least * (1 + kNothing);
        });
      };
      const auto first = std::stable_partition(rising.begin(), rising.end(),
                                               [&](std::size_t f) { return !stopped(f); });
      for (auto f = first; f != rising.end(); ++f) rates_[*f] = least;
      for (auto f = first; f != rising.end(); ++f) {
        for (const int link : flows_[*f].links) {
          free[static_cast<std::size_t>(link)] -= least;
          --users[static_cast<std::size_t>(link)];
        }
      }
      rising.erase(first, rising.end());
    }
  }

  const std::vector<LinkFlow>& flows_;
  const std::vector<NetworkLink>& links_;
  std::vector<double> left_, rates_;
  std::vector<std::size_t> moving_;
};

/// The usual case: no link is crossed by two of the flows.
bool all_apart(const std::vector<LinkFlow>& flows) {
  std::vector<int> crossed;
  for (const LinkFlow& flow : flows)
    crossed.insert(crossed.end(), flow.links.begin(), flow.links.end());
  std::ranges::sort(crossed);
  return std::ranges::adjacent_find(crossed) == crossed.end();
}

}  // namespace

double shared_flows_s(const std::vector<LinkFlow>& flows, const std::vector<NetworkLink>& links) {
  if (!all_apart(flows)) return Filling(flows, links).run();
  double slowest = 0;
  for (const LinkFlow& flow : flows) {
    for (const int l : flow.links)
      slowest = std::max(slowest, flow.bytes / links[static_cast<std::size_t>(l)].bytes_per_s);
  }
  return slowest;
}

}  // namespace penstock
