// SPDX-License-Identifier: Apache-2.0
// What `penstock plan` is asked: a model, the devices and how they are joined, from a profile, a
// shipped or own model on a cluster, a calibration, or a scenario.
#pragma once

#include "cli/options.hpp"
#include "cli/plan_options.hpp"
#include "plan/search/task.hpp"

namespace penstock {

/// Options of our own search alone.
inline constexpr const char* kOnlyFull[] = {"compare",
                                            "on",
                                            "objective",
                                            "schedule",
                                            "effort",
                                            "time-limit",
                                            "headroom",
                                            "uniform-recompute",
                                            "asynchronous",
                                            "price",
                                            "statistics",
                                            "tokens",
                                            "write",
                                            "force",
                                            "recompute",
                                            "sequence-parallel",
                                            "distributed-optimizer"};

/// What the argument is. Throws InputError when a file cannot be read.
PlanInput input_of(const std::string& name);

/// The argument and its cluster; what else there is of it are options that may be wrong.
PlanSource source_of(const Arguments& arguments);

/// What the options change of a scenario.
std::vector<Override> changes_of(const Arguments& arguments, const PlanSource& source);

/// Says which options are missing, or not for such input.
void require_devices(const Arguments& arguments, PlanInput input, PlanOptions& options);

/// Throws InputError with everything that is wrong with the options. Precondition: they name a
/// published planner.
PlanTask plan_task(const Arguments& arguments);

}  // namespace penstock
