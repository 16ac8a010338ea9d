// SPDX-License-Identifier: Apache-2.0
// One optimizer step of a stage, as the executor and its sequential reference both issue it: they
// must agree bit for bit. The learning rate of a step follows from its number; the norm that is
// clipped is that of the stage's own gradient, which needs no word from other stages.
#pragma once

#include "hw/math.hpp"
#include "hw/run_plan.hpp"

namespace penstock {

/// `step` counts from 1. `samples`: gradients of microbatches in the sum that `t.gradient` is.
void issue_optimizer_step(Math& math, const RunPlan& plan, std::uint32_t stage,
                          std::int64_t parameters, const StepTensors& t, std::int64_t step,
                          std::uint32_t microbatches);

}  // namespace penstock
