// SPDX-License-Identifier: Apache-2.0
#include "plan/search/order_trials.hpp"

#include "plan/search/there_and_back.hpp"

#include <algorithm>
#include <limits>

namespace penstock {

double OrderTrials::best() const {
  return kept_.empty() ? std::numeric_limits<double>::infinity() : kept_.best().cost;
}

double OrderTrials::cost_of_second(const PlanFamily& family) const {
  return cost_of(options_.objective, 1, 0, family.shape.gpus());
}

std::pair<double, std::int64_t> OrderTrials::bound_of(const PlanFamily& family,
                                                      std::int64_t most_ops) {
  PlanFamily on_any_ranks = family;
  on_any_ranks.arrangement = {};
  Proven& known = proven_[on_any_ranks.describe()];
  if (known.most_ops >= most_ops) return {known.bound, 0};
  known.most_ops = most_ops;
  const double one_s = cost_of_second(family);
  const OrderBound bound = bounds_.of_order(family, best() / one_s, most_ops);
  known.bound = std::max(known.bound, bound.time_s * one_s);
  const double proven = known.bound;
  for (Candidate good : bound.good)
    if (bounds_.make_fit(good)) try_.cut(good, true);
  return {proven, bound.ops};
}

void OrderTrials::look_into(std::vector<OpenFamily>& open) {
  // Of what may be spent on all orders, so much for each family, and for each that holds the gap.
  constexpr std::int64_t kFamilies = 300, kShares = 5;
  if (options_.objective == Objective::memory) return;
  for (const std::int64_t share : {kFamilies, kShares}) {
    std::ranges::stable_sort(open, {}, &OpenFamily::least);
    const std::size_t count = open.size();
    for (std::size_t i = 0; i < count && !is_hopeless(open[i].least, best()); ++i) {
      const std::int64_t left = options_.most_order_ops - ops_;
      if (left <= 0 || !try_.more()) break;
      const PlanFamily family = open[i].family;
      const auto [bound, ops] = bound_of(family, std::min(left, options_.most_order_ops / share));
      ops_ += ops;
      open[i].least = std::max(open[i].least, bound);
    }
  }
}

bool OrderTrials::look_there_and_back(std::vector<OpenFamily>& open) {
  constexpr std::int64_t kMostOps = 2'000'000, kMostInAll = 20'000'000;
  if (options_.objective == Objective::memory) return false;
  std::int64_t left = kMostInAll;
  for (OpenFamily& one : open) {
    if (is_hopeless(one.least, best())) continue;
    if (left < kMostOps || !try_.more()) break;
    const auto [bound, ops] = bound_of(one.family, kMostOps);
    left -= ops;
    one.least = std::max(one.least, bound);
  }
  std::ranges::stable_sort(open, {}, &OpenFamily::least);
  const auto with_cuts = std::ranges::find_if(open, [](const OpenFamily& one) {
    return is_there_and_back(one.family) && one.family.schedule->usual_limit >= 1;
  });
  if (with_cuts == open.end() || is_hopeless(with_cuts->least, best())) return false;
  const PlanFamily& family = with_cuts->family;
  CutsThereAndBack cuts(problem_, steps_, family);
  const auto found =
      cuts.find(start_of(family), best() / cost_of_second(family), options_.most_trials, try_.more);
  if (found) try_.cut(*found, false);
  return true;
}

/// The best cut of another schedule for the same stages, or that of the bounds.
Candidate OrderTrials::start_of(const PlanFamily& family) {
  const bool joined = problem_.base().profile.has_value();  // plans have the model's layers
  for (const FoundPlan& plan : kept_.all()) {
    const PlanFamily& other = plan.choice.family;
    const bool same = other.shape == family.shape && is_there_and_back(other);
    if (same && !joined && plan.from.empty())
      return {family, plan.choice.layers, plan.choice.recompute};
  }
  Candidate out{family, {}};
  bounds_.bound_of(family, &out);
  return out;
}

}  // namespace penstock
