// SPDX-License-Identifier: Apache-2.0
#include "hw/host/products.hpp"

#include <cblas.h>

#include <algorithm>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#define PENSTOCK_AVX512 1
#include <immintrin.h>
// GCC 12 takes what its own header leaves undefined on purpose for a mistake of the caller.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace penstock {
namespace {

void multiply_by_openblas(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Side a,
                          Side b, float beta, float* c, std::int64_t ldc) {
  const auto size = [](std::int64_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, size(m), size(n), size(k), alpha, a.data,
              size(a.leading), b.data, size(b.leading), beta, c, size(ldc));
}

#ifdef PENSTOCK_AVX512
#define PENSTOCK_WIDE __attribute__((target("avx512f")))
#define PENSTOCK_WIDE_INLINE __attribute__((target("avx512f"), always_inline)) inline

constexpr std::int64_t kLanes = 16, kVectors = 3, kRows = 8;  // of C, held in registers
constexpr std::int64_t kMostDepth = 1024;
constexpr std::int64_t kMostElements = std::int64_t{1} << 19;  // of op(A) at a time

/// op(A) by its rows and columns, and op(B) by its rows, which lie in one piece.
struct Operands {
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row;
};
struct Target {
  float alpha, beta;
  float* c;
  std::int64_t row;
};

/// Computes R rows and N vectors of C; `mask` names the lanes of the last vector.
template <int R, int N>
PENSTOCK_WIDE_INLINE void multiply_tile(std::int64_t k, Operands o, Target t, __mmask16 mask) {
  __m512 sum[R][N];
#pragma GCC unroll 8
  for (auto& row : sum)
#pragma GCC unroll 3
    for (__m512& x : row) x = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < k; ++p, o.a += o.a_column, o.b += o.b_row) {
    __m512 b[N];
#pragma GCC unroll 3
    for (int j = 0; j < N; ++j)
      b[j] = j + 1 < N ? _mm512_loadu_ps(o.b + j * kLanes)
                       : _mm512_maskz_loadu_ps(mask, o.b + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const __m512 a = _mm512_set1_ps(o.a[i * o.a_row]);
#pragma GCC unroll 3
      for (int j = 0; j < N; ++j) sum[i][j] = _mm512_fmadd_ps(a, b[j], sum[i][j]);
    }
  }
  const __m512 alpha = _mm512_set1_ps(t.alpha), beta = _mm512_set1_ps(t.beta);
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 3
    for (int j = 0; j < N; ++j) {
      const __mmask16 lanes = j + 1 < N ? static_cast<__mmask16>(0xffff) : mask;
      float* to = t.c + i * t.row + j * kLanes;
      __m512 x = _mm512_mul_ps(sum[i][j], alpha);
      if (t.beta != 0) x = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(lanes, to), x);
      _mm512_mask_storeu_ps(to, lanes, x);
    }
  }
}

/// Computes all rows of N vectors of C.
template <int N>
PENSTOCK_WIDE void multiply_columns(std::int64_t m, std::int64_t k, Operands o, Target t,
                                    __mmask16 mask) {
  const auto go_on = [&](std::int64_t rows) {
    o.a += rows * o.a_row, t.c += rows * t.row;
    m -= rows;
  };
  for (; m >= kRows; go_on(kRows)) multiply_tile<kRows, N>(k, o, t, mask);
  if (m >= 4) multiply_tile<4, N>(k, o, t, mask), go_on(4);
  for (; m > 0; go_on(1)) multiply_tile<1, N>(k, o, t, mask);
}

PENSTOCK_WIDE_INLINE __m512 low_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
PENSTOCK_WIDE_INLINE __m512 high_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

/// Writes 16 x 16 elements: row i of `to` is column i of `from`, which has so many rows and
/// columns; the rows that it lacks are zeros.
PENSTOCK_WIDE void transpose(std::int64_t rows, std::int64_t cols, const float* from,
                             std::int64_t from_row, float* to, std::int64_t to_row) {
  const auto mask = static_cast<__mmask16>((1U << cols) - 1);
  __m512 x[16], y[16];
  for (int i = 0; i < 16; ++i)
    x[i] = i < rows ? _mm512_maskz_loadu_ps(mask, from + i * from_row) : _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = low_pairs(y[i], y[i + 2]), x[i + 1] = high_pairs(y[i], y[i + 2]);
    x[i + 2] = low_pairs(y[i + 1], y[i + 3]), x[i + 3] = high_pairs(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_f32x4(x[i], x[4 + i], 0x88);
    y[4 + i] = _mm512_shuffle_f32x4(x[i], x[4 + i], 0xdd);
    y[8 + i] = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0x88);
    y[12 + i] = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm512_shuffle_f32x4(y[i], y[8 + i], 0x88);
    x[8 + i] = _mm512_shuffle_f32x4(y[i], y[8 + i], 0xdd);
  }
  for (int i = 0; i < cols; ++i) _mm512_storeu_ps(to + i * to_row, x[i]);
}

PENSTOCK_WIDE void multiply_here(std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                                 Side a, Side b, float beta, float* c, std::int64_t ldc) {
  static thread_local std::vector<float> packed;  // op(B), as many columns as a tile has
  if (b.transposed && std::ssize(packed) < k * kVectors * kLanes)
    packed.resize(static_cast<std::size_t>(k * kVectors * kLanes));
  for (std::int64_t j = 0; j < n; j += kVectors * kLanes) {
    const std::int64_t columns = std::min(n - j, kVectors * kLanes);
    const std::int64_t vectors = (columns + kLanes - 1) / kLanes;
    const auto mask =
        static_cast<__mmask16>(0xffffU >> static_cast<unsigned>(vectors * kLanes - columns));
    Operands o{a.data, a.transposed ? 1 : a.leading, a.transposed ? a.leading : 1, b.data + j,
               b.leading};
    if (b.transposed) {
      for (std::int64_t q = 0; q < columns; q += kLanes)
        for (std::int64_t p = 0; p < k; p += kLanes)
          transpose(std::min(columns - q, kLanes), std::min(k - p, kLanes),
                    b.data + (j + q) * b.leading + p, b.leading,
                    packed.data() + p * vectors * kLanes + q, vectors * kLanes);
      o.b = packed.data(), o.b_row = vectors * kLanes;
    }
    const Target t{alpha, beta, c + j, ldc};
    switch (vectors) {
      case 1: multiply_columns<1>(m, k, o, t, mask); break;
      case 2: multiply_columns<2>(m, k, o, t, mask); break;
      default: multiply_columns<3>(m, k, o, t, mask);
    }
  }
}

bool fits(std::int64_t k) {
  static const bool wide = __builtin_cpu_supports("avx512f") != 0;
  return wide && k <= kMostDepth;
}
#endif

}  // namespace

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Side a, Side b,
              float beta, float* c, std::int64_t ldc) {
#ifdef PENSTOCK_AVX512
  if (fits(k)) {
    // A row has the same bits whatever the others are.
    const std::int64_t rows = std::max(kRows, kMostElements / std::max<std::int64_t>(k, 1));
    for (std::int64_t i = 0; i < m; i += rows) {
      const Side part{a.data + i * (a.transposed ? 1 : a.leading), a.leading, a.transposed};
      multiply_here(std::min(rows, m - i), n, k, alpha, part, b, beta, c + i * ldc, ldc);
    }
    return;
  }
#endif
  multiply_by_openblas(m, n, k, alpha, a, b, beta, c, ldc);
}

}  // namespace penstock
