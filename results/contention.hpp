// SPDX-License-Identifier: Apache-2.0
// Devices that share memory, as partitions of one GPU do: an op takes longer the more of its time
// its neighbours are at work.
//   time = time alone x (1 + w_p (s_p - 1) + w_s (s_s - 1))
// s_p, s_s: how much slower all neighbours make it while they run products (F, B, I, W) or steps,
// as measured (models/layer_profile.hpp). w_p, w_s: the mean share of its neighbours in these,
// while ops of its stage and kind run. The shares follow from the timeline and the timeline from
// the times, so both are found by turns, half the way each time. A bubble of a neighbour makes an
// op faster, a step of a schedule without a flush meets products instead of steps; what varies from
// op to op of one stage and kind is lost in the mean.
#pragma once

#include "models/layer_profile.hpp"
#include "program/op_lists.hpp"
#include "program/timeline.hpp"

#include <vector>

namespace penstock {

/// Of the costs of stages alone on the device, those beside what the others did in the timeline.
std::vector<StageCosts> contended_costs(std::vector<StageCosts> alone, const OpLists& ops,
                                        const Placement& placement, const Timeline& timeline,
                                        const NeighbourSlowdowns& interference);

/// Moves the times of `costs` by `part` of the way to those of `next`; the largest change that is
/// left, relative to the time.
double approach(std::vector<StageCosts>& costs, std::vector<StageCosts> next, double part);

}  // namespace penstock
