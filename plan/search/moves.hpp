// SPDX-License-Identifier: Apache-2.0
// The finishing moves of a search: changes of a plan that may make it better.
//
// Of many cuts only those best by their bounds, which take all devices for alike, are simulated, of
// a start one: these try others, one change at a time.
#pragma once

#include "plan/search/kept_plans.hpp"
#include "plan/search/recompute_steps.hpp"

#include <functional>

namespace penstock {

class Moves {
 public:
  /// Is the choice better? Then it is kept.
  using Improves = std::function<bool(const Choice&)>;

  Moves(const Problem& problem, const RecomputeSteps& steps) : problem_(problem), steps_(steps) {}

  /// Tries one after the other, until one is better; false: none is.
  bool improve(const FoundPlan& plan, const Improves& improves) const;
  /// As `split: balanced` has the layers.
  bool balances_layers(const FoundPlan& plan, const Improves& improves) const;
  /// Those layers; empty where it cannot be.
  std::vector<int> balanced_layers(const Choice& choice) const;

 private:
  bool recomputes_less(const FoundPlan& plan, const Improves& improves) const;
  bool moves_layers(const FoundPlan& plan, const Improves& improves) const;
  bool moves(const FoundPlan& plan, std::size_t s, int layers, const Improves& improves) const;

  const Problem& problem_;
  const RecomputeSteps& steps_;
};

}  // namespace penstock
