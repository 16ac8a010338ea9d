// SPDX-License-Identifier: Apache-2.0
// Predicts the rows of a table of training runs (validate/run_table.hpp), each as a scenario, by
// what `simulate` uses, beside what was measured.
#pragma once

#include "results/simulation.hpp"
#include "validate/measured_rows.hpp"
#include "validate/run_table.hpp"

namespace penstock {

/// How rows are predicted, and facts that their files do not state.
struct RowOptions {
  std::vector<Override> changes;  ///< changes of every row's scenario
  EngineChoice engine = EngineChoice::automatic;
  std::string form;  ///< the form that `--as` names; empty: the file's own
  std::string profiles,
      model;  ///< those of Sailor's data; empty: they are looked for (validate/sailor_runs.py)
};

/// Returns what `simulate` says of a row's scenario, beside what was measured.
MeasuredRowResult predict_row(const RunRow& row, Scenario scenario, EngineChoice engine);

/// Returns every row of this file or folder with its prediction. Rows whose scenario is refused are
/// noted and left out. Throws InputError when all are refused.
MeasuredReport rows_report(const std::vector<RunRow>& rows, const std::string& path,
                           const RowOptions& options);

/// Returns the scenario of a row, called by its number (from 1) or its id. Throws InputError.
std::string scenario_of_row(const std::vector<RunRow>& rows, const std::string& row);

}  // namespace penstock
