// SPDX-License-Identifier: Apache-2.0
// The files of a sweep: all are read before the first point is visited, so that what is edited
// while it runs changes nothing, and --resume knows whether they are the same. What is wrong with
// them, or with a value of an axis by itself, would be wrong with thousands of points and is said
// at once; values that do not go together are rows.
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
