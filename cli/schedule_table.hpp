// SPDX-License-Identifier: Apache-2.0
// The table of schedules: `penstock schedule list`, of which docs/schedules.md shows the same.
#pragma once

#include "cli/output.hpp"

namespace penstock {

/// A row per schedule, with every field a scalar or a list of words.
Json schedules_json();

/// The schedules by family, in lines of at most `columns`.
std::string schedules_text(std::size_t columns);

}  // namespace penstock
