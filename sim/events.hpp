// SPDX-License-Identifier: Apache-2.0
// Runs a Program event by event on a network that shares its links.
#pragma once

#include "sim/flow_network.hpp"

namespace penstock {

struct EventOptions {
  bool every_message_a_flow = false;
  /// What is alike and in lockstep is played once, and ops that nobody disturbs are not looked
  /// into. The times are the same; without, all is played flow by flow.
  bool shortcuts = false;
};

/// Fills in the timeline, whose messages have not happened (Timeline::no_messages).
void run_events(const SimulationInput& input, FlowNetwork& network, const EventOptions& options,
                SimgridCounts& counts, Timeline& timeline);

}  // namespace penstock
