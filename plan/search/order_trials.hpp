// SPDX-License-Identifier: Apache-2.0
// Families whose cuts are not all visited, looked into by the order of their ops: what it proves of
// all cuts, and the cuts that are nearest to that, which are tried. A little of each family, and
// more of those that hold the gap. Of orders that are searched for and take long to find, the cut
// whose order repeats soonest (there_and_back.hpp) is tried.
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
    std::function<bool()> more;  ///< is there time for more?
    /// Evaluates a cut and confirms it where that is worth it; `sample`: of some that stand for
    /// all, which may be changed until it fits.
    std::function<void(const Candidate&, bool sample)> cut;
  };

  /// All must outlive it.
  OrderTrials(const Problem& problem, const SearchOptions& options, const RecomputeSteps& steps,
              Bounds& bounds, const KeptPlans& kept, Tries tries)
      : problem_(problem),
        options_(options),
        steps_(steps),
        bounds_(bounds),
        kept_(kept),
        try_(std::move(tries)) {}

  /// The bound on the cost that a family's order proves, and the ops that were run for it now. The
  /// cuts that are nearest to it are tried.
  std::pair<double, std::int64_t> bound_of(const PlanFamily& family, std::int64_t most_ops);

  /// Raises the least costs of families whose cuts are not all visited, the least first. `open`: to
  /// which a trial may add.
  void look_into(std::vector<OpenFamily>& open);

  /// Of families of orders that are searched for, too large for that: what their memory proves, and
  /// of two chunks there and back the cut whose order repeats soonest, of the one that could be
  /// best. True: there was one, whose cuts were tried.
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
