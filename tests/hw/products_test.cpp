// SPDX-License-Identifier: Apache-2.0
// The host's matrix products, of which some are computed here and some by OpenBLAS, against sums in
// double.
#include "hw/host/products.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace penstock::products_test {
namespace {

using Matrix = std::vector<float>;

Matrix some(std::int64_t elements, unsigned seed) {
  Matrix x(static_cast<std::size_t>(elements));
  for (float& v : x) {
    seed = seed * 1664525U + 1013904223U;
    v = static_cast<float>(static_cast<int>(seed >> 16) % 1000) / 1000 - 0.5F;
  }
  return x;
}

struct Shape {
  std::int64_t m, n, k;
};

/// Holds op(A)(row, p) of a matrix with `padding` elements behind each of its rows.
struct Operand {
  std::int64_t rows, cols, leading;
  bool transposed;
  Matrix data;

  Operand(std::int64_t r, std::int64_t c, bool t, unsigned seed)
      : rows(r),
        cols(c),
        leading((t ? r : c) + 3),
        transposed(t),
        data(some((t ? c : r) * leading, seed)) {}
  double at(std::int64_t i, std::int64_t j) const {
    const std::int64_t place = transposed ? j * leading + i : i * leading + j;
    return static_cast<double>(data[static_cast<std::size_t>(place)]);
  }
  Side side() const { return {data.data(), leading, transposed}; }
};

void expect_product(const Shape& s, bool transpose_a, bool transpose_b, float alpha, float beta) {
  const Operand a(s.m, s.k, transpose_a, 1), b(s.k, s.n, transpose_b, 2);
  const std::int64_t ldc = s.n + 5;
  const Matrix before = some(s.m * ldc, 3);
  Matrix c = before;
  multiply(s.m, s.n, s.k, alpha, a.side(), b.side(), beta, c.data(), ldc);
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < ldc; ++j) {
      const auto place = static_cast<std::size_t>(i * ldc + j);
      if (j >= s.n) {
        ASSERT_EQ(c[place], before[place]) << "behind a row, " << i << ", " << j;
        continue;
      }
      double sum = 0;
      for (std::int64_t p = 0; p < s.k; ++p) sum += a.at(i, p) * b.at(p, j);
      const double want =
          static_cast<double>(alpha) * sum + static_cast<double>(beta * before[place]);
      ASSERT_NEAR(static_cast<double>(c[place]), want, 1e-6 * (4 + static_cast<double>(s.k)))
          << s.m << " x " << s.n << " x " << s.k << ", " << transpose_a << transpose_b << " at "
          << i << ", " << j;
    }
  }
}

TEST(Products, OfEveryShapeAndSideAreTheSums) {
  // Whole tiles, each kind of rest of rows, columns and depth, and two that are OpenBLAS' alone.
  for (const Shape& s : {Shape{8, 48, 16},
                         {64, 144, 36},
                         {1, 1, 1},
                         {3, 17, 5},
                         {12, 33, 16},
                         {9, 47, 31},
                         {5, 64, 20},
                         {2, 3, 1025},
                         {513, 2, 1024}}) {
    for (const bool a : {false, true})
      for (const bool b : {false, true}) {
        expect_product(s, a, b, 1, 0);
        expect_product(s, a, b, -0.5F, 1);
        expect_product(s, a, b, 2, 0.25F);
      }
  }
}

TEST(Products, WithoutAnOldOneDoNotReadIt) {
  const Operand a(9, 4, false, 1), b(4, 21, true, 2);
  Matrix c(9 * 21, std::numeric_limits<float>::quiet_NaN());
  multiply(9, 21, 4, 1, a.side(), b.side(), 0, c.data(), 21);
  for (const float x : c) EXPECT_EQ(x, x);
}

// A part of a microbatch must give the bits of the whole.
TEST(Products, ARowDoesNotDependOnHowManyThereAre) {
  constexpr std::int64_t n = 50, k = 40;
  const Operand a(13, k, false, 1), b(k, n, true, 2);
  Matrix whole(13 * n);
  multiply(13, n, k, 1, a.side(), b.side(), 0, whole.data(), n);
  for (std::int64_t first = 0; first < 13; ++first) {
    Matrix part(n);
    const Side row{a.data.data() + first * a.leading, a.leading};
    multiply(1, n, k, 1, row, b.side(), 0, part.data(), n);
    for (std::int64_t j = 0; j < n; ++j)
      EXPECT_EQ(part[static_cast<std::size_t>(j)], whole[static_cast<std::size_t>(first * n + j)]);
  }
}

}  // namespace
}  // namespace penstock::products_test
