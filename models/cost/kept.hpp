// SPDX-License-Identifier: Apache-2.0
// Bytes that a microbatch keeps on a stage, from the modules of its layers and what a stack says of
// its kernels.
#pragma once

#include "models/cost/stage_job.hpp"

namespace penstock {

/// Sets the bytes that a microbatch of a stage keeps and works with.
void set_kept_bytes(const StageKinds& kinds, bool first, bool last, PassCosts& costs);

/// Returns the bytes that a layer keeps of which these parts run again: by the stack where it says
/// what its kernels keep (with flash attention, in 16 bits).
double layer_bytes(const StageJob& job, LayerParts again = {});

/// Returns what a microbatch keeps of a stage's layers in the memory of the host, in bytes.
double offloaded_bytes(const StageKinds& kinds);

/// Returns keys and values of a layer that a context rank passes on, in bytes.
double passed_bytes(const StageJob& job);

}  // namespace penstock
