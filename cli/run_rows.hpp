// `penstock validate TABLE.csv --as runs`: every row of a table of training runs as a scenario
// (validate/run_table.hpp), predicted by what `simulate` uses.
#pragma once

#include "cli/running.hpp"
#include "results/simulation.hpp"
#include "validate/measured_rows.hpp"
#include "validate/run_table.hpp"

namespace penstock {

/// What `simulate` says of a row's scenario, beside what was measured.
MeasuredRowResult predict_row(const RunRow& row, Scenario scenario, EngineChoice engine,
                              ProgramCache* programs = nullptr);

/// Predicts every row of this file or folder; those whose scenario is refused are said and left
/// out. Throws InputError when that are all.
MeasuredReport rows_report(const std::vector<RunRow>& rows, const std::string& path,
                           const Arguments& arguments);

/// The scenario of a row: by its number, from 1, or its id. Throws InputError.
std::string scenario_of_row(const std::vector<RunRow>& rows, const std::string& row);

}  // namespace penstock
