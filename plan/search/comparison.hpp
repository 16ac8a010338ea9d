// SPDX-License-Identifier: Apache-2.0
// Our plan beside those of the published planners, all simulated by one engine on one problem.
#pragma once

#include "plan/search/search.hpp"

namespace penstock {

struct ComparedPlanner {
  std::string name;
  std::string plan;                     ///< "2-1 stages, microbatches of 64, pipedream"
  bool versions = false;                ///< keeps several weight versions
  double predicted_samples_per_s = 0;   ///< by the planner's own cost model; 0: none
  double throughput_samples_per_s = 0;  ///< simulated; 0: it has no plan that runs
  double ours_is_faster_by = 0;         ///< the best of ours of its kind over it, minus 1
  std::string why_not;

  bool is_ours() const { return name.starts_with("full"); }
};

/// What a published planner answers, ready to be simulated.
struct PublishedPlan {
  ComparedPlanner row;
  std::optional<Choice> choice;
};

/// The answers of all published planners for the problem. Those that do not choose the microbatch
/// take the first of the sizes whose plan runs and fits. Precondition: there is a size.
std::vector<PublishedPlan> published_plans(const Problem& problem,
                                           const std::vector<std::int64_t>& microbatch_sizes);

/// Those among them that may be starts: with `versions` all that run.
std::vector<Start> starts_of(const std::vector<PublishedPlan>& plans, bool versions);

/// The table: the published planners, then ours with one weight version and with several.
/// Preconditions: `one` and `several` began with the starts of `plans` without and with versions.
std::vector<ComparedPlanner> compared(std::vector<PublishedPlan> plans, const SearchResult& one,
                                      const SearchResult& several);

}  // namespace penstock
