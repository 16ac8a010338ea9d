// SPDX-License-Identifier: Apache-2.0
#include "hw/host/rotation.hpp"

#include "hw/host/eigenvectors.hpp"
#include "hw/host/products.hpp"
#include "hw/math.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace penstock {
namespace {

template <class T>
T dot(std::int64_t n, const T* a, const T* b) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// A side of the matrix has the running mean of its products, and a basis with a vector in each
/// row.
struct BasisSide {
  std::int64_t n;
  float *mean, *basis;
};

/// Some reflections I - f v v^T as one: their product, in this order, is I - V^T T V.
class Reflections {
 public:
  static constexpr std::int64_t kMost = 32;

  /// Each row of `rows`, whose length is n, has its v from its own column on, but for the leading
  /// one.
  void take(std::int64_t n, std::int64_t count, const float* rows, std::int64_t leading,
            const float* factors) {
    n_ = n, count_ = count;
    v_.assign(static_cast<std::size_t>(count * n), 0.0F);
    t_.assign(static_cast<std::size_t>(count * count), 0.0F);
    for (std::int64_t j = 0; j < count; ++j) {
      float* v = v_.data() + j * n;
      v[j] = 1;
      std::copy_n(rows + j * leading + j + 1, n - j - 1, v + j + 1);
      float along[kMost];
      for (std::int64_t i = 0; i < j; ++i) along[i] = dot(n, v_.data() + i * n, v);
      for (std::int64_t i = 0; i < j; ++i) {
        float sum = 0;
        for (std::int64_t p = i; p < j; ++p)
          sum += t_[static_cast<std::size_t>(i * count + p)] * along[p];
        t_[static_cast<std::size_t>(i * count + j)] = -factors[j] * sum;
      }
      t_[static_cast<std::size_t>(j * count + j)] = factors[j];
    }
  }

  /// Multiplies rows of length n with the product, or with that in the opposite order.
  void apply(std::int64_t many, float* rows, std::int64_t leading, bool backward) {
    if (many == 0) return;
    along_.resize(static_cast<std::size_t>(2 * many * count_));
    float *along = along_.data(), *turned = along + many * count_;
    multiply(many, count_, n_, 1, {rows, leading, false}, {v_.data(), n_, true}, 0, along, count_);
    multiply(many, count_, count_, 1, {along, count_, false}, {t_.data(), count_, backward}, 0,
             turned, count_);
    multiply(many, n_, count_, -1, {turned, count_, false}, {v_.data(), n_, false}, 1, rows,
             leading);
  }

 private:
  std::int64_t n_ = 0, count_ = 0;
  std::vector<float> v_, t_, along_;
};

/// Makes of a row of length n the vector of a reflection that leaves its first number alone, and
/// returns the reflection's factor.
float reflection_of(std::int64_t n, float* v) {
  float largest = 0;
  for (std::int64_t p = 0; p < n; ++p) largest = std::max(largest, std::abs(v[p]));
  if (!std::isnormal(largest)) return 0;                 // nothing, or no number
  for (std::int64_t p = 0; p < n; ++p) v[p] /= largest;  // squares would be lost
  const float norm = std::sqrt(dot(n, v, v)), end = v[0] > 0 ? -norm : norm;
  const float factor = (end - v[0]) / end, scale = 1.0F / (v[0] - end);
  for (std::int64_t p = 1; p < n; ++p) v[p] *= scale;
  return factor;
}

/// Turns k <= n rows of length n into the first rows of an orthogonal n x n matrix, those that a QR
/// decomposition of their transpose has, and adds the rows that complete it.
void orthonormalize(std::int64_t n, std::int64_t k, float* rows) {
  static thread_local std::vector<float> factors;
  static thread_local Reflections block;
  factors.resize(static_cast<std::size_t>(k));
  const auto take = [&](std::int64_t first) {
    const std::int64_t count = std::min(Reflections::kMost, k - first);
    block.take(n - first, count, rows + first * n + first, n, factors.data() + first);
    return first + count;
  };
  for (std::int64_t first = 0; first < k; first += Reflections::kMost) {
    for (std::int64_t j = first, end = std::min(k, first + Reflections::kMost); j < end; ++j) {
      float* v = rows + j * n + j;
      const float factor = reflection_of(n - j, v);
      factors[static_cast<std::size_t>(j)] = factor;
      for (std::int64_t i = j + 1; i < end; ++i) {
        float* x = rows + i * n + j;
        const float part = factor * (x[0] + dot(n - j - 1, v + 1, x + 1));
        x[0] -= part;
        for (std::int64_t p = 1; p < n - j; ++p) x[p] -= part * v[p];
      }
    }
    const std::int64_t end = take(first);
    block.apply(k - end, rows + end * n + first, n, false);
  }
  const auto make_unit = [&](std::int64_t i) {
    std::fill_n(rows + i * n, n, 0.0F);
    rows[i * n + i] = 1;
  };
  for (std::int64_t i = k; i < n; ++i) make_unit(i);
  for (std::int64_t first = (k - 1) / Reflections::kMost * Reflections::kMost; first >= 0;
       first -= Reflections::kMost) {
    const std::int64_t end = take(first);
    for (std::int64_t i = first; i < end; ++i) make_unit(i);
    block.apply(n - first, rows + first * n + first, n, true);
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

/// Writes the eigenvectors of g g^T and of g^T g: those of the smaller product by themselves, and
/// of the larger one their products with g, completed.
void first_bases(const float* g, BasisSide left, BasisSide right) {
  const bool tall = left.n > right.n;
  const auto [small, large] = tall ? std::pair{right, left} : std::pair{left, right};
  const std::int64_t s = small.n, l = large.n;
  const auto numbers = [](std::int64_t n) {
    return std::vector<double>(static_cast<std::size_t>(n));
  };
  std::vector<double> rows = numbers(s * l), square = numbers(s * s), vectors = numbers(s * s),
                      sizes = numbers(s), turned = numbers(s * l);
  float largest = 0;
  for (std::int64_t i = 0; i < s * l; ++i) largest = std::max(largest, std::abs(g[i]));
  const double unit = largest > 0 ? largest : 1;
  for (std::int64_t i = 0; i < s; ++i)
    for (std::int64_t p = 0; p < l; ++p)
      rows[static_cast<std::size_t>(i * l + p)] = (tall ? g[p * s + i] : g[i * l + p]) / unit;
  const auto side = static_cast<int>(s), length = static_cast<int>(l);
  cblas_dsyrk(CblasRowMajor, CblasUpper, CblasNoTrans, side, length, 1, rows.data(), length, 0,
              square.data(), side);
  eigenvectors(s, square.data(), sizes.data(), vectors.data());
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, side, length, side, 1, vectors.data(),
              side, rows.data(), length, 0, turned.data(), length);
  const std::vector<std::int64_t>& order = by_size(sizes);
  for (std::int64_t i = 0; i < s; ++i) {
    const std::int64_t from = order[static_cast<std::size_t>(i)];
    const double *vector = vectors.data() + from * s, *row = turned.data() + from * l;
    for (std::int64_t p = 0; p < s; ++p) small.basis[i * s + p] = static_cast<float>(vector[p]);
    const double norm = std::sqrt(dot(l, row, row));
    for (std::int64_t p = 0; p < l; ++p)
      large.basis[i * l + p] = norm > 0 ? static_cast<float>(row[p] / norm) : 0.0F;
  }
  orthonormalize(l, s, large.basis);
}

/// A step of orthogonal iteration; returns where each vector was before, by its size.
const std::vector<std::int64_t>& renew(BasisSide side, float* scratch) {
  static thread_local std::vector<double> sizes;
  const std::int64_t n = side.n;
  double trace = 0;
  for (std::int64_t i = 0; i < n; ++i) trace += side.mean[i * n + i];
  sizes.assign(static_cast<std::size_t>(n), 0);
  const auto scale = static_cast<float>(1 / trace);
  if (!std::isnormal(scale)) return by_size(sizes);  // no gradient yet, or no number
  multiply(n, n, n, scale, {side.basis, n, false}, {side.mean, n, false}, 0, scratch, n);
  for (std::int64_t i = 0; i < n; ++i)
    sizes[static_cast<std::size_t>(i)] = dot(n, scratch + i * n, side.basis + i * n);
  const std::vector<std::int64_t>& order = by_size(sizes);
  for (std::int64_t i = 0; i < n; ++i)
    std::copy_n(scratch + order[static_cast<std::size_t>(i)] * n, n, side.basis + i * n);
  orthonormalize(n, n, side.basis);
  return order;
}

/// Returns the sides of the rows and of the columns.
std::pair<BasisSide, BasisSide> sides_of(const RotatedMatrix& matrix) {
  const std::int64_t r = matrix.rows, c = matrix.cols;
  float *means = matrix.kept, *bases = means + r * r + c * c;
  return {{r, means, bases}, {c, means + r * r, bases + r * r}};
}

}  // namespace

void renew_bases(const RotatedMatrix& matrix, std::int64_t step) {
  const auto [left, right] = sides_of(matrix);
  if (step == 1) return first_bases(matrix.gradient, left, right);
  const std::int64_t r = matrix.rows, c = matrix.cols, n = r * c;
  float *v = matrix.second_moment, *x = matrix.scratch, *square = x + 2 * n;
  const std::vector<std::int64_t>& rows = renew(left, square);
  for (std::int64_t i = 0; i < r; ++i)
    std::copy_n(v + rows[static_cast<std::size_t>(i)] * c, c, x + i * c);
  const std::vector<std::int64_t>& columns = renew(right, square);
  for (std::int64_t i = 0; i < r; ++i)
    for (std::int64_t p = 0; p < c; ++p)
      v[i * c + p] = x[i * c + columns[static_cast<std::size_t>(p)]];
}

void rotated_step(const RotatedMatrix& matrix, const AdamwFactors& f, std::int64_t step) {
  const std::int64_t r = matrix.rows, c = matrix.cols, n = r * c;
  float *g = matrix.gradient, *m = matrix.first_moment, *v = matrix.second_moment;
  float *x = matrix.scratch, *y = x + n;
  const auto [left, right] = sides_of(matrix);
  for (std::int64_t i = 0; i < n; ++i) {
    g[i] *= f.gradient_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * g[i];
  }
  multiply(r, r, c, f.one_minus_beta2, {g, c, false}, {g, c, true}, f.beta2, left.mean, r);
  multiply(c, c, r, f.one_minus_beta2, {g, c, true}, {g, c, false}, f.beta2, right.mean, c);
  if (renews_bases(step)) renew_bases(matrix, step);
  const auto rotate = [&, left = left, right = right](const float* from) {  // to x
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
