// SPDX-License-Identifier: Apache-2.0
#include "hw/host/rotation.hpp"

#include "hw/host/products.hpp"
#include "hw/math.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace penstock {
namespace {

constexpr int kMostSweeps = 30;

template <class T>
T dot(std::int64_t n, const T* a, const T* b) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// One side of the matrix: the running mean of its products, and the basis, a vector a row.
struct BasisSide {
  std::int64_t n;
  float *mean, *basis;
};

/// Turns k <= n rows of length n into the first rows of an orthogonal n x n matrix, those that a QR
/// decomposition of their transpose has, and adds the rows that complete it.
void orthonormalize(std::int64_t n, std::int64_t k, float* rows) {
  static thread_local std::vector<float> factors;
  factors.resize(static_cast<std::size_t>(k));
  const auto reflect = [&](std::int64_t j, std::int64_t i) {
    const float* v = rows + j * n + j;
    float* x = rows + i * n + j;
    const float part = factors[static_cast<std::size_t>(j)] * (x[0] + dot(n - j - 1, v + 1, x + 1));
    x[0] -= part;
    for (std::int64_t p = 1; p < n - j; ++p) x[p] -= part * v[p];
  };
  for (std::int64_t j = 0; j < k; ++j) {
    float* v = rows + j * n + j;
    const float norm = std::sqrt(dot(n - j, v, v));
    float& factor = factors[static_cast<std::size_t>(j)];
    factor = 0;
    if (norm > 0) {
      const float end = v[0] > 0 ? -norm : norm;
      factor = (end - v[0]) / end;
      const float scale = 1.0F / (v[0] - end);
      for (std::int64_t p = 1; p < n - j; ++p) v[p] *= scale;
    }
    for (std::int64_t i = j + 1; i < k; ++i) reflect(j, i);
  }
  for (std::int64_t i = k; i < n; ++i) {
    std::fill_n(rows + i * n, n, 0.0F);
    rows[i * n + i] = 1;
  }
  for (std::int64_t j = k; j-- > 0;) {
    for (std::int64_t i = j + 1; i < n; ++i) reflect(j, i);
    float* own = rows + j * n;
    const float factor = factors[static_cast<std::size_t>(j)];
    std::fill_n(own, j, 0.0F);
    own[j] = 1 - factor;
    for (std::int64_t p = j + 1; p < n; ++p) own[p] *= -factor;
  }
}

/// Makes the s rows of length l orthogonal to one another; `turns`, s x s, is the orthogonal matrix
/// that does it.
void rotate_rows(std::int64_t s, std::int64_t l, double* rows, double* turns) {
  constexpr double kAlike = 1e-12, kNothing = 1e-28;
  bool turned = true;
  for (int sweep = 0; turned && sweep < kMostSweeps; ++sweep) {
    turned = false;
    for (std::int64_t i = 0; i < s; ++i) {
      for (std::int64_t j = i + 1; j < s; ++j) {
        double *x = rows + i * l, *y = rows + j * l;
        const double xx = dot(l, x, x), yy = dot(l, y, y), xy = dot(l, x, y);
        if (xx * yy < kNothing || std::abs(xy) <= kAlike * std::sqrt(xx * yy)) continue;
        turned = true;
        const double ratio = (yy - xx) / (2 * xy);
        const double tangent =
            (ratio < 0 ? -1 : 1) / (std::abs(ratio) + std::sqrt(1 + ratio * ratio));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
        const auto turn = [&](std::int64_t n, double* a, double* b) {
          for (std::int64_t p = 0; p < n; ++p) {
            const double before = a[p];
            a[p] = cosine * before - sine * b[p];
            b[p] = sine * before + cosine * b[p];
          }
        };
        turn(l, x, y);
        turn(s, turns + i * s, turns + j * s);
      }
    }
  }
}

/// Returns 0 ... n - 1, those of the largest sizes first.
const std::vector<std::int64_t>& by_size(const std::vector<double>& sizes) {
  static thread_local std::vector<std::int64_t> order;
  order.resize(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](std::int64_t i) {
    const double x = sizes[static_cast<std::size_t>(i)];
    return x > 0 ? x : 0;  // of NaN, too: what diverges must be sorted all the same
  };
  // Equal sizes keep their order; std::stable_sort would allocate.
  std::ranges::sort(order, [&](std::int64_t a, std::int64_t b) {
    return size(a) != size(b) ? size(a) > size(b) : a < b;
  });
  return order;
}

/// The eigenvectors of g g^T and of g^T g.
void first_bases(const float* g, BasisSide left, BasisSide right) {
  const bool tall = left.n > right.n;
  const auto [small, large] = tall ? std::pair{right, left} : std::pair{left, right};
  const std::int64_t s = small.n, l = large.n;
  std::vector<double> rows(static_cast<std::size_t>(s * l)), turns(static_cast<std::size_t>(s * s));
  double squares = 0;
  for (std::int64_t i = 0; i < s; ++i) {
    turns[static_cast<std::size_t>(i * s + i)] = 1;
    for (std::int64_t p = 0; p < l; ++p) {
      const double x = tall ? g[p * s + i] : g[i * l + p];
      squares += x * x;
      rows[static_cast<std::size_t>(i * l + p)] = x;
    }
  }
  if (squares > 0)
    for (double& x : rows) x /= std::sqrt(squares);
  rotate_rows(s, l, rows.data(), turns.data());
  std::vector<double> sizes(static_cast<std::size_t>(s));
  for (std::int64_t i = 0; i < s; ++i)
    sizes[static_cast<std::size_t>(i)] = dot(l, rows.data() + i * l, rows.data() + i * l);
  const std::vector<std::int64_t>& order = by_size(sizes);
  for (std::int64_t i = 0; i < s; ++i) {
    const std::int64_t from = order[static_cast<std::size_t>(i)];
    for (std::int64_t p = 0; p < s; ++p)
      small.basis[i * s + p] = static_cast<float>(turns[static_cast<std::size_t>(from * s + p)]);
    for (std::int64_t p = 0; p < l; ++p)
      large.basis[i * l + p] = static_cast<float>(rows[static_cast<std::size_t>(from * l + p)]);
  }
  orthonormalize(l, s, large.basis);
}

/// A step of orthogonal iteration; returns where each vector was before, by its size.
const std::vector<std::int64_t>& renew(BasisSide side, float* scratch) {
  static thread_local std::vector<double> sizes;
  const std::int64_t n = side.n;
  float trace = 0;
  for (std::int64_t i = 0; i < n; ++i) trace += side.mean[i * n + i];
  sizes.assign(static_cast<std::size_t>(n), 0);
  if (!(trace > 0)) return by_size(sizes);
  multiply(n, n, n, 1 / trace, {side.basis, n, false}, {side.mean, n, false}, 0, scratch, n);
  for (std::int64_t i = 0; i < n; ++i)
    sizes[static_cast<std::size_t>(i)] = dot(n, scratch + i * n, side.basis + i * n);
  const std::vector<std::int64_t>& order = by_size(sizes);
  for (std::int64_t i = 0; i < n; ++i)
    std::copy_n(scratch + order[static_cast<std::size_t>(i)] * n, n, side.basis + i * n);
  orthonormalize(n, n, side.basis);
  return order;
}

}  // namespace

void rotated_step(const RotatedMatrix& matrix, const wide::Adamw& f, std::int64_t step) {
  const std::int64_t r = matrix.rows, c = matrix.cols, n = r * c;
  float *g = matrix.gradient, *m = matrix.first_moment, *v = matrix.second_moment;
  float *x = matrix.scratch, *y = x + n, *square = y + n;
  float* means = matrix.kept;
  const BasisSide left{r, means, means + r * r + c * c};
  const BasisSide right{c, means + r * r, left.basis + r * r};
  for (std::int64_t i = 0; i < n; ++i) {
    g[i] *= f.gradient_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * g[i];
  }
  multiply(r, r, c, f.one_minus_beta2, {g, c, false}, {g, c, true}, f.beta2, left.mean, r);
  multiply(c, c, r, f.one_minus_beta2, {g, c, true}, {g, c, false}, f.beta2, right.mean, c);
  if (step == 1) {
    first_bases(g, left, right);
  } else if (step % kRotationEvery == 0) {
    const std::vector<std::int64_t>& rows = renew(left, square);
    for (std::int64_t i = 0; i < r; ++i)
      std::copy_n(v + rows[static_cast<std::size_t>(i)] * c, c, x + i * c);
    const std::vector<std::int64_t>& columns = renew(right, square);
    for (std::int64_t i = 0; i < r; ++i)
      for (std::int64_t p = 0; p < c; ++p)
        v[i * c + p] = x[i * c + columns[static_cast<std::size_t>(p)]];
  }
  const auto rotate = [&](const float* from) {  // to x
    multiply(r, c, r, 1, {left.basis, r, false}, {from, c, false}, 0, y, c);
    multiply(r, c, c, 1, {y, c, false}, {right.basis, c, true}, 0, x, c);
  };
  rotate(g);
  for (std::int64_t i = 0; i < n; ++i) v[i] = f.beta2 * v[i] + f.one_minus_beta2 * x[i] * x[i];
  rotate(m);
  for (std::int64_t i = 0; i < n; ++i) x[i] /= std::sqrt(v[i]) + f.epsilon;
  multiply(r, c, r, 1, {left.basis, r, true}, {x, c, false}, 0, y, c);
  multiply(r, c, c, 1, {y, c, false}, {right.basis, c, false}, 0, x, c);
  const float rate = f.rate * f.first_correction / std::sqrt(f.second_correction);
  for (std::int64_t i = 0; i < n; ++i) {
    matrix.master_out[i] = matrix.master_in[i] * f.kept - rate * x[i];
    g[i] = 0;
  }
}

}  // namespace penstock
