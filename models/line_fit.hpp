// SPDX-License-Identifier: Apache-2.0
// Straight lines through measured times: t = intercept + slope * x.
//
// Latency and bandwidth of a link (x: bytes), overhead and time per layer of a stage (x: layers).
// Times span orders of magnitude and their errors grow with them, so the sum of the squared
// *relative* errors is minimal (weights 1/t^2). Neither latency nor overhead can be negative: where
// the best line has a negative intercept, the best line through the origin is taken; where it
// falls, the best constant.
#pragma once

#include <vector>

namespace penstock {

struct FitPoint {
  double x;
  double y;  ///< > 0
};

struct LineFit {
  double intercept = 0;
  double slope = 0;
  double residual = 0;  ///< largest |fit - y| / y
  double at(double x) const { return intercept + slope * x; }
};

/// Precondition: at least one point; with one, or with equal x, the line passes through the origin.
LineFit fit_line(const std::vector<FitPoint>& points);

}  // namespace penstock
