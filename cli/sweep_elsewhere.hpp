// `penstock sweep --on`: starts who computes points elsewhere, the package for Python.
#pragma once

#include "sweep/elsewhere.hpp"

namespace penstock {

/// As visit_elsewhere, by the engine at `where`; "pipes:IN,OUT": by who has started this program
/// and handed over these descriptors. Throws InputError for a place that is none, SystemError.
void visit_on(const std::string& where, const SweepRecipe& recipe, const NextPoint& next,
              const TakeRow& take, const WorkerOptions& options);

}  // namespace penstock
