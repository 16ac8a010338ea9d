// SPDX-License-Identifier: Apache-2.0
// The split of layers nearest to the balanced one that fits the memory. `split: balanced` balances
// time alone; where it does not fit, layers leave the device that lacks the most memory, one after
// the other, for the least busy device that has room for one more.
#pragma once

#include "results/advice_budget.hpp"

#include <optional>
#include <string>

namespace penstock {

/// Returns the layers of each virtual stage with which it fits, by the exact engine. None: the
/// scenario fits as it is, it is no model of layers, or none was found with what the budget
/// affords.
std::optional<std::vector<int>> fitting_split(const Scenario& scenario, AdviceBudget& budget);

/// Returns that split as a scenario writes it, "[18, 21, 21, 20]"; none where the scenario lists
/// its layers. With `full` it takes as long as up to 64 runs.
std::optional<std::string> fitting_split_unless_listed(const Scenario& scenario,
                                                       AdviceEffort effort);

/// Adds a note with that split to the result, where the scenario does not fit and does not list its
/// layers.
void note_fitting_split(const Scenario& scenario, Result& result,
                        AdviceEffort effort = AdviceEffort::usual);

}  // namespace penstock
