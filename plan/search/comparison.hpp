// SPDX-License-Identifier: Apache-2.0
// Compares our plan with those of the published planners, all simulated by one engine on one
// problem.
#pragma once

#include "plan/search/search.hpp"

namespace penstock {

struct ComparedPlanner {
  std::string name;
  std::string plan;                     ///< "2-1 stages, microbatches of 64, pipedream"
  bool versions = false;                ///< whether it keeps several weight versions
  double predicted_samples_per_s = 0;   ///< by the planner's own cost model; 0: none
  double throughput_samples_per_s = 0;  ///< as simulated; 0: it has no plan that runs
  /// the rate of our best plan of its kind divided by its own, minus 1
  double ours_is_faster_by = 0;
  std::string why_not;

  bool is_ours() const { return name.starts_with("full"); }
};

/// The answer of a published planner, ready to be simulated.
struct PublishedPlan {
  ComparedPlanner row;
  std::optional<Choice> choice;
};

/// Returns the answers of all published planners for the problem. Planners that do not choose the
/// microbatch take the first size whose plan runs and fits. Requires at least one size.
std::vector<PublishedPlan> published_plans(const Problem& problem,
                                           const std::vector<std::int64_t>& microbatch_sizes);

/// Returns the plans that a search may start from: with `versions` all that run, else those with
/// one weight version.
std::vector<Start> starts_of(const std::vector<PublishedPlan>& plans, bool versions);

/// Returns the rows of the comparison: the published planners, then our plans with one weight
/// version and with several. Requires that `one` and `several` began with the starts of `plans`
/// without and with versions.
std::vector<ComparedPlanner> compared(std::vector<PublishedPlan> plans, const SearchResult& one,
                                      const SearchResult& several);

}  // namespace penstock
