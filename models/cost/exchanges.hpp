// SPDX-License-Identifier: Apache-2.0
// What the GPUs of a stage exchange inside of its ops: recipes, as the head of
// models/stage_costs.hpp lists them.
#pragma once

#include "models/cost/stage_job.hpp"

namespace penstock {

/// Seconds of a layer's forward, the mean over a stage's layers: of attention, of the products of
/// its matrices, and of these (with what is between them) those of routed experts.
struct LayerProducts {
  double attention_s = 0, products_s = 0, experts_s = 0;
};

/// Sets the recipes of a stage's ops, whose seconds are known.
void set_recipes(const StageKinds& kinds, bool first, bool last, const LayerProducts& forward,
                 PassCosts& costs);

}  // namespace penstock
