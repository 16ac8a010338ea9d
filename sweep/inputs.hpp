// SPDX-License-Identifier: Apache-2.0
// Reads all files of a sweep before its first point, so that edits during the sweep change nothing,
// and --resume knows whether the files are the same. An error of a file, or of a value of an axis
// by itself, would be one of thousands of points and is reported at once; values that do not go
// together make rows that are refused.
#pragma once

#include "scenarios/documents.hpp"
#include "sweep/points.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Reads every file that a point can name, and closes `documents`. Throws InputError with
/// everything that is wrong with the scenarios and the values.
void read_inputs(const std::vector<std::string>& files, const std::vector<SweepAxis>& axes,
                 const std::vector<Override>& changes, const std::shared_ptr<Documents>& documents);

}  // namespace penstock
