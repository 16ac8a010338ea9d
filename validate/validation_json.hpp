// SPDX-License-Identifier: Apache-2.0
// Comparisons of predicted and measured as JSON: the fields of docs/metrics.md.
#pragma once

#include "base/json.hpp"
#include "validate/measured_rows.hpp"
#include "validate/validation.hpp"

namespace penstock {

Json to_json(const ErrorSummary& summary);

/// A row of `rows[]`, of a recording.
Json row_json(const ValidationInput& input, const Validation& validation);

/// Likewise those of a table, one per configuration.
std::vector<Json> measured_rows_json(const MeasuredReport& report);

/// An entry of `measured[]`: protocol, parameters and summaries of one file.
Json measured_report_json(const MeasuredReport& report);

/// `time`, `memory`, `time_by_pp` and `rows`. `tolerance`: none to be kept.
Json validation_json(const std::vector<Json>& rows, const std::optional<double>& tolerance);

}  // namespace penstock
