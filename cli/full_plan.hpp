// SPDX-License-Identifier: Apache-2.0
// penstock plan --search full: our own search (plan/search/full_plan.hpp) for a model on a cluster,
// and, with --compare, what the published planners would run there, simulated alike.
#pragma once

#include "base/error.hpp"
#include "cli/options.hpp"
#include "plan/search/full_plan.hpp"
#include "report/report.hpp"

namespace penstock {

/// Do the options of `penstock plan` name our own search?
bool wants_full_plan(const Arguments& arguments);

int run_full_plan(const Arguments& arguments);

/// The default: what `run_full_plan` does, or why it cannot be asked.
std::optional<InputError> full_plan_unless_refused(const Arguments& arguments);

/// `statistics`: with what the search looked at.
std::string to_text(const FullPlan& plan, std::size_t width, bool statistics);
std::string plans_csv(const FullPlan& plan);
Report plan_report(const FullPlan& plan, const Arguments& arguments);

}  // namespace penstock
