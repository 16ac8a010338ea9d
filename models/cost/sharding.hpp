// SPDX-License-Identifier: Apache-2.0
// What a stage exchanges and holds where the GPUs that have the same weights divide them, their
// gradients or the optimizer's states (ZeRO: Rajbhandari et al., SC'20; FSDP: Zhao et al.,
// VLDB'23).
#pragma once

#include "models/cost/stage_job.hpp"

namespace penstock {

/// Holds the parameters per GPU of a stage, were they not sharded, and of the largest unit of it
/// that is gathered at once: a layer, the embedding or the LM head.
struct ShardedParameters {
  std::int64_t all = 0, largest_unit = 0;
  int units = 1;  ///< layers, and what stands before and after them
};

/// Changes what a stage holds, adds what is gathered and reduced to the recipes of its ops and, for
/// updated weights that are gathered during it, a variant of its forward.
void set_sharding(const StageJob& job, const Sharding& sharding,
                  const ShardedParameters& parameters, StageCosts& costs);

}  // namespace penstock
