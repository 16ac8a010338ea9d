// SPDX-License-Identifier: Apache-2.0
// What a job would take and need with other training software, which decides more than most keys.
#pragma once

#include "results/advice_budget.hpp"

namespace penstock {

/// Adds a note of what the job takes and needs with the shipped stacks of today, where these
/// disagree whether it fits. Adds none where the run is too large to simulate a few times, where
/// the stack is neutral, and where the model is not given by its shape.
void note_other_stacks(const Simulation& today, Result& result, AdviceBudget& budget);

}  // namespace penstock
