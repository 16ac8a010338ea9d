// SPDX-License-Identifier: Apache-2.0
// What of a scenario an executor is told beside its Program and costs, and which cannot be
// executed.
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// Throws InputError for what is predicted only. `perturbed`: what disturbs the run may be there,
/// because it changes nothing but times. `real`: the model is computed, by each GPU its part; a
/// stand-in is computed once for all GPUs of a device.
void require_executable(const Scenario& scenario, bool perturbed, bool real);

}  // namespace penstock
