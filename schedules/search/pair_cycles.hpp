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

#include "schedules/search/problem.hpp"

#include <optional>
#include <random>

namespace penstock {

struct PairCycle {
  std::vector<std::array<Pass, kPasses>> order;          ///< by device
  std::vector<std::array<std::int32_t, kPasses>> first;  ///< the cycle of microbatch 0; [pass]
};

/// What repeats in the middle of a word of any number of microbatches; none: nothing does.
std::optional<PairCycle> cycle_in(const OrderProblem& problem, const std::vector<Pass>& word);

/// The order of the problem's microbatches that a cycle makes. It holds no more than the cycle.
std::vector<Pass> word_of(const OrderProblem& problem, const PairCycle& cycle);

/// What its devices hold above their limits, as shares of these.
double excess_of(const OrderProblem& problem, const PairCycle& cycle);

/// The least time from one cycle to the next; kNever: its passes wait for themselves.
double period_of(const OrderProblem& problem, const PairCycle& cycle);

/// The cycle of the least period that was found within the limits, from this one, in so many
/// evaluations; none: there was none within them. Microbatches of the problem do not matter.
std::optional<PairCycle> improved(const OrderProblem& problem, const PairCycle& from,
                                  std::size_t evaluations, std::mt19937_64& random);

}  // namespace penstock
