// SPDX-License-Identifier: Apache-2.0
// What would help: the iteration time of the scenario with one change at a time.
//
//   stage k computes 10 % faster     k: the stage with the most work; what its GPUs exchange stays
//   links of twice the bandwidth     all of them; those within and between nodes by themselves
//                                    where the run uses both
//   twice the microbatches           where the schedule's own bubble shrinks; the time of as many
//                                    samples as today
#pragma once

#include "results/advice_budget.hpp"

namespace penstock {

/// Simulates the run again with each change that the budget affords, by `exact` where that is
/// valid, else by `fluid`. Programs are taken from `programs` where they were made before.
Sensitivities study_sensitivities(const Simulation& today, AdviceBudget& budget,
                                  ProgramCache* programs = nullptr);
/// Returns the same within the usual budget.
inline Sensitivities study_sensitivities(const Simulation& today) {
  AdviceBudget usual;
  return study_sensitivities(today, usual);
}

}  // namespace penstock
