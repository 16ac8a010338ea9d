// SPDX-License-Identifier: Apache-2.0
// Which scenarios can be executed.
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// Throws InputError where the scenario has something that is predicted only. With `perturbed`,
/// perturbations are allowed, as they change nothing but times. With `real`, each GPU computes its
/// part of the model; otherwise a stand-in is computed once for all GPUs of a device.
void require_executable(const Scenario& scenario, bool perturbed, bool real);

}  // namespace penstock
