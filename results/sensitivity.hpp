// SPDX-License-Identifier: Apache-2.0
// What would help: the scenario again with single changes, and the iteration time of each.
//
//   stage k computes 10 % faster     k: the stage with the most work; what its GPUs exchange stays
//   links of twice the bandwidth     all of them; those within and between nodes by themselves
//                                    where the run uses both
//   twice the microbatches           where the schedule's own bubble shrinks; the time of as many
//                                    samples as today
#pragma once

#include "results/advice_budget.hpp"

namespace penstock {

/// Simulates what was simulated again with each change that the budget affords, with `exact` where
/// that is valid, else with `fluid`. `programs`: where to look for those that were made before.
Sensitivities study_sensitivities(const Simulation& today, AdviceBudget& budget,
                                  ProgramCache* programs = nullptr);
/// The same with a budget of its own.
inline Sensitivities study_sensitivities(const Simulation& today) {
  AdviceBudget usual;
  return study_sensitivities(today, usual);
}

}  // namespace penstock
