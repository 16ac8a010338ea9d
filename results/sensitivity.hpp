// SPDX-License-Identifier: Apache-2.0
// What would help: the scenario again with single changes, and the iteration time of each.
//
//   stage k computes 10 % faster     k: the stage with the most work; what its GPUs exchange stays
//   links of twice the bandwidth     all of them; those within and between nodes by themselves
//                                    where the run uses both
//   twice the microbatches           where the schedule's own bubble shrinks; the time of as many
//                                    samples as today
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// Of what was simulated, again with `exact` where that is valid and the run has at most 300,000
/// ops; else with `fluid`, up to 50,000 ops.
Sensitivities study_sensitivities(const Simulation& today);

}  // namespace penstock
