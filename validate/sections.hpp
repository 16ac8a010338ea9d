// SPDX-License-Identifier: Apache-2.0
// A recording's comparison as sections of a report: predicted above measured on one time axis, and
// where the error comes from.
//
// The timelines are laid on each other at the first update after the warm-up, so that what is seen
// is the difference within these iterations, not what has added up before; the page can lay them on
// each other at any other.
#pragma once

#include "base/json.hpp"
#include "validate/measured_rows.hpp"
#include "validate/validation.hpp"

#include <string>
#include <vector>

namespace penstock {

std::vector<std::string> validation_sections(const ValidationInput& input,
                                             const Validation& validation);

/// Predicted beside measured, of all recordings; rows of validate/validation_json.hpp.
std::string recordings_section(const std::vector<Json>& rows);

/// Predicted over measured of the rows of a table; `json`: its entry of `measured[]`.
std::string measured_section(const MeasuredReport& report, const Json& json);

/// "time: mean |error| 1.2 %, median 1.0 %, largest 3.4 %, bias -0.3 % over 12 recordings".
std::string summary_line(const char* what, const Json& summary, const char* of = "recording");

/// How many parameters were fitted; if none, where those of the stacks come from.
std::string fitted_text(const Json& report);

/// A line per note; those of stacks are in `fitted_text`.
std::string notes_text(const Json& report);

}  // namespace penstock
