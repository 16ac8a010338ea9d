// Planners side by side, as a table and as JSON.
#pragma once

#include "base/json.hpp"
#include "plan/search/comparison.hpp"

#include <string>
#include <vector>

namespace penstock {

std::string comparison_table(const std::vector<ComparedPlanner>& planners);
Json to_json(const ComparedPlanner& planner);

}  // namespace penstock
