// The plans of a planner as a report: the best one's stages as bars, all plans as a table.
#pragma once

#include "cli/planning.hpp"
#include "report/report.hpp"

namespace penstock {

Report plan_report(const PlanTask& task, const PlanResult& result, const Arguments& arguments);

/// "0-7", "0-3 8-11", "5".
std::string ranges_text(const std::vector<int>& devices);

}  // namespace penstock
