// SPDX-License-Identifier: Apache-2.0
// Quantiles and summaries of errors: the few numbers every comparison is reported in.
//   error = (predicted - measured) / measured     signed: negative is too fast, or too little
//   mape  = mean |error|,  median = median |error|,  max = largest |error|,  bias = mean error
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace penstock {

/// The q-quantile, interpolated between neighbours; q = 0.5 is the median. Precondition: not empty.
double quantile(std::vector<double> values, double q);

struct Spread {
  double p5 = 0, p50 = 0, p95 = 0;
};
/// Precondition: not empty.
Spread spread_of(const std::vector<double>& values);

/// (predicted - measured) / measured; none where nothing was measured.
std::optional<double> signed_error(double predicted, double measured);

struct ErrorSummary {
  double mape = 0, median = 0, max = 0, bias = 0;
  std::size_t n = 0;
};
ErrorSummary summarize_errors(const std::vector<double>& errors);

}  // namespace penstock
