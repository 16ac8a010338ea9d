// SPDX-License-Identifier: Apache-2.0
// The SimGrid module: loaded on first use, because linking SimGrid costs every start of the program
// 20 ms.
#pragma once

#include "sim/flow_network.hpp"

namespace penstock {

/// Starts SimGrid, once in a process; children made by fork find it started.
inline constexpr const char* kSimgridStart = "penstock_simgrid_start";
using SimgridStart = void();
inline constexpr const char* kSimgridEntry = "penstock_simgrid_network";
/// Makes a network, of which a process can have one.
using SimgridEntry = FlowNetwork*();

}  // namespace penstock
