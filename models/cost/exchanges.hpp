// SPDX-License-Identifier: Apache-2.0
// What the GPUs of a stage exchange inside of its ops: recipes, as the head of
// models/stage_costs.hpp lists them.
#pragma once

#include "models/cost/stage_job.hpp"

namespace penstock {

/// Seconds of a layer's forward: of attention, and of the products of its matrices.
struct LayerProducts {
  double attention_s = 0, products_s = 0;
};

/// Sets the recipes of a stage's ops, whose seconds are known.
void set_recipes(const StageJob& job, int layers, bool first, bool last,
                 const LayerProducts& forward, PassCosts& costs);

}  // namespace penstock
