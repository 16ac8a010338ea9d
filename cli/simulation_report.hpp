// SPDX-License-Identifier: Apache-2.0
// A simulated run as a report: the answers, where its time goes, its timeline, memory, and what
// would help.
#pragma once

#include "cli/output.hpp"
#include "report/report.hpp"
#include "report/section.hpp"

#include <optional>

namespace penstock {

/// Ready to be written.
Report simulation_report(const Simulation& simulation, const Result& result,
                         const Arguments& arguments, TimeWindow window = {});

/// Returns how far off predictions of such jobs were; nothing where its times are given.
std::optional<KeyFigure> sure_figure(const Scenario& scenario);

/// Returns "6.84", "1,234": as many digits as a prediction is worth.
std::string rate_text(double per_s);

/// What every device did, of the first `replicas` only (0: of all).
std::string timeline_section(const Simulation& simulation, SectionText text,
                             std::uint32_t replicas = 0, TimeWindow window = {});

}  // namespace penstock
