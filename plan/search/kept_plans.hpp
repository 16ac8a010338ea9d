// SPDX-License-Identifier: Apache-2.0
// The plans that a search has found, best first: one of each family, whatever its ranks lie on, and
// one of those that do the same under several names (equal free slots make `1f1b` of `eager-1f1b`).
//
// What is offered of them are alternatives: plans than which no other is cheaper, smaller and
// simpler. A plan is the simpler the less has to be set up beside 1F1B or GPipe with as many layers
// in every stage: another schedule, several chunks, uneven layers, recomputation that differs from
// stage to stage, ranks in another order.
//
// Times within the model's error of each other are equal: of plans that cost as much as the best,
// the simplest is the one to run. Of each idea (how a device's stages lie, whether its backward is
// split) one plan is offered, the cheapest, beside what is smallest or simplest of all; where all
// degrees are asked for, one for each depth, tensor and context degree.
#pragma once

#include "plan/search/candidate.hpp"
#include "plan/search/judgement.hpp"

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace penstock {

struct FoundPlan {
  Choice choice;
  Judgement judgement;  ///< with the time of the problem's batch
  double cost = 0;
  double throughput_samples_per_s = 0;
  std::string from = {};  ///< the published planner whose plan it started from; empty: none
  /// Other schedules that were found to order the ops in the same way on every device.
  std::vector<std::string> also = {};
  /// What it is best at among the alternatives: "speed", "memory", "simplicity". Empty where there
  /// are none.
  std::vector<std::string> best_at = {};
};

/// Returns how many of the things above have to be set up beside plain 1F1B, 0 to 5.
int things_to_set_up(const Choice& choice);

/// The error of the model: the median error of iteration times is 2 to 5 % in most sets of
/// docs/scoreboard.md, and plans that differ by less cannot be told apart.
inline constexpr double kModelError = 0.03;
/// Returns whether a cost is as good as the best within the model's error.
inline bool as_good(double cost, double best) { return cost <= best * (1 + kModelError); }

/// Returns whether the software (a shipped stack's name) has the plan's schedule; true where that
/// is not known.
bool runs_in(std::string_view software, const Choice& choice);

/// Returns a key by which equally fast plans are compared; the least is the one to run. Plans that
/// the software has come first, then those that need fewer degrees and techniques, then those of
/// lower tensor degree and depth.
std::tuple<bool, int, int, int> simplicity(const Choice& choice, std::string_view software = "");

class KeptPlans {
 public:
  explicit KeptPlans(const Problem& problem) : problem_(problem) {}

  /// Keeps a plan; of two that do the same, the better one, and of equals the earlier.
  void keep(FoundPlan plan);

  bool empty() const { return plans_.empty(); }
  std::size_t size() const { return plans_.size(); }
  const FoundPlan& best() const { return plans_.front(); }
  const std::vector<FoundPlan>& all() const { return plans_; }

  /// Returns whether one of the plans is no more expensive, no larger and no less simple.
  bool dominated(double cost, double memory_bytes, const Choice& choice) const;

  /// Returns the plan to run, the simplest of those as good as the best; null where nothing is
  /// kept.
  const FoundPlan* to_run() const;

  /// Returns the plans to offer, best first: the best and the one to run, whatever `most` is; the
  /// simplest and the smallest of those at most `kSlowest` times as expensive; then plans that are
  /// not dominated; then others, one of each idea, or, with `all_degrees`, one of each idea and its
  /// degrees.
  std::vector<FoundPlan> offer(std::size_t most, bool all_degrees = false) const;

  static constexpr double kSlowest = 1.5;

 private:
  bool alike(const FoundPlan& a, const FoundPlan& b) const;

  const Problem& problem_;
  std::vector<FoundPlan> plans_;
};

}  // namespace penstock
