// SPDX-License-Identifier: Apache-2.0
// What the perturbations of a scenario cost, in the table people read.
#pragma once

#include "results/simulation.hpp"

#include <string>

namespace penstock {

std::string perturbation_lines(const PerturbationStudy& study);

}  // namespace penstock
