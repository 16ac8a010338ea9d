// Runs a Program event by event on a network that shares its links.
#pragma once

#include "sim/flow_network.hpp"

namespace penstock {

/// Fills in the timeline, whose messages have not happened (Timeline::no_messages).
void run_events(const SimulationInput& input, FlowNetwork& network, const SimgridOptions& options,
                SimgridCounts& counts, Timeline& timeline);

}  // namespace penstock
