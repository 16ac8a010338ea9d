// SPDX-License-Identifier: Apache-2.0
// Looks into families whose cuts are not all visited, by the order of their ops: it finds what the
// order proves for all cuts, and tries the cuts that are nearest to that bound. It does a little
// work for each family, and more for those that hold the gap. Where orders are searched for and
// take long to find, it tries the cut whose order repeats soonest (there_and_back.hpp).
#pragma once

#include "plan/search/bound.hpp"
#include "plan/search/kept_plans.hpp"
#include "plan/search/recompute_steps.hpp"
#include "plan/search/search.hpp"
#include "plan/search/search_queue.hpp"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

class OrderTrials {
 public:
  /// What the search does for it.
  struct Tries {
    std::function<bool()> more;  ///< returns whether there is time for more
    /// Evaluates a cut, and confirms it where that is worth it. With `sample` the cut is one of
    /// some that stand for all, and may be changed until it fits.
    std::function<void(const Candidate&, bool sample)> cut;
  };

  /// Keeps references to all, which must outlive it.
  OrderTrials(const Problem& problem, const SearchOptions& options, const RecomputeSteps& steps,
              Bounds& bounds, const KeptPlans& kept, Tries tries)
      : problem_(problem),
        options_(options),
        steps_(steps),
        bounds_(bounds),
        kept_(kept),
        try_(std::move(tries)) {}

  /// Returns the bound on the cost that a family's order proves, and how many ops were run for it
  /// now. Tries the cuts that are nearest to the bound.
  std::pair<double, std::int64_t> bound_of(const PlanFamily& family, std::int64_t most_ops);

  /// Raises the least costs of families whose cuts are not all visited, the least first. A trial
  /// may add to `open`.
  void look_into(std::vector<OpenFamily>& open);

  /// Looks into families whose orders are searched for and too large for that: finds what their
  /// memory proves, and, for the family of two chunks there and back that could be best, tries the
  /// cut whose order repeats soonest. Returns whether there was such a family.
  bool look_there_and_back(std::vector<OpenFamily>& open);

 private:
  double best() const;
  double cost_of_second(const PlanFamily& family) const;
  Candidate start_of(const PlanFamily& family);

  struct Proven {
    double bound = 0;
    std::int64_t most_ops = 0;
  };

  const Problem& problem_;
  const SearchOptions& options_;
  const RecomputeSteps& steps_;
  Bounds& bounds_;
  const KeptPlans& kept_;
  const Tries try_;
  std::map<std::string, Proven> proven_;  // of families on any ranks
  std::int64_t ops_ = 0;                  // run in look_into
};

}  // namespace penstock
