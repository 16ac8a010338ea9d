// The plans of a planner as a report: the best one's stages as bars, all plans as a table.
#pragma once

#include "cli/planning.hpp"
#include "report/report.hpp"

namespace penstock {

Report plan_report(const PlanTask& task, const PlanResult& result, const Arguments& arguments);

/// "15-1", or "8x4" where all stages have as many replicas.
std::string replicas_text(const Plan& plan);

/// "0-7", "0-3 8-11", "5".
std::string ranges_text(const std::vector<int>& devices);

}  // namespace penstock
