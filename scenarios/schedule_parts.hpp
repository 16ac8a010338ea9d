// What a schedule that looks at costs is told of them.
#pragma once

#include "scenarios/scenario.hpp"

namespace penstock {

/// Tells the schedule the stages' times and activations, in seconds and bytes (or 1 each, where the
/// model says nothing of bytes), and the time of a message.
void tell_costs(Scenario& scenario);

}  // namespace penstock
