// SPDX-License-Identifier: Apache-2.0
#include "models/line_fit.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// Weighted sums of the normal equations; w = 1/y^2.
struct Sums {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;

  explicit Sums(const std::vector<FitPoint>& points) {
    for (const FitPoint& p : points) {
      const double weight = 1 / (p.y * p.y);
      w += weight;
      x += weight * p.x;
      y += weight * p.y;
      xx += weight * p.x * p.x;
      xy += weight * p.x * p.y;
    }
  }
};

bool same_x(const std::vector<FitPoint>& points) {
  return std::ranges::all_of(points, [&](const FitPoint& p) { return p.x == points[0].x; });
}

LineFit through_origin(const Sums& s) { return {0, s.xx > 0 ? s.xy / s.xx : 0, 0}; }

LineFit best_line(const std::vector<FitPoint>& points) {
  const Sums s(points);
  if (same_x(points)) return points[0].x == 0 ? LineFit{s.y / s.w, 0, 0} : through_origin(s);
  const double slope = (s.w * s.xy - s.x * s.y) / (s.w * s.xx - s.x * s.x);
  if (slope < 0) return {s.y / s.w, 0, 0};
  const double intercept = (s.y - slope * s.x) / s.w;
  return intercept < 0 ? through_origin(s) : LineFit{intercept, slope, 0};
}

}  // namespace

LineFit fit_line(const std::vector<FitPoint>& points) {
  LineFit fit = best_line(points);
  for (const FitPoint& p : points)
    fit.residual = std::max(fit.residual, std::abs(fit.at(p.x) - p.y) / p.y);
  return fit;
}

}  // namespace penstock
