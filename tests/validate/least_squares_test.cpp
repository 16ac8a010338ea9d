// SPDX-License-Identifier: Apache-2.0
// Fits of a few positive numbers, what they leave open, and how rows are parted.
#include "validate/least_squares.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace penstock::least_squares_test {
namespace {

TEST(RandomParts, AreTheSameForASeedAndEquallyLarge) {
  const auto parts = random_parts(101, 10, 7);
  EXPECT_EQ(parts, random_parts(101, 10, 7));
  EXPECT_NE(parts, random_parts(101, 10, 8));
  for (int part = 1; part < 10; ++part) EXPECT_EQ(std::ranges::count(parts, part), 10);
  EXPECT_EQ(random_parts(8, 2, 1), (std::vector<int>{0, 0, 1, 1, 1, 1, 0, 0}));
}

TEST(LeastSquares, FindsWhatExplainsTheRowsAndLeavesTheRest) {
  const std::vector<FitRange> ranges = {{1, 0.01, 100}, {1, 0.01, 100}, {5, 0.01, 100}};
  const Residuals line = [](const std::vector<double>& x) {
    std::vector<double> out;
    for (int i = 1; i <= 20; ++i)
      out.push_back(std::log((x[0] + x[1] * i) / (i == 7 ? 50 : 3.0 + 0.5 * i)));  // 7: disturbed
    return out;
  };
  const auto x = fit_least_squares(line, ranges, {1, 1, 5}, {0.001, 1e-5, 100});
  EXPECT_NEAR(x[0], 3, 0.01);
  EXPECT_NEAR(x[1], 0.5, 0.002);
  EXPECT_DOUBLE_EQ(x[2], 5);
}

TEST(LeastSquares, StaysWithinItsRanges) {
  const Residuals two = [](const std::vector<double>& x) {
    return std::vector<double>{std::log(x[0] / 7), std::log(x[0] * x[1] / 21)};
  };
  const auto x = fit_least_squares(two, {{1, 0.1, 6}, {1, 0.1, 100}}, {1, 1}, {1, 1e-5, 100});
  EXPECT_NEAR(x[0], 6, 1e-9);
  EXPECT_NEAR(x[1], 3.5, 1e-3);
}

TEST(LeastSquares, SaysWhatTheRowsLeaveOpen) {
  // Residuals +-0.1 around the value: 0.1 * sqrt(n / (n - 1)) / sqrt(n) of its logarithm.
  const Residuals one = [](const std::vector<double>& x) {
    std::vector<double> out;
    for (int i = 0; i < 16; ++i) out.push_back(std::log(x[0] / 2) + (i % 2 == 0 ? 0.1 : -0.1));
    return out;
  };
  EXPECT_NEAR(fit_spread(one, {2})[0], 0.1 / std::sqrt(15), 1e-6);
  const Residuals product = [](const std::vector<double>& x) {
    return std::vector<double>{std::log(x[0] * x[1]) + 0.1, std::log(x[0] * x[1]) - 0.1, 0.1};
  };
  EXPECT_GT(fit_spread(product, {2, 0.5})[0], 100);
}

}  // namespace
}  // namespace penstock::least_squares_test
