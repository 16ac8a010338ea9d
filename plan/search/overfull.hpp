// SPDX-License-Identifier: Apache-2.0
// What a candidate can do about devices that hold too much when it is simulated.
#pragma once

#include "plan/search/judgement.hpp"
#include "plan/search/recompute_steps.hpp"

namespace penstock {

/// A step more of recomputation in a stage of each of these devices, where there is one; false:
/// nowhere.
bool recompute_more_on(Candidate& candidate, const Overfull& overfull, const RecomputeSteps& steps);

/// Moves layers of these devices to the shortest stages of others; false: there are no others, or
/// none can be moved.
bool move_layers_off(Candidate& candidate, const Overfull& overfull);

}  // namespace penstock
