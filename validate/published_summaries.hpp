// SPDX-License-Identifier: Apache-2.0
// Published summaries of runs that name models and systems instead of their sizes:
// Megatron-Bridge's performance summary ("Tokens / sec / GPU") and MLPerf Training 6.0's
// configurations (column `benchmark`). Each becomes a table of runs (validate/run_table.hpp); rows
// of models that are not predicted say so.
#pragma once

#include "base/csv.hpp"

namespace penstock {

bool is_summary(const std::vector<std::string>& columns);

/// Returns the rows with the columns of one of ours.
CsvTable summary_as_runs(const CsvTable& table);

}  // namespace penstock
