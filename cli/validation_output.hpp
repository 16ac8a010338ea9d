// Comparisons of predicted and measured as JSON, CSV, Markdown and the table people read.
#pragma once

#include "cli/output.hpp"
#include "validate/validation.hpp"

namespace penstock {

Json summary_json(const ErrorSummary& summary);

/// A row of `rows[]`.
Json row_json(const ValidationInput& input, const Validation& validation);

/// `time`, `memory`, `time_by_pp` and `rows` of docs/metrics.md. `tolerance`: none to be kept.
Json validation_json(const std::vector<Json>& rows, const std::optional<double>& tolerance);

/// Names of the rows whose error of time exceeds the tolerance.
std::vector<std::string> out_of_tolerance(const Json& result);

/// One recording in detail, several as a row each.
std::string validation_table(const Json& result);
std::string validation_markdown(const Json& result);
std::string validation_csv(const Json& result);

/// "time: mean |error| 1.2 %, median 1.0 %, largest 3.4 %, bias -0.3 % over 12 recordings".
std::string summary_line(const char* what, const Json& summary, const char* of = "recording");

}  // namespace penstock
