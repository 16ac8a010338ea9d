// SPDX-License-Identifier: Apache-2.0
#include "validate/least_squares.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace penstock {
namespace {

using Vector = std::vector<double>;

/// Symmetric positive definite A x = b by Cholesky; A is destroyed.
Vector solve(std::vector<Vector>& a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    a[j][j] = std::sqrt(std::max(a[j][j], 1e-300));
    for (std::size_t i = j + 1; i < n; ++i) {
      for (std::size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

/// How every residual changes with the logarithm of every parameter.
std::vector<Vector> slopes_at(const Residuals& residuals, const Vector& z, const Vector& r) {
  constexpr double kStep = 1e-4;
  std::vector<Vector> slopes;
  for (std::size_t j = 0; j < z.size(); ++j) {
    Vector x;
    for (std::size_t k = 0; k < z.size(); ++k) x.push_back(std::exp(z[k] + (k == j ? kStep : 0)));
    slopes.push_back(residuals(x));
    for (std::size_t i = 0; i < r.size(); ++i) slopes[j][i] = (slopes[j][i] - r[i]) / kStep;
  }
  return slopes;
}

class Fit {
 public:
  Fit(const Residuals& residuals, const std::vector<FitRange>& ranges, const FitOptions& options)
      : residuals_(residuals), ranges_(ranges), options_(options) {}

  Vector run(Vector parameters) {
    Vector z = logarithms(parameters);
    Vector r = residuals_(values(z));
    double cost = cost_of(z, r);
    double damping = 1e-3;
    for (int step = 0; step < options_.steps && damping < 1e6; ++step) {
      linearize(z, r);
      bool better = false;
      for (; !better && damping < 1e6; damping *= better ? 0.2 : 4) {
        const Vector next = moved(z, damping);
        Vector r_next = residuals_(values(next));
        const double cost_next = cost_of(next, r_next);
        better = cost_next < cost;
        if (!better) continue;
        const double gain = (cost - cost_next) / cost;
        z = next;
        r = std::move(r_next);
        cost = cost_next;
        if (gain < options_.gain) return values(z);
      }
    }
    return values(z);
  }

 private:
  Vector logarithms(const Vector& x) const {
    Vector z;
    for (std::size_t j = 0; j < x.size(); ++j)
      z.push_back(std::log(std::clamp(x[j], ranges_[j].lowest, ranges_[j].highest)));
    return z;
  }
  static Vector values(const Vector& z) {
    Vector x;
    for (const double v : z) x.push_back(std::exp(v));
    return x;
  }
  double pull(const Vector& z, std::size_t j) const {
    return options_.prior * (z[j] - std::log(ranges_[j].start));
  }
  double cost_of(const Vector& z, const Vector& r) const {
    double cost = 0;
    const double c = options_.scale;
    for (const double x : r) cost += 2 * c * c * (std::sqrt(1 + (x / c) * (x / c)) - 1);
    for (std::size_t j = 0; j < z.size(); ++j) cost += pull(z, j) * pull(z, j);
    return cost;
  }

  /// Gradient and Gauss-Newton matrix, residuals weighted by rho'(r) / r.
  void linearize(const Vector& z, const Vector& r) {
    const std::size_t n = z.size();
    const std::vector<Vector> slopes = slopes_at(residuals_, z, r);
    matrix_.assign(n, Vector(n, 0));
    gradient_.assign(n, 0);
    for (std::size_t i = 0; i < r.size(); ++i) {
      const double ratio = r[i] / options_.scale;
      const double weight = 1 / std::sqrt(1 + ratio * ratio);
      for (std::size_t j = 0; j < n; ++j) {
        gradient_[j] += weight * slopes[j][i] * r[i];
        for (std::size_t k = 0; k <= j; ++k) matrix_[j][k] += weight * slopes[j][i] * slopes[k][i];
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      gradient_[j] += options_.prior * pull(z, j);
      matrix_[j][j] += options_.prior * options_.prior;
    }
  }

  /// At a bound, with the descent leading out of the range.
  bool held(const Vector& z, std::size_t j) const {
    constexpr double kNear = 1e-9;
    const bool low = z[j] - std::log(ranges_[j].lowest) < kNear;
    const bool high = std::log(ranges_[j].highest) - z[j] < kNear;
    return (low && gradient_[j] > 0) || (high && gradient_[j] < 0);
  }

  Vector moved(const Vector& z, double damping) const {
    auto a = matrix_;
    Vector b;
    for (std::size_t j = 0; j < z.size(); ++j) {
      a[j][j] = a[j][j] * (1 + damping) + 1e-12;
      b.push_back(-gradient_[j]);
    }
    for (std::size_t j = 0; j < z.size(); ++j) {  // the others' step must not count on this one's
      if (!held(z, j)) continue;
      for (std::size_t k = 0; k < z.size(); ++k) a[j][k] = a[k][j] = k == j ? 1 : 0;
      b[j] = 0;
    }
    Vector next = solve(a, std::move(b));
    for (std::size_t j = 0; j < z.size(); ++j) {
      const double step = std::clamp(next[j], -1.0, 1.0);
      next[j] = std::clamp(z[j] + step, std::log(ranges_[j].lowest), std::log(ranges_[j].highest));
    }
    return next;
  }

  const Residuals& residuals_;
  const std::vector<FitRange>& ranges_;
  const FitOptions options_;
  std::vector<Vector> matrix_;
  Vector gradient_;
};

}  // namespace

std::vector<double> fit_least_squares(const Residuals& residuals,
                                      const std::vector<FitRange>& ranges,
                                      std::vector<double> first, const FitOptions& options) {
  return Fit(residuals, ranges, options).run(std::move(first));
}

std::vector<double> fit_spread(const Residuals& residuals, const std::vector<double>& parameters) {
  const std::size_t n = parameters.size();
  const Vector r = residuals(parameters);
  Vector z;
  for (const double x : parameters) z.push_back(std::log(x));
  const auto slopes = slopes_at(residuals, z, r);
  const double variance = std::inner_product(r.begin(), r.end(), r.begin(), 0.0) /
                          static_cast<double>(std::max(r.size(), n + 1) - n);
  std::vector<Vector> matrix(n, Vector(n, 0));
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < n; ++k)
      matrix[j][k] = std::inner_product(slopes[j].begin(), slopes[j].end(), slopes[k].begin(), 0.0);
  }
  Vector spread;
  for (std::size_t j = 0; j < n; ++j) {
    Vector unit(n, 0);
    unit[j] = 1;
    auto copy = matrix;
    const double inverse = solve(copy, unit)[j];
    spread.push_back(inverse < 1e12 ? std::sqrt(variance * std::max(inverse, 0.0))
                                    : std::numeric_limits<double>::infinity());
  }
  return spread;
}

std::vector<int> random_parts(std::size_t count, int parts, std::uint64_t seed) {
  std::vector<int> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(static_cast<int>(i % static_cast<std::size_t>(parts)));
  std::mt19937_64 random(seed);  // its numbers are fixed by the standard; std::shuffle's are not
  for (std::size_t i = count; i > 1; --i) std::swap(out[i - 1], out[random() % i]);
  return out;
}

}  // namespace penstock
