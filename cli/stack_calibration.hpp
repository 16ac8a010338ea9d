// `penstock calibrate --from TABLE`: numbers of a training stack fitted to measured runs, through
// the model that `simulate` uses. A row has no number of its own.
#pragma once

#include "cli/options.hpp"

namespace penstock {

/// Fits, prints how well the rows (with --folds: rows that a fit has not seen) are predicted, and
/// writes the stack to --output. Returns the exit code. Throws InputError.
int calibrate_stack(const Arguments& arguments);

}  // namespace penstock
