// SPDX-License-Identifier: Apache-2.0
// What the perturbations of a scenario cost: the run with and without them, each key by itself, the
// percentiles over the runs of a jitter, and the goodput of a long job.
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// Returns the study, or none for a scenario without perturbations. Throws InputError when the
/// engine cannot represent the scenario.
std::optional<PerturbationStudy> study_perturbations(const Scenario& scenario, EngineChoice engine);

}  // namespace penstock
