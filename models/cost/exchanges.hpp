// SPDX-License-Identifier: Apache-2.0
// What the GPUs of a stage exchange inside of its ops: recipes, as the head of
// models/stage_costs.hpp lists them.
#pragma once

#include "models/cost/stage_job.hpp"

namespace penstock {

/// Sets the recipes of a stage's ops, whose seconds are known. `attention_s`: of a layer's forward.
void set_recipes(const StageJob& job, int layers, bool first, bool last, double attention_s,
                 PassCosts& costs);

}  // namespace penstock
