// SPDX-License-Identifier: Apache-2.0
// The finishing moves of a search: changes of a plan that may make it better.
//
// Of many cuts the search simulates only those that are best by their bounds, which take all
// devices for alike, and of a start only one cut. The moves try others, one change at a time.
#pragma once

#include "plan/search/kept_plans.hpp"
#include "plan/search/recompute_steps.hpp"

#include <functional>

namespace penstock {

class Moves {
 public:
  /// Returns whether the choice is better, and keeps it then.
  using Improves = std::function<bool(const Choice&)>;

  Moves(const Problem& problem, const RecomputeSteps& steps) : problem_(problem), steps_(steps) {}

  /// Tries one move after the other until one is better. Returns whether one is.
  bool improve(const FoundPlan& plan, const Improves& improves) const;
  /// Tries the layers of `split: balanced`. Returns whether they are better.
  bool balances_layers(const FoundPlan& plan, const Improves& improves) const;
  /// Returns these layers; none where there is no such split.
  std::vector<int> balanced_layers(const Choice& choice) const;

 private:
  bool recomputes_less(const FoundPlan& plan, const Improves& improves) const;
  bool moves_layers(const FoundPlan& plan, const Improves& improves) const;
  bool moves(const FoundPlan& plan, std::size_t s, int layers, const Improves& improves) const;

  const Problem& problem_;
  const RecomputeSteps& steps_;
};

}  // namespace penstock
