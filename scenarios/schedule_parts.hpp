// What a schedule is asked for beyond its numbers of stages and microbatches: chunks, groups,
// memory limits, checkpoints; and what a schedule that looks at costs is told of them.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

namespace penstock {

/// Reads these keys of `pipeline` into the scenario's shape; those that have no meaning for its
/// schedule are errors.
void read_schedule_options(const Section& pipeline, Scenario& scenario, Diagnostics& diagnostics);

/// Tells the schedule the stages' times and activations, in seconds and bytes (or 1 each, where the
/// model says nothing of bytes), and the time of a message.
void tell_costs(Scenario& scenario);

/// One backward for all microbatches of an update: its costs are theirs together.
void cost_whole_backwards(Scenario& scenario);

/// Costs of microbatches whose activations are stored, beside `costs` of those recomputed.
void add_stored(std::vector<StageCosts>& costs, const std::vector<StageCosts>& stored);

}  // namespace penstock
