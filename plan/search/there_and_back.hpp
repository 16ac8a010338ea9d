// SPDX-License-Identifier: Apache-2.0
// Finds cuts for schedules of two chunks per device, there and back, whose orders are searched for.
//
// The time of such an order is known only when the order has been found, which takes long for many
// microbatches. A cycle that repeats with every microbatch is found at once
// (schedules/search/pair_cycles), and the longest device bounds its period from below. The search
// aims at ever shorter periods, from that of the start on, until it finds no cut for one. For each,
// every device recomputes as many layers as there is time for. The layers of each device are
// divided among its two stages, one device after the other, so that V-Half's cycle exceeds the
// devices' memory least. Then layers are moved at random, between stages and between devices, until
// a cycle of that period fits the memory.
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

  /// Returns the cut whose order has the shortest period, if all microbatches take less than with
  /// `start`; none where there is no such cut. Stops at a cut with which all microbatches take
  /// `enough_s`. `trials` is the number of trials for each period, and `more` returns whether there
  /// is time for another.
  std::optional<Candidate> find(const Candidate& start, double enough_s, std::size_t trials,
                                const std::function<bool()>& more);

 private:
  /// A cut into stages. What the devices recompute follows from the period that is aimed at.
  struct Cut {
    std::vector<int> layers;        ///< by stage
    std::vector<bool> upper_first;  ///< by device: which of its stages recomputes first
  };
  struct Trial {
    Cut cut;
    Candidate candidate;
    OrderProblem problem;
    double least_s = 0;  ///< the time of the longest device for a microbatch
    /// The best cycle that was found, its period, the share by which it exceeds the devices'
    /// memory, and its period with a penalty for that.
    std::optional<PairCycle> cycle{};
    double period_s = kNever, excess = kNever, cost_s = kNever;
    double fitting_s = kNever;  ///< the period of the best cycle within the devices' memory

    bool better_than(const Trial& other) const {
      return cost_s != other.cost_s ? cost_s < other.cost_s : excess <= other.excess;
    }
    /// Returns whether it repeats as soon as its devices can.
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
