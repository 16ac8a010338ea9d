// A model given as a profile of PipeDream's: layers with times, instead of a shape or of stages.
#pragma once

#include "scenarios/library.hpp"

namespace penstock {

/// Has this model a 'profile'?
bool is_profiled_model(const Section& model);

/// The profile of a model; none, with diagnostics, when it cannot be had.
std::optional<PipedreamProfile> read_profile(const Section& model, Library& library,
                                             Diagnostics& diagnostics);

/// Sets the costs of the stages of a scenario whose profile and microbatch size are known, its
/// layers where they depend on costs, and notes for the user what the costs are taken from.
void cost_profiled(const Section& model, Scenario& scenario, Diagnostics& diagnostics);

}  // namespace penstock
