// SPDX-License-Identifier: Apache-2.0
// What the row of a schedule claims for a run, beside what the run shows.
//
// Published formulas are of equal stages, free transfers and one flush (or of the steady state
// without one). Where a run is not of that kind, or its row claims nothing for the shape, there is
// no claim.
#pragma once

#include "base/json.hpp"
#include "results/simulation.hpp"

namespace penstock {

/// What the bubble of a schedule is a share of: "makespan", "longest device" (from its first op to
/// its last), or an iteration in the "steady state".
std::string_view bubble_of(const Schedule& schedule);

struct Claims {
  std::optional<double> bubble, simulated_bubble;
  /// Per device, activations of virtual stages (the simulated ones are stash_peak).
  std::vector<std::optional<double>> peaks;
};

Claims claims_of(const Simulation& simulation, const Result& result);

/// The same as fields of a result's JSON.
void add_claims(const Simulation& simulation, const Result& result, Json& json);

}  // namespace penstock
