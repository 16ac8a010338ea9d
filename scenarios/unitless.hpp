// SPDX-License-Identifier: Apache-2.0
// A schedule by itself, with op times that have no unit: what `penstock schedule show` and `export`
// make of a name and its --set options.
#pragma once

#include "scenarios/scenario.hpp"

namespace penstock {

/// Four devices, eight microbatches (or the nearest number that the schedule admits) and F = I = W
/// = 1, B = 2, but for what the overrides say. Numbers are seconds, those of activations bytes.
/// Throws InputError.
Scenario unitless_scenario(const std::string& schedule, const std::vector<Override>& overrides);

}  // namespace penstock
