// SPDX-License-Identifier: Apache-2.0
// What a person can change to train faster, or to make it fit: the scenario again with other values
// of its keys, on as many GPUs and with the same batch. All are looked at by the exact engine; the
// most promising of each kind is then simulated as the scenario itself is (where links are shared a
// simulation takes a hundred times as long).
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
  bool tried = false;              ///< were all changes looked at?
  std::string incomplete_because;  ///< why not all were looked at, such as a lack of processes
};

/// The best two, of different kinds, best first; of a scenario that does not fit, those that do.
/// None where nothing is better, where the run is perturbed, or where the budget affords none.
/// `result` is today's. `allowed`: what may be advised; all, where there is none. `programs`: where
/// to look for those that were made before.
ChangesStudy study_changes(const Simulation& today, const Result& result, AdviceBudget& budget,
                           const std::function<bool(const Scenario&)>& allowed = {},
                           ProgramCache* programs = nullptr);
/// The same with a budget of its own.
inline ChangesStudy study_changes(const Simulation& today, const Result& result,
                                  const std::function<bool(const Scenario&)>& allowed = {}) {
  AdviceBudget usual;
  return study_changes(today, result, usual, allowed);
}

/// Sets what would help and what to change, and says why that is not complete, where it is not.
void add_help(const Simulation& today, Result& result, AdviceEffort effort = AdviceEffort::usual);

}  // namespace penstock
