// SPDX-License-Identifier: Apache-2.0
// Which share of each link's bandwidth there is now (perturbations.links).
#pragma once

#include "sim/engine.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace penstock {

class LinkShares {
 public:
  explicit LinkShares(const SimulationInput& input) : links_(input.traffic.links()) {
    if (input.perturbation == nullptr) return;
    rates_ = input.perturbation->link_share;
    for (const PiecewiseRate& rate : rates_) share_.push_back(rate.at(0));
  }

  bool changes(std::size_t link) const { return link < rates_.size() && !rates_[link].constant(); }
  /// Is there a link among these whose bandwidth changes? What crosses it must be flows.
  bool concern(const std::vector<int>& links) const {
    return std::ranges::any_of(links, [&](int l) { return changes(index(l)); });
  }
  double share_of(std::size_t link) const { return share_.empty() ? 1 : share_[link]; }

  /// When some of them change, after the start.
  std::set<double> times() const {
    std::set<double> times;
    for (const PiecewiseRate& rate : rates_) {
      for (const PiecewiseRate::Step& step : rate.steps())
        if (step.from_s > 0) times.insert(step.from_s);
    }
    return times;
  }
  /// Those that are others from now on.
  std::vector<std::size_t> change(double time_s) {
    std::vector<std::size_t> changed;
    for (std::size_t l = 0; l < rates_.size(); ++l) {
      const double share = rates_[l].at(time_s);
      if (share == share_[l]) continue;
      share_[l] = share;
      changed.push_back(l);
    }
    return changed;
  }

  /// The first of these links that carries nothing now; "" when there is none.
  std::string failed(const std::vector<int>& links) const {
    for (const int l : links)
      if (changes(index(l)) && share_[index(l)] == 0) return links_[index(l)].name;
    return "";
  }

 private:
  static std::size_t index(int link) { return static_cast<std::size_t>(link); }

  const std::vector<NetworkLink>& links_;
  std::vector<PiecewiseRate> rates_;  // per link; empty: none changes
  std::vector<double> share_;         // now
};

}  // namespace penstock
