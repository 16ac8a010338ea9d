// How many replicas the stages have and how they share the work: the keys width and replication.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

namespace penstock {

/// Reads a list of widths into the scenario, whose width is the most that any stage has.
void read_widths(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics);

/// With `replication: split`, makes the replicas of a stage one device of the Program.
/// Precondition: depth, widths and the model's kind of costs are known.
void divide_microbatches(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics);

}  // namespace penstock
