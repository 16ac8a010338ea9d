// The best plans that a search has found, best first: one of each family, whatever its ranks lie
// on, and one of those that do the same under several names (equal free slots make `1f1b` of
// `eager-1f1b`).
#pragma once

#include "plan/search/candidate.hpp"
#include "plan/search/judgement.hpp"

#include <string>
#include <vector>

namespace penstock {

struct FoundPlan {
  Choice choice;
  Judgement judgement;  ///< its time is that of the problem's batch
  double cost = 0;
  double throughput_samples_per_s = 0;
  std::string from = {};  ///< the published planner whose plan it began with; empty: none
  /// Other schedules that were found to order the same ops alike on every device.
  std::vector<std::string> also = {};
};

class KeptPlans {
 public:
  KeptPlans(const Problem& problem, std::size_t most) : problem_(problem), most_(most) {}

  /// Of two as good the earlier.
  void keep(FoundPlan plan);

  bool empty() const { return plans_.empty(); }
  std::size_t size() const { return plans_.size(); }
  const FoundPlan& best() const { return plans_.front(); }
  std::vector<FoundPlan> take() { return std::move(plans_); }

 private:
  bool alike(const FoundPlan& a, const FoundPlan& b) const;

  const Problem& problem_;
  std::size_t most_;
  std::vector<FoundPlan> plans_;
};

}  // namespace penstock
