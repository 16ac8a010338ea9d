// SPDX-License-Identifier: Apache-2.0
// Plans whose stages all recompute alike: searches of which each knows one recomputation.
#pragma once

#include "plan/search/search.hpp"

namespace penstock {

/// One search after the other; each begins with the best so far.
SearchResult search_uniform(const Problem& problem, const Axes& axes, SearchOptions options);

}  // namespace penstock
