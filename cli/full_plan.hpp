// `penstock plan --search full`: the search of our own (plan/search/search.hpp) on a scenario, or
// on a model with a cluster; its plans with what limits each, and the files that run them.
#pragma once

#include "cli/options.hpp"

namespace penstock {

/// Throws InputError.
int run_full_plan(const Arguments& arguments);

/// Does `plan` mean this search? Without --search it does, except for a profile's graph.
bool wants_full_plan(const Arguments& arguments);

}  // namespace penstock
