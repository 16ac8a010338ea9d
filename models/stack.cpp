// SPDX-License-Identifier: Apache-2.0
#include "models/stack.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

}  // namespace

double slowest_pace(const std::vector<double>& stage_s, const std::vector<int>& widths,
                    double spread) {
  const double longest = *std::ranges::max_element(stage_s);
  if (spread <= 0 || longest <= 0) return 1;
  const auto chance = [&](double pace) {
    double all = 1;
    for (std::size_t s = 0; s < stage_s.size(); ++s)
      if (stage_s[s] > 0)
        all *= std::pow(normal_cdf((pace * longest / stage_s[s] - 1) / spread), widths[s]);
    return all;
  };
  double low = 1, high = 1 + 10 * spread;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (chance(middle) < 0.5 ? low : high) = middle;
  }
  return high;
}

}  // namespace penstock
