// The key pipeline.recompute: one value for all virtual stages, or a list with one of each.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

namespace penstock {

/// Reads it into the scenario, unless that has a schedule that decides itself. `shaped`: the number
/// of stages is known. `given_costs`: the model has no shape.
void read_recompute(const Section& pipeline, bool shaped, bool given_costs, Scenario& scenario,
                    Diagnostics& diagnostics);

/// Where this value stands: of a list, the first such item; the list itself without one.
const Value& recompute_place(const Section& pipeline, Recompute value);

}  // namespace penstock
