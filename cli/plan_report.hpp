// SPDX-License-Identifier: Apache-2.0
// The plans of a planner as a report: the best one's stages as bars, all plans as a table.
#pragma once

#include "cli/options.hpp"
#include "plan/search/task.hpp"
#include "report/report.hpp"

namespace penstock {

Report plan_report(const PlanTask& task, const PlanResult& result, const Arguments& arguments);

}  // namespace penstock
