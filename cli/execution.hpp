// SPDX-License-Identifier: Apache-2.0
// What the commands that execute share: a scenario as a plan for the executor.
#pragma once

#include "cli/options.hpp"
#include "results/simulation.hpp"
#include "hw/run_plan.hpp"

namespace penstock {

enum class ComputeChoice : std::uint8_t { automatic, real, stand_in };

/// --compute.
ComputeChoice compute_of(const Arguments& arguments);

/// The plan of a prepared scenario. `automatic`: the real model where the scenario has one.
/// `perturbed`: what disturbs the run may be there, because it changes nothing but times.
RunPlan run_plan_of(const Simulation& prepared, ComputeChoice compute, bool perturbed = false);

}  // namespace penstock
