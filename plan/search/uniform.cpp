// SPDX-License-Identifier: Apache-2.0
#include "plan/search/uniform.hpp"

#include <algorithm>

namespace penstock {
namespace {

Tally operator+(const Tally& a, const Tally& b) {
  return {a.made + b.made,   a.refused + b.refused, a.too_large + b.too_large,
          a.worse + b.worse, a.opened + b.opened,   a.left + b.left};
}

/// Adds what another search of the same problem found among other plans; but for the plans.
void add(SearchResult& all, SearchResult one) {
  if (one.lower_bound < all.lower_bound) {
    all.lower_bound = one.lower_bound;
    all.gap_held_by = one.gap_held_by;
  }
  if (one.known_orders_lower_bound < all.known_orders_lower_bound) {
    all.known_orders_lower_bound = one.known_orders_lower_bound;
    all.known_orders_gap_held_by = one.known_orders_gap_held_by;
  }
  all.shapes = all.shapes + one.shapes;
  all.families = all.families + one.families;
  all.cuts = all.cuts + one.cuts;
  all.represented += one.represented;
  all.evaluations += one.evaluations;
  all.confirmations += one.confirmations;
  all.moves += one.moves;
  all.unanswered += one.unanswered;
  if (one.unanswered > 0) all.unanswered_because = std::move(one.unanswered_because);
  all.out_of_time |= one.out_of_time;
  all.cuts_of_searched_orders |= one.cuts_of_searched_orders;
  if (all.infeasible_because.empty()) all.infeasible_because = std::move(one.infeasible_because);
}

/// The plans of a search that chooses layers stage by stage, each with as many of every stage.
std::vector<Start> alike_layers(const std::vector<FoundPlan>& found) {
  std::vector<Start> out;
  for (const FoundPlan& plan : found) {
    int most = 0;
    for (std::size_t s = 0; s < plan.choice.recompute.size(); ++s)
      most = std::max(most, plan.choice.recompute[s].recomputed(plan.choice.layers[s]));
    if (most == 0) continue;
    Choice choice = plan.choice;
    choice.recompute.assign(choice.recompute.size(), Recomputation::block(most));
    out.push_back({"", std::move(choice)});
  }
  return out;
}

/// Single layers, as many of every stage: what a search that tells stages apart has found, and its
/// bound, which holds for these, too.
void search_alike_layers(const Problem& problem, const Axes& axes, SearchOptions options,
                         KeptPlans& kept, SearchResult& all) {
  options.starts.clear();
  options.uniform_recompute = false;
  SearchResult free = search(problem, axes, options);
  options.starts = alike_layers(free.found);
  const SearchResult alike = judge_starts(problem, axes, options);
  for (const FoundPlan& plan : alike.found) kept.keep(plan);
  free.confirmations += options.starts.size();
  add(all, std::move(free));
  all.single_layers = true;
}

}  // namespace

SearchResult search_uniform(const Problem& problem, const Axes& axes, SearchOptions options) {
  const std::vector<Recomputation> each = recomputes_of(axes);
  const std::size_t starts = options.starts.size();
  const bool single_layers = RecomputeSteps(axes).single_layers();
  const std::size_t searches = each.size() + (single_layers ? 1 : 0);
  options.most_seconds /= static_cast<double>(searches);
  options.most_evaluations = std::max<std::size_t>(1, options.most_evaluations / searches);
  KeptPlans kept(problem);
  SearchResult all;
  for (std::size_t i = 0; i < each.size(); ++i) {
    Axes alike = axes;
    alike.recomputes = {each[i]};
    SearchResult one = search(problem, alike, options);
    for (const FoundPlan& plan : one.found) kept.keep(plan);
    if (i == 0) {
      one.starts.resize(starts);
      all = std::move(one);
    } else {
      add(all, std::move(one));
    }
    if (!kept.empty()) options.starts.assign(1, {kept.best().from, kept.best().choice});
  }
  if (single_layers) search_alike_layers(problem, axes, options, kept, all);
  all.found = kept.all();
  all.plans = kept.offer(options.top, options.all_degrees);
  all.gap.reset();
  all.known_orders_gap.reset();
  if (kept.empty()) return all;
  all.infeasible_because.clear();
  const double best = kept.best().cost;
  if (all.lower_bound > 0) all.gap = best / all.lower_bound - 1;
  if (all.known_orders_lower_bound > 0)
    all.known_orders_gap = std::max(0.0, best / all.known_orders_lower_bound - 1);
  return all;
}

}  // namespace penstock
