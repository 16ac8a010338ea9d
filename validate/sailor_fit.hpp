// Fits the parameters of Sailor's predictions to measured rows (validate/least_squares.hpp): to the
// relative errors of the iteration times and of the memory, and to those of the gradient reductions
// relative to the iteration.
#pragma once

#include "validate/sailor.hpp"

namespace penstock {

struct SailorRow {
  SailorPlan plan;
  const SailorData* data;
};

/// The fitted parameters; the others as in `start`. Deterministic.
SailorParameters fit_sailor(const std::vector<SailorRow>& rows, const SailorParameters& start = {});

}  // namespace penstock
