// SPDX-License-Identifier: Apache-2.0
// The search for orders of a V: two chunks per device, there and back, the backward split into I
// and W; for any times, transfer and memory limits of the devices (zb-v-search, v-search).
//
// Candidates come from ZB-V's heuristic (pair_rounds.hpp), from the building blocks of the
// controllable-memory paper where they fit, from pipelines run by many rules (pair_rules.hpp), and
// from what can repeat with every microbatch (pair_cycles.hpp), which decides when there are many;
// the best few are improved by moves of single ops (moves.hpp). All are evaluated with the
// times of the shape. What is found is no worse than any known order in stage time and makespan,
// where one order can be both, and has the least sum of the two. The work is linear in ops: as many
// rules and moves are tried as a fixed number of ops allows.
#pragma once

#include "schedules/search/pair_cycles.hpp"

namespace penstock {

/// The best order found. Precondition: fits_at_all(problem), two chunks. `budget`: in multiples of
/// what the search usually spends; `known`: words of orders to begin with.
Order search_vee(const OrderProblem& problem, std::uint32_t budget = 1,
                 const std::vector<std::vector<Pass>>& known = {});

/// What repeats with every microbatch in the order that is found; none: nothing that fits.
std::optional<PairCycle> repeating_vee(const OrderProblem& problem, std::uint32_t budget = 1);

}  // namespace penstock
