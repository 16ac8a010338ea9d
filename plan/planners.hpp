// SPDX-License-Identifier: Apache-2.0
// Declares the planners of `planners()`. Each has a file of its own with its paper and formula.
#pragma once

#include "plan/plan.hpp"

namespace penstock {

PlanResult plan_pipedream(const PlanRequest& request);
PlanResult plan_2bw(const PlanRequest& request);
PlanResult plan_dapple(const PlanRequest& request);
PlanResult plan_torchgpipe(const PlanRequest& request);
PlanResult plan_uniform(const PlanRequest& request);

}  // namespace penstock
