// Published measurements beside their predictions as the table people read; recordings have
// cli/validation_output.hpp.
#pragma once

#include "cli/output.hpp"
#include "validate/run_rows.hpp"
#include "validate/validation_json.hpp"

namespace penstock {

/// Of the options of commands that predict measured rows.
RowOptions row_options_of(const Arguments& arguments);

/// Rows that are further off are named.
inline constexpr double kLargeError = 0.15;

/// How many parameters were fitted; if none, where those of the stacks come from.
std::string fitted_text(const Json& report);

/// A line per note; those of stacks are in `fitted_text`.
std::string notes_text(const Json& report);

/// What was fitted on what, the parameters, errors by depth and the rows that are far off.
/// `all_rows` lists every row.
std::string measured_table(const Json& report, const Json& rows, bool all_rows);

}  // namespace penstock
