// SPDX-License-Identifier: Apache-2.0
// Which part of a run is compared: the iterations after the warm-up, cut the same way out of a
// predicted and a measured timeline.
//
// With a flush the first two are warm-up in runs of at least four, the first in shorter ones (a
// single batch is compared as it is); see program/iterations.hpp.
#pragma once

#include "program/iterations.hpp"

#include <vector>

namespace penstock {

/// Returns the updates that are compared: the steady state without the warm-up that runs of
/// machines have.
SteadyUpdates compared_updates(const Program& program);

/// Returns the seconds per update, a sample for every `steady.step` updates, without incomplete
/// updates.
std::vector<double> iteration_samples(const Program& program, const Timeline& timeline,
                                      const SteadyUpdates& steady);

}  // namespace penstock
