// SPDX-License-Identifier: Apache-2.0
// Comparisons of predicted and measured (validate/validation_json.hpp) as CSV, Markdown and the
// table people read.
#pragma once

#include "cli/output.hpp"
#include "validate/run_rows.hpp"
#include "validate/sections.hpp"
#include "validate/validation_json.hpp"

namespace penstock {

/// Names of the rows whose error of time exceeds the tolerance.
std::vector<std::string> out_of_tolerance(const Json& result);

/// One recording in detail, several as a row each.
std::string validation_table(const Json& result);
std::string validation_markdown(const Json& result);
std::string validation_csv(const Json& result);

/// Of the options of commands that predict measured rows.
RowOptions row_options_of(const Arguments& arguments);

/// What was fitted on what, the parameters, errors by depth and the rows that are far off.
/// `all_rows` lists every row.
std::string measured_table(const Json& report, const Json& rows, bool all_rows);

}  // namespace penstock
