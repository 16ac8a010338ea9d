// SPDX-License-Identifier: Apache-2.0
// How much slower one device gets by what its neighbours do: on partitions of one GPU, which share
// its memory, caches and power.
//
// The first device runs one kind of work, again and again, while the others idle, multiply matrices
// or stream through memory. Sizes are the model's: a product of its MLP, a step over a layer's
// parameters, a softmax over its scores.
#pragma once

#include "hw/calibration.hpp"

namespace penstock {

/// Measures what is missing of `done` and appends it. `keep` is called after each; false: no time
/// is left, the rest is not begun. Precondition: two devices at least.
void measure_interference(const CalibrationRequest& request, Backend& backend, RunControl& control,
                          std::vector<InterferenceMeasurement>& done,
                          const std::function<bool()>& keep);

}  // namespace penstock
