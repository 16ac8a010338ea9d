// SPDX-License-Identifier: Apache-2.0
// Numbers of a training stack (models/stacks) fitted to measured runs, through the model that
// `simulate` uses: least squares of log(predicted / measured). A row has no number of its own.
#pragma once

#include "validate/run_rows.hpp"

namespace penstock {

struct StackFit {
  std::string table;  ///< a file or folder of rows
  std::string stack;  ///< to start from
  RowOptions rows;
  bool memory = false;               ///< fitted is peak memory, not the time of iterations
  std::vector<std::string> numbers;  ///< of the stack; none: all that change what is fitted
  /// More than 1: rows are predicted by fits on the other parts, of so many that `seed` makes.
  std::uint64_t folds = 0, seed = 1;
};

struct FittedStack {
  MeasuredReport report;  ///< the rows under the fit, and the parameters
  std::string text;       ///< of the stack, as YAML
};

/// Deterministic. Throws InputError: a stack or rows that are none, too few rows.
FittedStack fit_stack(const StackFit& wanted);

}  // namespace penstock
