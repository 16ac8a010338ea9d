// SPDX-License-Identifier: Apache-2.0
// Which software trains decides more than most keys: what a job takes, and needs, with others.
#pragma once

#include "results/advice_budget.hpp"

namespace penstock {

/// Notes what the shipped stacks of today say of the job, where they disagree whether it fits.
/// Nothing of a run that is too large to simulate a few times, of a neutral stack, and of models
/// that are not by shape.
void note_other_stacks(const Simulation& today, Result& result, AdviceBudget& budget);

}  // namespace penstock
