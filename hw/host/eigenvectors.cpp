// SPDX-License-Identifier: Apache-2.0
#include "hw/host/eigenvectors.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace penstock {
namespace {

constexpr int kMostIterations = 60;  // for one eigenvalue, which takes about two

/// Reflects the rows and columns of the upper triangle of `a` to a tridiagonal matrix. Row k of `a`
/// keeps the vector of reflection I - factors[k] v v^T from column k + 1 on.
void make_tridiagonal(int n, double* a, double* diagonal, double* beside, double* factors) {
  std::vector<double> products(static_cast<std::size_t>(n));
  for (int k = 0; k + 1 < n; ++k) {
    const int rest = n - k - 1;
    double* v = a + std::int64_t{k} * n + k + 1;
    double* below = a + std::int64_t{k + 1} * n + k + 1;
    diagonal[k] = v[-1];
    beside[k] = v[0];
    factors[k] = 0;
    const double norm = cblas_dnrm2(rest, v, 1);
    if (rest == 1 || !(norm > 0)) continue;
    beside[k] = v[0] > 0 ? -norm : norm;
    factors[k] = (beside[k] - v[0]) / beside[k];
    cblas_dscal(rest - 1, 1 / (v[0] - beside[k]), v + 1, 1);
    v[0] = 1;
    double* w = products.data();
    cblas_dsymv(CblasRowMajor, CblasUpper, rest, factors[k], below, n, v, 1, 0, w, 1);
    cblas_daxpy(rest, -factors[k] / 2 * cblas_ddot(rest, w, 1, v, 1), v, 1, w, 1);
    cblas_dsyr2(CblasRowMajor, CblasUpper, rest, -1, v, 1, w, 1, below, n);
  }
  diagonal[n - 1] = a[std::int64_t{n} * n - 1];
  beside[n - 1] = 0;
}

/// Writes the transposed product of the reflections that rows of `a` keep.
void multiply_reflections(int n, const double* a, const double* factors, double* vectors) {
  std::fill_n(vectors, std::int64_t{n} * n, 0.0);
  for (int i = 0; i < n; ++i) vectors[std::int64_t{i} * n + i] = 1;
  std::vector<double> products(static_cast<std::size_t>(n));
  for (int k = n - 1; k-- > 0;) {
    if (factors[k] == 0) continue;
    const int rest = n - k - 1;
    const double* v = a + std::int64_t{k} * n + k + 1;
    double* below = vectors + std::int64_t{k + 1} * n + k + 1;
    cblas_dgemv(CblasRowMajor, CblasNoTrans, rest, rest, 1, below, n, v, 1, 0, products.data(), 1);
    cblas_dger(CblasRowMajor, rest, rest, -factors[k], products.data(), 1, v, 1, below, n);
  }
}

/// Turns the tridiagonal matrix to a diagonal one, and the rows of `vectors` with it.
void make_diagonal(int n, double* diagonal, double* beside, double* vectors) {
  double largest = 0;
  for (int i = 0; i < n; ++i)
    largest = std::max(largest, std::abs(diagonal[i]) + std::abs(beside[i]));
  const double nothing = std::numeric_limits<double>::epsilon() * largest;
  const auto end_of_block = [&](int first) {
    int last = first;
    while (last + 1 < n && std::abs(beside[last]) > nothing) ++last;
    return last;
  };
  for (int l = 0; l < n; ++l) {
    int last = end_of_block(l);
    for (int i = 0; last > l && i < kMostIterations; ++i, last = end_of_block(l)) {
      double g = (diagonal[l + 1] - diagonal[l]) / (2 * beside[l]);
      g = diagonal[last] - diagonal[l] + beside[l] / (g + std::copysign(std::hypot(g, 1.0), g));
      double sine = 1, cosine = 1, shift = 0;
      int k = last - 1;
      for (; k >= l; --k) {
        const double f = sine * beside[k], b = cosine * beside[k], r = std::hypot(f, g);
        beside[k + 1] = r;
        if (r == 0) break;
        sine = f / r;
        cosine = g / r;
        g = diagonal[k + 1] - shift;
        const double turned = (diagonal[k] - g) * sine + 2 * cosine * b;
        shift = sine * turned;
        diagonal[k + 1] = g + shift;
        g = cosine * turned - b;
        double* row = vectors + std::int64_t{k} * n;
        cblas_drot(n, row + n, 1, row, 1, cosine, sine);
      }
      if (k >= l) {  // the matrix fell apart
        diagonal[k + 1] -= shift;
      } else {
        diagonal[l] -= shift;
        beside[l] = g;
      }
      beside[last] = 0;
    }
  }
}

}  // namespace

void eigenvectors(std::int64_t n, double* a, double* values, double* vectors) {
  const int side = static_cast<int>(n);
  std::vector<double> beside(static_cast<std::size_t>(n)), factors(static_cast<std::size_t>(n));
  make_tridiagonal(side, a, values, beside.data(), factors.data());
  multiply_reflections(side, a, factors.data(), vectors);
  make_diagonal(side, values, beside.data(), vectors);
}

}  // namespace penstock
