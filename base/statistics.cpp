// SPDX-License-Identifier: Apache-2.0
#include "base/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

double quantile(std::vector<double> values, double q) {
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(place);
  const auto at = values.begin() + below;
  std::nth_element(values.begin(), at, values.end());
  const double share = place - static_cast<double>(below);
  if (share == 0) return *at;
  return *at + share * (*std::min_element(at + 1, values.end()) - *at);
}

Spread spread_of(const std::vector<double>& values) {
  return {quantile(values, 0.05), quantile(values, 0.5), quantile(values, 0.95)};
}

std::optional<double> signed_error(double predicted, double measured) {
  if (measured == 0) return std::nullopt;
  return (predicted - measured) / measured;
}

ErrorSummary summarize_errors(const std::vector<double>& errors) {
  ErrorSummary s;
  s.n = errors.size();
  if (errors.empty()) return s;
  std::vector<double> sizes;
  for (const double e : errors) {
    sizes.push_back(std::abs(e));
    s.mape += std::abs(e);
    s.bias += e;
  }
  s.mape /= static_cast<double>(s.n);
  s.bias /= static_cast<double>(s.n);
  s.median = quantile(sizes, 0.5);
  s.max = *std::ranges::max_element(sizes);
  return s;
}

}  // namespace penstock
