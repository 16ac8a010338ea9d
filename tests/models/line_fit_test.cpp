// SPDX-License-Identifier: Apache-2.0
// Lines through measured times: exact data is recovered, noisy data nearly, and what cannot be
// negative is not.
#include "models/line_fit.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::line_fit_test {
namespace {

constexpr double kSizes[] = {1024, 16384, 131072, 1048576, 8388608, 67108864};

TEST(LineFit, RecoversLatencyAndBandwidth) {
  std::vector<FitPoint> points;
  for (const double bytes : kSizes) points.push_back({bytes, 15e-6 + bytes / 12e9});
  const LineFit fit = fit_line(points);
  EXPECT_NEAR(fit.intercept, 15e-6, 1e-12);
  EXPECT_NEAR(1 / fit.slope, 12e9, 1);
  EXPECT_LT(fit.residual, 1e-9);
}

TEST(LineFit, NoiseOfThreePercentMovesBothByLittle) {
  // A hash as noise, so that every run sees the same.
  unsigned state = 7;
  std::vector<FitPoint> points;
  for (const double bytes : kSizes) {
    for (int i = 0; i < 20; ++i) {
      state = state * 1664525 + 1013904223;
      const double noise = 0.03 * (2.0 * (state >> 8) / (1 << 24) - 1);
      points.push_back({bytes, (15e-6 + bytes / 12e9) * (1 + noise)});
    }
  }
  const LineFit fit = fit_line(points);
  EXPECT_NEAR(fit.intercept, 15e-6, 0.01 * 15e-6);
  EXPECT_NEAR(1 / fit.slope, 12e9, 0.01 * 12e9);
  EXPECT_GT(fit.residual, 0.02);
  EXPECT_LT(fit.residual, 0.05);
}

TEST(LineFit, SmallTimesCountAsMuchAsLargeOnes) {
  // 1 % off at the largest size would swallow the latency if errors were absolute.
  const LineFit fit = fit_line({{0, 10e-6}, {1e6, 110e-6}, {1e9, 101e-3}});
  EXPECT_NEAR(fit.intercept, 10e-6, 0.1e-6);
}

TEST(LineFit, NegativeOverheadBecomesNone) {
  const LineFit fit = fit_line({{1, 1.0}, {3, 3.3}});
  EXPECT_EQ(fit.intercept, 0);
  // Minimum of (b/1 - 1)^2 + (3b/3.3 - 1)^2: b = (1 + 1/1.1) / (1 + 1/1.21).
  EXPECT_NEAR(fit.slope, (1 + 1 / 1.1) / (1 + 1 / 1.21), 1e-12);
  EXPECT_NEAR(fit.residual, std::abs(3 * fit.slope - 3.3) / 3.3, 0.05);
}

TEST(LineFit, FallingTimesAreConstant) {
  const LineFit fit = fit_line({{1, 2.0}, {2, 2.0}, {3, 1.0}});
  EXPECT_EQ(fit.slope, 0);
  EXPECT_NEAR(fit.intercept, (0.5 + 0.5 + 1) / (0.25 + 0.25 + 1), 1e-12);
}

TEST(LineFit, OnePointGoesThroughTheOrigin) {
  const LineFit fit = fit_line({{4, 2.0}});
  EXPECT_EQ(fit.intercept, 0);
  EXPECT_EQ(fit.slope, 0.5);
  EXPECT_EQ(fit.residual, 0);
}

}  // namespace
}  // namespace penstock::line_fit_test
