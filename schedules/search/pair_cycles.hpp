// SPDX-License-Identifier: Apache-2.0
// Orders of two chunks per device that repeat with every microbatch, for any times and limits:
// cyclic scheduling (Hanen and Munier, "A study of the cyclic scheduling problem on parallel
// processors", Discrete Applied Mathematics 57, 1995), as compilers schedule loops.
//
// In a cycle every device runs each of its six passes once, in an order of its own, each of the
// microbatch that many cycles ahead or back. These say what a device holds; and how long a cycle
// takes at least, whatever the number of microbatches: the largest ratio of time to cycles over all
// circles of passes that wait for one another. The search moves passes on that circle, by simulated
// annealing, and what is held above a limit costs ever more.
#pragma once

#include "schedules/search/cycle_period.hpp"

#include <optional>
#include <random>

namespace penstock {

/// What repeats in the middle of a word of any number of microbatches; none: nothing does.
std::optional<PairCycle> cycle_in(const OrderProblem& problem, const std::vector<Pass>& word);

/// The order of the problem's microbatches that a cycle makes. It holds no more than the cycle.
std::vector<Pass> word_of(const OrderProblem& problem, const PairCycle& cycle);

/// What its devices hold above their limits, as shares of these.
double excess_of(const OrderProblem& problem, const PairCycle& cycle);

/// The least time from one cycle to the next; kNever: its passes wait for themselves.
double period_of(const OrderProblem& problem, const PairCycle& cycle);

/// Of what is held above a limit, as a share of it, in shares of the period.
inline constexpr double kPriceOfExcess = 10;

struct FoundCycles {
  std::optional<PairCycle> within;  ///< of the least period within the limits; none: there was none
  std::optional<PairCycle> nearest;  ///< of the least with what exceeds them at its price
};

/// The best on a walk of so many evaluations from this one, whose passes wait for themselves where
/// there is no nearest. Microbatches of the problem do not matter.
FoundCycles improved(const OrderProblem& problem, const PairCycle& from, std::size_t evaluations,
                     std::mt19937_64& random);

}  // namespace penstock
