// SPDX-License-Identifier: Apache-2.0
// Fits the numbers of a training stack (models/stacks) to measured runs by least squares of
// log(predicted / measured), where the prediction is that of `simulate`. No row has a parameter of
// its own.
#pragma once

#include "validate/run_rows.hpp"

namespace penstock {

struct StackFit {
  std::string table;  ///< the file or folder of the rows
  std::string stack;  ///< the stack whose numbers the fit starts from
  RowOptions rows;
  bool memory = false;  ///< fits peak memory instead of iteration times
  std::vector<std::string>
      numbers;  ///< the stack's numbers that are fitted; empty: all that matter
  /// The number of parts of a cross-validation, which `seed` makes: the rows of each are predicted
  /// by a fit on the others. 0 and 1: none.
  std::uint64_t folds = 0, seed = 1;
};

struct FittedStack {
  MeasuredReport report;  ///< the rows under the fit, and the parameters
  std::string text;       ///< the fitted stack, as YAML
};

/// Returns the fit, the same for the same arguments. Throws InputError where the stack or the rows
/// are not valid, or the rows too few.
FittedStack fit_stack(const StackFit& wanted);

}  // namespace penstock
