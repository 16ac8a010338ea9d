// Fits the parameters of Sailor's predictions to measured rows: the smallest sum of
// sqrt(1 + (e / 2 %)^2) over the relative errors e of the iteration times, of the memory, and of
// the reductions relative to the iteration (a row that is off by much counts in proportion, not
// squared).
#pragma once

#include "validate/sailor.hpp"

namespace penstock {

struct SailorRow {
  SailorPlan plan;
  const SailorData* data;
};

/// The fitted parameters (the others as in `start`), by a pattern search (Hooke and Jeeves, 1961)
/// from `start`: deterministic.
SailorParameters fit_sailor(const std::vector<SailorRow>& rows, const SailorParameters& start);

}  // namespace penstock
