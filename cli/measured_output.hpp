// Published measurements beside their predictions (validate/measured_rows.hpp) as JSON and as the
// table people read; recordings have cli/validation_output.hpp.
#pragma once

#include "cli/output.hpp"
#include "validate/measured_rows.hpp"

namespace penstock {

/// Rows that are further off are named.
inline constexpr double kLargeError = 0.15;

/// The rows of `rows[]`, one per configuration.
std::vector<Json> measured_rows_json(const MeasuredReport& report);

/// An entry of `measured[]`: protocol, parameters and summaries of one file.
Json measured_report_json(const MeasuredReport& report);

/// How many parameters were fitted; if none, where those of the stacks come from.
std::string fitted_text(const Json& report);

/// A line per note; those of stacks are in `fitted_text`.
std::string notes_text(const Json& report);

/// What was fitted on what, the parameters, errors by depth and the rows that are far off.
/// `all_rows` lists every row.
std::string measured_table(const Json& report, const Json& rows, bool all_rows);

}  // namespace penstock
