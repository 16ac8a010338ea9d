// SPDX-License-Identifier: Apache-2.0
// Searches for plans whose stages all recompute alike, by one search for each recomputation.
#pragma once

#include "plan/search/search.hpp"

namespace penstock {

/// Runs one search after the other, each of which starts from the best plan so far, and returns the
/// joint result.
SearchResult search_uniform(const Problem& problem, const Axes& axes, SearchOptions options);

}  // namespace penstock
