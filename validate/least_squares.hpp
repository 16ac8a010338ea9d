// SPDX-License-Identifier: Apache-2.0
// Nonlinear least squares of a few positive parameters (Levenberg-Marquardt on their logarithms).
//
// Minimises  sum_i rho(r_i) + sum_j (prior * log(x_j / start_j))^2  with the soft absolute value
// rho(r) = 2 c^2 (sqrt(1 + (r/c)^2) - 1): near zero r^2, far away 2 c |r|, so that a few rows that
// no parameter explains do not pull all others. The weak prior leaves a parameter that no residual
// depends on where it started.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace penstock {

struct FitOptions {
  double scale = 0.01;  ///< c, the residual beyond which the loss grows linearly
  double prior = 0.003;
  int steps = 20;      ///< the most steps
  double gain = 1e-5;  ///< the share of the sum that a step must gain for another one to follow
};

struct FitRange {
  double start, lowest, highest;  ///< all > 0
};

using Residuals = std::function<std::vector<double>(const std::vector<double>& parameters)>;

/// Returns the parameters at the minimum that is found from `first`, within the ranges. The same
/// arguments give the same parameters.
std::vector<double> fit_least_squares(const Residuals& residuals,
                                      const std::vector<FitRange>& ranges,
                                      std::vector<double> first, const FitOptions& options);

/// Returns for each parameter the standard deviation of its logarithm, as the residuals at
/// `parameters` leave it; infinite where they determine it only together with others.
std::vector<double> fit_spread(const Residuals& residuals, const std::vector<double>& parameters);

/// Returns a part (0 ... parts-1) for each of `count` rows, with equally many rows in each part,
/// shuffled by the seed in the same way on every machine.
std::vector<int> random_parts(std::size_t count, int parts, std::uint64_t seed);

}  // namespace penstock
