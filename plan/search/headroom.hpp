// SPDX-License-Identifier: Apache-2.0
// What leaving memory free costs: how much faster an update is with all memory used, or whether a
// plan fits then where none does.
//
// Searched again are the best plan's shape, schedule and order of ranks, from that plan on; then
// all that have these of plans that were found. Others may gain more: what is found is the least
// that headroom costs. Where there is no plan all that may be chosen is searched.
#pragma once

#include "plan/search/search.hpp"

#include <optional>

namespace penstock {

struct WithoutHeadroom {
  std::optional<FoundPlan> plan;  ///< none: none was found
  bool none_fits = false;         ///< proven; false with a plan
  double saved = 0;               ///< share of the best plan's cost; 0: no better one was found
};

/// Searches again with all memory used, for a small part of the time and of the simulations that
/// `options` allow. `result`: of `search` with the same problem, axes and options. None where
/// headroom makes no difference: none is left, no device's memory is known, least memory is the
/// objective, or there is no plan for other reasons than memory. Throws what `search` throws.
std::optional<WithoutHeadroom> search_without_headroom(const Problem& problem, const Axes& axes,
                                                       const SearchOptions& options,
                                                       const SearchResult& result);

}  // namespace penstock
