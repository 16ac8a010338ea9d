// SPDX-License-Identifier: Apache-2.0
// GOAL, the schedules of LogGOPSim (Hoefler, Schneider, Lumsdaine: "LogGOPSim - Simulating
// Large-Scale Applications in the LogGOPS Model", LSAP'10), as its txt2bin reads them:
//
//   num_ranks 2
//   rank 0 {
//   l1: calc 1000              computing, nanoseconds
//   l2: send 64b to 1 tag 0
//   l2 requires l1
//   }
//
// A rank is a device. GOAL has no collectives: a reduction among w devices is a ring, 2(w-1) steps
// of 1/w of the bytes each.
#pragma once

#include "schedules/formats/activities.hpp"

namespace penstock {

/// The whole file. Throws InputError when a tag would not fit in 32 bits.
std::string to_goal(const ActivityGraph& graph);

}  // namespace penstock
