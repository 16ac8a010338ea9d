// SPDX-License-Identifier: Apache-2.0
// Writes the answers of planners as JSON: of our own search, and of the published ones.
#pragma once

#include "base/json.hpp"
#include "plan/search/full_plan.hpp"
#include "plan/search/task.hpp"

namespace penstock {

Json to_json(const FullPlan& plan);

/// Returns the answer of the task's planner.
Json to_json(const PlanTask& task, const PlanResult& result);

/// Returns the simulated samples per second; none where the plan was not simulated or does not run.
std::optional<double> simulated_samples_per_s(const Plan& plan);

/// Returns the plan that is recommended, which may be the job as given. Requires a plan.
const Offer& recommended_offer(const FullPlan& full);

}  // namespace penstock
