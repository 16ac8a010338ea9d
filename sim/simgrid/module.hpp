// The SimGrid module: loaded on first use, because linking SimGrid costs every start of the program
// 20 ms.
#pragma once

#include "sim/flow_network.hpp"

namespace penstock {

inline constexpr const char* kSimgridEntry = "penstock_simgrid_network";
/// A new one, of which a process can have one.
using SimgridEntry = FlowNetwork*();

}  // namespace penstock
