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
  double scale = 0.01;  ///< c: residuals beyond it count less than squared
  double prior = 0.003;
  int steps = 20;      ///< at most
  double gain = 1e-5;  ///< stops where a step gains less of the sum
};

struct FitRange {
  double start, lowest, highest;  ///< all > 0
};

using Residuals = std::function<std::vector<double>(const std::vector<double>& parameters)>;

/// The parameters at the minimum found from `first` (within the ranges); deterministic.
std::vector<double> fit_least_squares(const Residuals& residuals,
                                      const std::vector<FitRange>& ranges,
                                      std::vector<double> first, const FitOptions& options);

/// Of each parameter, the standard deviation of its logarithm that the residuals there leave;
/// infinite where they tell it only together with others.
std::vector<double> fit_spread(const Residuals& residuals, const std::vector<double>& parameters);

/// A part (0 ... parts-1) for each of `count` rows: equally many in each, shuffled by the seed; the
/// same on every machine.
std::vector<int> random_parts(std::size_t count, int parts, std::uint64_t seed);

}  // namespace penstock
