// SPDX-License-Identifier: Apache-2.0
// What planners answer as JSON: our own search, and the published ones.
#pragma once

#include "base/json.hpp"
#include "plan/search/full_plan.hpp"
#include "plan/search/task.hpp"

namespace penstock {

Json to_json(const FullPlan& plan);

/// The answer of the task's planner.
Json to_json(const PlanTask& task, const PlanResult& result);

/// What `simulate` says; none: it was not asked, or the plan does not run.
std::optional<double> simulated_samples_per_s(const Plan& plan);

/// The plan that is recommended, or the job as given. Requires a plan.
const Offer& recommended_offer(const FullPlan& full);

}  // namespace penstock
