// SPDX-License-Identifier: Apache-2.0
// "Would help?": which values of a scenario's keys would make it train faster, or fit, on as many
// GPUs and with the same batch. The exact engine evaluates all candidates; the most promising of
// each kind is then simulated as the scenario itself was (where links are shared a simulation takes
// a hundred times as long).
//
//   split: balanced; ZeRO-1 and sequence parallelism; recompute; half and twice the microbatch size
//   (with as many samples per update); half and twice the chunks; schedules that flush; tensor
//   degree against pipeline depth and width; each with the nearest split that fits where memory is
//   short
#pragma once

#include "results/advice_budget.hpp"

#include <functional>

namespace penstock {

struct ChangesStudy {
  std::vector<Advice> found;
  bool tried = false;              ///< whether all changes were evaluated
  std::string incomplete_because;  ///< why not all were evaluated, such as a lack of processes
};

/// Returns the best two changes, of different kinds, best first; of a scenario that does not fit,
/// changes that make it fit. Returns none where nothing is better, where the run is perturbed, or
/// where the budget affords no candidate. `result` is that of `today`. `allowed` says which
/// candidates may be advised (all, where it is empty). Programs are taken from `programs` where
/// they were made before.
ChangesStudy study_changes(const Simulation& today, const Result& result, AdviceBudget& budget,
                           const std::function<bool(const Scenario&)>& allowed = {},
                           ProgramCache* programs = nullptr);
/// Returns the same within the usual budget.
inline ChangesStudy study_changes(const Simulation& today, const Result& result,
                                  const std::function<bool(const Scenario&)>& allowed = {}) {
  AdviceBudget usual;
  return study_changes(today, result, usual, allowed);
}

/// Sets `what_would_help` and `what_to_change` of the result, and `help_not_tried` where that is
/// not complete.
void add_help(const Simulation& today, Result& result, AdviceEffort effort = AdviceEffort::usual);

}  // namespace penstock
