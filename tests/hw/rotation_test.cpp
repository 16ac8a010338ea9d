// SPDX-License-Identifier: Apache-2.0
// The bases of basis rotation, against what defines them.
#include "hw/host/rotation.hpp"

#include "hw/host/eigenvectors.hpp"
#include "hw/math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace penstock::rotation_test {
namespace {

using Numbers = std::vector<double>;

std::size_t at(std::int64_t i, std::int64_t n, std::int64_t j) {
  return static_cast<std::size_t>(i * n + j);
}

/// Returns a x b^T of a, m x k, and b, n x k.
template <class A, class B>
Numbers products_of_rows(std::int64_t m, std::int64_t n, std::int64_t k, const A& a, const B& b) {
  Numbers c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t p = 0; p < k; ++p)
        c[at(i, n, j)] += static_cast<double>(a[at(i, k, p)]) * static_cast<double>(b[at(j, k, p)]);
  return c;
}

template <class T>
void expect_orthogonal(std::int64_t n, const T& rows, double error, const char* what) {
  const Numbers square = products_of_rows(n, n, n, rows, rows);
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      most = std::isnan(square[at(i, n, j)])
                 ? INFINITY
                 : std::max(most, std::abs(square[at(i, n, j)] - (i == j ? 1 : 0)));
  EXPECT_LT(most, error) << what << ", side " << n;
}

/// The product of a random r x k matrix and a k x c one.
std::vector<float> random_matrix(std::int64_t r, std::int64_t c, std::int64_t k, double scale) {
  std::mt19937 random(static_cast<unsigned>(r * 1000 + c));
  std::normal_distribution<double> normal;
  Numbers a(static_cast<std::size_t>(r * k)), b(static_cast<std::size_t>(c * k));
  for (Numbers* each : {&a, &b})
    for (double& x : *each) x = normal(random);
  std::vector<float> product;
  for (const double x : products_of_rows(r, c, k, a, b))
    product.push_back(static_cast<float>(scale * x));
  return product;
}

TEST(Eigenvectors, AreThoseOfTheMatrix) {
  for (const std::int64_t n : {1, 2, 3, 40, 130}) {
    for (const std::int64_t rank : {n, (n + 2) / 3, std::int64_t{0}}) {
      const std::vector<float> half = random_matrix(n, n, rank, 1);
      const Numbers whole = products_of_rows(n, n, n, half, half);
      Numbers a = whole, values(static_cast<std::size_t>(n)), vectors(whole.size());
      eigenvectors(n, a.data(), values.data(), vectors.data());
      expect_orthogonal(n, vectors, 1e-12, "eigenvectors");
      const double sum = std::accumulate(values.begin(), values.end(), 0.0);
      const Numbers turned = products_of_rows(n, n, n, vectors, whole);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t p = 0; p < n; ++p)
          ASSERT_NEAR(turned[at(i, n, p)],
                      values[static_cast<std::size_t>(i)] * vectors[at(i, n, p)], 1e-13 * sum)
              << n << " of rank " << rank << ", vector " << i;
    }
  }
}

/// The state of a matrix whose steps are taken with the same gradient.
struct Rotated {
  Rotated(std::int64_t rows, std::int64_t cols) : r(rows), c(cols) {
    const auto n = static_cast<std::size_t>(r * c);
    for (auto* each : {&weights, &first, &second}) each->assign(n, 0.0F);
    kept.assign(static_cast<std::size_t>(rotation_numbers(r, c)), 0.0F);
    scratch.assign(static_cast<std::size_t>(rotation_scratch_numbers(r, c)), 0.0F);
  }

  void step(std::vector<float> gradient, std::int64_t number) {
    const AdamwFactors factors{.gradient_scale = 1,
                               .beta1 = 0.9F,
                               .beta2 = 0.999F,
                               .one_minus_beta1 = 0.1F,
                               .one_minus_beta2 = 0.001F,
                               .first_correction = 1,
                               .second_correction = 1,
                               .beside = 0,
                               .epsilon = 1e-8F,
                               .rate = 0.01F,
                               .kept = 1,
                               .decay = 0};
    rotated_step({r, c, weights.data(), weights.data(), gradient.data(), first.data(),
                  second.data(), kept.data(), scratch.data()},
                 factors, number);
  }

  const float* left() const { return kept.data() + r * r + c * c; }
  const float* right() const { return left() + r * r; }

  std::int64_t r, c;
  std::vector<float> weights, first, second, kept, scratch;
};

TEST(Rotation, TheFirstBasesAreTheSingularVectorsOfTheGradient) {
  for (const auto& [r, c, rank] : {std::tuple{1, 5, 1},
                                   {40, 130, 40},
                                   {130, 40, 40},
                                   {70, 70, 70},
                                   {70, 33, 9},
                                   {64, 96, 64}}) {
    const std::vector<float> g = random_matrix(r, c, rank, 1e-3);
    Rotated matrix(r, c);
    matrix.step(g, 1);
    expect_orthogonal(r, matrix.left(), 1e-5, "left");
    expect_orthogonal(c, matrix.right(), 1e-5, "right");
    // P g S^T is diagonal, the largest first.
    std::vector<float> transposed;
    for (std::int64_t p = 0; p < c; ++p)
      for (std::int64_t i = 0; i < r; ++i) transposed.push_back(g[at(i, c, p)]);
    const Numbers half = products_of_rows(r, c, r, matrix.left(), transposed);
    const Numbers turned = products_of_rows(r, c, c, half, matrix.right());
    const double largest = std::abs(turned[0]);
    double before = largest;
    for (std::int64_t i = 0; i < r; ++i)
      for (std::int64_t p = 0; p < c; ++p) {
        const double x = std::abs(turned[at(i, c, p)]);
        if (i == p) {
          EXPECT_LE(x, before + 1e-5 * largest);
          before = x;
        } else {
          ASSERT_LT(x, 1e-5 * largest) << r << " x " << c << " at " << i << ", " << p;
        }
      }
  }
}

TEST(Rotation, GradientsWhoseSquaresAreLostLeaveBasesOrthogonal) {
  for (double scale = 1e-17; scale > 1e-25; scale /= 3) {
    Rotated matrix(48, 80);
    for (int step = 1; step <= 21; ++step) matrix.step(random_matrix(48, 80, 30, scale), step);
    expect_orthogonal(48, matrix.left(), 1e-4, "left");
    expect_orthogonal(80, matrix.right(), 1e-4, "right");
    for (const float w : matrix.weights) ASSERT_TRUE(std::isfinite(w)) << scale;
  }
}

}  // namespace
}  // namespace penstock::rotation_test
