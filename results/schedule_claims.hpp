// SPDX-License-Identifier: Apache-2.0
// What a schedule's published formulas claim for a run, beside what the run shows.
//
// The formulas assume equal stages, free transfers and one flush (or the steady state without one).
// Where a run is not of that kind, or the schedule's row claims nothing for the shape, there is no
// claim.
#pragma once

#include "base/json.hpp"
#include "results/simulation.hpp"

namespace penstock {

/// Returns what a schedule's bubble is a share of: "makespan", "longest device" (from its first op
/// to its last), or "steady state" (an iteration in it).
std::string_view bubble_of(const Schedule& schedule);

struct Claims {
  std::optional<double> bubble, simulated_bubble;
  /// For each device the most activations, in those of a virtual stage (simulated: `stash_peak`).
  std::vector<std::optional<double>> peaks;
};

/// Returns what is claimed for the run, none where nothing is.
Claims claims_of(const Simulation& simulation, const Result& result);

/// Adds the claims to a result's JSON as fields.
void add_claims(const Simulation& simulation, const Result& result, Json& json);

}  // namespace penstock
