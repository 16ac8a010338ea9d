// The door of the SimGrid module: loaded on first use, because linking SimGrid costs every start of
// the program 20 ms.
#pragma once

#include "base/progress.hpp"
#include "sim/engine.hpp"

namespace penstock {

inline constexpr const char* kSimgridEntry = "penstock_simgrid_run";
using SimgridEntry = void(const SimulationInput& input, const SimgridOptions& options,
                          SimgridCounts& counts, Timeline& timeline);

}  // namespace penstock
