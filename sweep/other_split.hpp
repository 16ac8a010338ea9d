// SPDX-License-Identifier: Apache-2.0
// Finds out whether a fast point of a sweep that does not fit would fit with another split of its
// layers.
#pragma once

#include "sweep/evaluate.hpp"
#include "sweep/overview.hpp"

#include <atomic>

namespace penstock {

/// Tells the overview of the first split with which such a point fits and is faster than all
/// others. Stops when `stop` is set.
void look_for_split(Overview& overview, const Evaluator& evaluator, const Space& space,
                    const std::atomic<bool>& stop);

}  // namespace penstock
