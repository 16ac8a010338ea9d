// SPDX-License-Identifier: Apache-2.0
// Of a sweep's points that do not fit: is the fastest out of reach, or only with its split?
#pragma once

#include "sweep/evaluate.hpp"
#include "sweep/overview.hpp"

#include <atomic>

namespace penstock {

/// Tells the overview of the first split with which one of them fits and is faster than all others;
/// until `stop`.
void look_for_split(Overview& overview, const Evaluator& evaluator, const Space& space,
                    const std::atomic<bool>& stop);

}  // namespace penstock
