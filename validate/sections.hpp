// SPDX-License-Identifier: Apache-2.0
// Sections of a report that compare a recording with its prediction: both timelines on one time
// axis, and the causes of the error.
//
// The timelines are aligned at the first update after the warm-up, so that the reader sees the
// difference within these iterations and not what had added up before. The page can align them at
// any other update.
#pragma once

#include "base/json.hpp"
#include "validate/measured_rows.hpp"
#include "validate/validation.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Returns the sections of one recording.
std::vector<std::string> validation_sections(const ValidationInput& input,
                                             const Validation& validation);

/// Returns the section of all recordings, whose `rows` validate/validation_json.hpp makes.
std::string recordings_section(const std::vector<Json>& rows);

/// Returns the section that draws predicted over measured values of a table's rows; `json` is its
/// entry of `measured[]`.
std::string measured_section(const MeasuredReport& report, const Json& json);

/// Returns a line such as "time: mean |error| 1.2 %, median 1.0 %, largest 3.4 %, bias -0.3 % over
/// 12 recordings".
std::string summary_line(const char* what, const Json& summary, const char* of = "recording");

/// Returns a sentence about how many parameters were fitted or, if none was, where those of the
/// stacks come from.
std::string fitted_text(const Json& report);

/// Returns a line for each note; notes of stacks are in `fitted_text`.
std::string notes_text(const Json& report);

}  // namespace penstock
