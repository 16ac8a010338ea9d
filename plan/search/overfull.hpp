// SPDX-License-Identifier: Apache-2.0
// Changes a candidate whose devices hold too much when it is simulated.
#pragma once

#include "plan/search/judgement.hpp"
#include "plan/search/recompute_steps.hpp"

namespace penstock {

/// Recomputes one step more in a stage of each of these devices where it can. Returns whether it
/// could anywhere.
bool recompute_more_on(Candidate& candidate, const Overfull& overfull, const RecomputeSteps& steps);

/// Moves layers of these devices to the shortest stages of others. Returns whether any could be
/// moved.
bool move_layers_off(Candidate& candidate, const Overfull& overfull);

}  // namespace penstock
