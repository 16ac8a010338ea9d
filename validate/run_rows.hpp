// SPDX-License-Identifier: Apache-2.0
// Tables of training runs (validate/run_table.hpp): every row as a scenario, predicted by what
// `simulate` uses, beside what was measured.
#pragma once

#include "results/simulation.hpp"
#include "validate/measured_rows.hpp"
#include "validate/run_table.hpp"

namespace penstock {

/// How rows are predicted, and what their files do not say.
struct RowOptions {
  std::vector<Override> changes;  ///< of each of their scenarios
  EngineChoice engine = EngineChoice::automatic;
  std::string form;             ///< that the file is named as (`--as`); empty: its own
  std::string profiles, model;  ///< of Sailor's data; empty: looked for (validate/sailor_runs.py)
};

/// Returns what `simulate` says of a row's scenario, beside what was measured.
MeasuredRowResult predict_row(const RunRow& row, Scenario scenario, EngineChoice engine);

/// Predicts every row of this file or folder; those whose scenario is refused are noted and left
/// out. Throws InputError when that are all.
MeasuredReport rows_report(const std::vector<RunRow>& rows, const std::string& path,
                           const RowOptions& options);

/// Returns the scenario of a row, called by its number (from 1) or its id. Throws InputError.
std::string scenario_of_row(const std::vector<RunRow>& rows, const std::string& row);

}  // namespace penstock
