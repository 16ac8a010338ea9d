// SPDX-License-Identifier: Apache-2.0
// Cuts for orders of two chunks per device, there and back, that are searched for.
//
// What such an order takes is known when it has been found, which takes long where there are many
// microbatches; what repeats with every microbatch is found at once (schedules/search/pair_cycles).
// The longest device says how long that is at least. For a time, from what the start takes to what
// nothing is found for, every device recomputes as many layers as there is time for; the layers of
// each device are dealt out to its two stages so that what V-Half repeats exceeds the devices'
// memory least, one device after the other; and then layers are moved at random, between stages and
// between devices, until there is something that repeats in that time within the memory.
#pragma once

#include "plan/search/candidate.hpp"
#include "plan/search/recompute_steps.hpp"
#include "schedules/search/pair_cycles.hpp"

#include <functional>
#include <map>

namespace penstock {

class CutsThereAndBack {
 public:
  CutsThereAndBack(const Problem& problem, const RecomputeSteps& steps, const PlanFamily& family)
      : problem_(problem), steps_(steps), family_(family) {}

  /// The one whose order repeats soonest, in less than `start` takes or is `enough_s` for all
  /// microbatches; none: there was none. `trials`: for each time; `more`: is there time for
  /// another?
  std::optional<Candidate> find(const Candidate& start, double enough_s, std::size_t trials,
                                const std::function<bool()>& more);

 private:
  /// What the devices recompute follows from the time that they have.
  struct Cut {
    std::vector<int> layers;        ///< by stage
    std::vector<bool> upper_first;  ///< by device: which of its stages recomputes first
  };
  struct Trial {
    Cut cut;
    Candidate candidate;
    OrderProblem problem;
    double least_s = 0;  ///< of the longest device, for a microbatch
    /// Of the best found: a cycle, its time, what it holds above the devices' memory in shares of
    /// it, and its time where that has its price.
    std::optional<PairCycle> cycle{};
    double period_s = kNever, excess = kNever, cost_s = kNever;
    double fitting_s = kNever;  ///< of the best within the devices' memory

    bool better_than(const Trial& other) const {
      return cost_s != other.cost_s ? cost_s < other.cost_s : excess <= other.excess;
    }
    /// As soon as its devices can.
    bool soonest() const {
      constexpr double kNear = 1.002;
      return fitting_s <= least_s * kNear;
    }
  };

  std::optional<Trial> search(const Cut& from, std::size_t trials,
                              const std::function<bool()>& more);
  std::optional<Trial> trial(const Cut& cut);
  Candidate recomputing(const Cut& cut);
  std::vector<double> find_works_s(const Candidate& cut);
  Cut dealt_out(Cut cut);
  Cut moved(Cut cut);
  bool finds(const Trial& trial);
  void find_cycle(Trial& trial) const;

  const Problem& problem_;
  const RecomputeSteps& steps_;
  PlanFamily family_;
  double within_s_ = 0, best_s_ = 0;            // of a microbatch: aimed at, found
  std::map<std::vector<int>, double> works_s_;  // by a device's layers
  std::optional<Candidate> best_;
  std::optional<PairCycle> half_, known_;
  std::mt19937_64 random_{20261127};
};

}  // namespace penstock
