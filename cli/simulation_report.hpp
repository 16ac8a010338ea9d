// A simulated run as a report: the answers, its timeline, memory, bubble, and what would help.
#pragma once

#include "cli/output.hpp"
#include "report/report.hpp"

namespace penstock {

/// Ready to be written.
Report simulation_report(const Simulation& simulation, const Result& result,
                         const Arguments& arguments);

}  // namespace penstock
