// SPDX-License-Identifier: Apache-2.0
// What leaving memory free costs: how much faster an update is with all memory used, or whether a
// plan fits then where none does.
//
// The search is repeated among plans with the shape, schedule and order of ranks of the best plan,
// starting from it, then among those with the shapes, schedules and orders of the other plans that
// were found. Plans of other kinds may gain more, so the result is the least that headroom costs.
// Where there is no plan, everything is searched.
#pragma once

#include "plan/search/search.hpp"

#include <optional>

namespace penstock {

struct WithoutHeadroom {
  std::optional<FoundPlan> plan;  ///< none where none was found
  bool none_fits = false;         ///< whether it is proven that no plan fits
  /// the share of the best plan's cost that is saved; 0: no better plan was found
  double saved = 0;
};

/// Searches again with all memory used, with a small part of the time and of the simulations that
/// `options` allow. `result` is that of `search` with the same problem, axes and options. Returns
/// none where headroom makes no difference: no memory is left free, no device's memory is known,
/// least memory is the objective, or there is no plan for other reasons than memory. Throws what
/// `search` throws.
std::optional<WithoutHeadroom> search_without_headroom(const Problem& problem, const Axes& axes,
                                                       const SearchOptions& options,
                                                       const SearchResult& result);

}  // namespace penstock
