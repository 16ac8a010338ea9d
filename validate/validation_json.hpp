// SPDX-License-Identifier: Apache-2.0
// Comparisons of predicted and measured as JSON: the fields of docs/metrics.md.
#pragma once

#include "base/json.hpp"
#include "validate/measured_rows.hpp"
#include "validate/validation.hpp"

namespace penstock {

/// Returns a summary as JSON.
Json to_json(const ErrorSummary& summary);

/// Returns the row of a recording in `rows[]`.
Json row_json(const ValidationInput& input, const Validation& validation);

/// Returns the rows of a table in `rows[]`, one per configuration.
std::vector<Json> measured_rows_json(const MeasuredReport& report);

/// Returns the entry of a file in `measured[]`: protocol, parameters and summaries.
Json measured_report_json(const MeasuredReport& report);

/// Returns an object with `time`, `memory`, `time_by_pp` and `rows`, and, with a `tolerance`,
/// whether it is kept.
Json validation_json(const std::vector<Json>& rows, const std::optional<double>& tolerance);

}  // namespace penstock
