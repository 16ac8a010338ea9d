// Comparisons of predicted and measured (validate/validation_json.hpp) as CSV, Markdown and the
// table people read.
#pragma once

#include "cli/output.hpp"
#include "validate/run_rows.hpp"
#include "validate/validation_json.hpp"

namespace penstock {

/// Names of the rows whose error of time exceeds the tolerance.
std::vector<std::string> out_of_tolerance(const Json& result);

/// One recording in detail, several as a row each.
std::string validation_table(const Json& result);
std::string validation_markdown(const Json& result);
std::string validation_csv(const Json& result);

/// "time: mean |error| 1.2 %, median 1.0 %, largest 3.4 %, bias -0.3 % over 12 recordings".
std::string summary_line(const char* what, const Json& summary, const char* of = "recording");

/// Of the options of commands that predict measured rows.
RowOptions row_options_of(const Arguments& arguments);

/// How many parameters were fitted; if none, where those of the stacks come from.
std::string fitted_text(const Json& report);

/// A line per note; those of stacks are in `fitted_text`.
std::string notes_text(const Json& report);

/// What was fitted on what, the parameters, errors by depth and the rows that are far off.
/// `all_rows` lists every row.
std::string measured_table(const Json& report, const Json& rows, bool all_rows);

}  // namespace penstock
