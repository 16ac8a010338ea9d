// SPDX-License-Identifier: Apache-2.0
// Published summaries of runs that name models and systems instead of their sizes:
// Megatron-Bridge's performance summary ("Tokens / sec / GPU") and MLPerf Training 6.0's
// configurations (column `benchmark`). Each becomes a table of runs (validate/run_table.hpp); rows
// of models that are not predicted say so.
#pragma once

#include "base/csv.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Returns whether a header is that of such a table, or of one whose runs lack what a scenario
/// needs.
bool is_summary(const std::vector<std::string>& columns);

/// Returns what a known file of other measurements holds instead of runs; "" of any other.
std::string why_no_runs(const std::string& text);

/// Returns the rows with the columns of one of ours.
CsvTable summary_as_runs(const CsvTable& table);

inline constexpr const char* kOpTimeColumns[] = {"f_us",       "b_us",       "s_us",
                                                 "input_f_us", "input_b_us", "comm_us"};
/// Returns whether a table of runs also says what each device's F and B took (`f_us`, `b_us`).
bool has_op_times(const std::vector<std::string>& columns);

/// Returns the rows of such a table as 1F1B of these times, without a model. Of vocabulary layers
/// that all stages share, `s_us`, `input_f_us` and `input_b_us` are parts of each device's B and F,
/// `comm_us` of B.
CsvTable op_times_as_runs(const CsvTable& table, const std::string& origin);

}  // namespace penstock
