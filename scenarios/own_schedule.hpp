// Schedules of the user's own: a table of torch.distributed.pipelining (FILE.csv), or a building
// block (a map in the scenario, or FILE.yaml).
#pragma once

#include "scenarios/library.hpp"
#include "scenarios/scenario.hpp"

namespace penstock {

/// Is this value of `schedule` not the name of a known one?
bool is_own_schedule(const Value& value);

/// The schedule, proven to run, or null with everything that is wrong in `diagnostics`. What is
/// worth knowing goes to the scenario's notes.
std::shared_ptr<const Schedule> read_own_schedule(const Value& value, Library& library,
                                                  Scenario& scenario, Diagnostics& diagnostics);

}  // namespace penstock
