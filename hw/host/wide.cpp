// SPDX-License-Identifier: Apache-2.0
// Compiled apart, with options that let sums be reordered into vectors (hw/meson.build).
#include "hw/host/wide.hpp"

#include <bit>
#include <cmath>

// A sanitizer's run time is not there yet when the loader chooses among clones. Clang has none:
// what it fuses in a vector it does not fuse in the steps that remain, so that bits would differ
// from those of a step in place.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define PENSTOCK_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PENSTOCK_CLONES
#endif
#define PENSTOCK_INLINE inline __attribute__((always_inline))

namespace penstock::wide {
namespace {

/// Returns e to the power of x, with x held within what a float can give; NaN stays NaN.
PENSTOCK_INLINE float exp_of(float x) {
  x = x > 88.37F ? 88.37F : x;
  x = x < -87.33F ? -87.33F : x;
  const float n = std::rint(x * 1.44269504088896341F);
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto exponent = static_cast<std::int32_t>(n) + 127;
  return p * std::bit_cast<float>(exponent << 23);
}

PENSTOCK_INLINE float gate_of(float x) {
  return 1.0F / (1.0F + exp_of(-1.5957691216F * (x + 0.044715F * x * x * x)));
}

}  // namespace

PENSTOCK_CLONES void gelu(std::int64_t n, const float* z, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = z[i] * gate_of(z[i]);
}

PENSTOCK_CLONES void gelu_backward(std::int64_t n, const float* dy, const float* z, float* dz) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = z[i], gate = gate_of(x);
    const float slope = 1.5957691216F * (1.0F + 3.0F * 0.044715F * x * x);
    dz[i] = dy[i] * (gate + x * gate * (1.0F - gate) * slope);
  }
}

PENSTOCK_CLONES void add_bias(std::int64_t rows, std::int64_t cols, const float* bias,
                              const float* residual, float* y) {
  for (std::int64_t r = 0; r < rows; ++r, y += cols) {
    if (residual == nullptr) {
      for (std::int64_t i = 0; i < cols; ++i) y[i] = y[i] + bias[i];
      continue;
    }
    for (std::int64_t i = 0; i < cols; ++i) y[i] = y[i] + bias[i] + residual[r * cols + i];
  }
}

PENSTOCK_CLONES void bias_backward(std::int64_t rows, std::int64_t cols, const float* dy,
                                   float* gradient) {
  for (std::int64_t r = 0; r < rows; ++r, dy += cols) {
    for (std::int64_t i = 0; i < cols; ++i) gradient[i] += dy[i];
  }
}

PENSTOCK_CLONES void layer_norm(std::int64_t rows, std::int64_t cols, const float* x,
                                const float* gamma, const float* beta, float* y, float* mean,
                                float* rstd) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float sum = 0, squares = 0;
    for (std::int64_t i = 0; i < cols; ++i) sum += x[i];
    const float centre = sum / static_cast<float>(cols);
    for (std::int64_t i = 0; i < cols; ++i) squares += (x[i] - centre) * (x[i] - centre);
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(cols) + 1e-5F);
    for (std::int64_t i = 0; i < cols; ++i) y[i] = (x[i] - centre) * scale * gamma[i] + beta[i];
    mean[r] = centre;
    rstd[r] = scale;
  }
}

PENSTOCK_CLONES void layer_norm_backward(std::int64_t rows, std::int64_t cols, const float* dy,
                                         const float* x, const float* gamma, const float* mean,
                                         const float* rstd, const float* residual, float* dx) {
  for (std::int64_t r = 0; r < rows; ++r, dy += cols, x += cols, dx += cols) {
    const float centre = mean[r], scale = rstd[r];
    float sum = 0, sum_normed = 0;
    for (std::int64_t i = 0; i < cols; ++i) {
      const float g = dy[i] * gamma[i];
      sum += g;
      sum_normed += g * (x[i] - centre) * scale;
    }
    const float mean_g = sum / static_cast<float>(cols);
    const float mean_normed = sum_normed / static_cast<float>(cols);
    for (std::int64_t i = 0; i < cols; ++i) {
      const float normed = (x[i] - centre) * scale;
      const float through = scale * (dy[i] * gamma[i] - mean_g - normed * mean_normed);
      dx[i] = through + (residual != nullptr ? residual[r * cols + i] : 0.0F);
    }
  }
}

PENSTOCK_CLONES void layer_norm_backward_weight(std::int64_t rows, std::int64_t cols,
                                                const float* dy, const float* x, const float* mean,
                                                const float* rstd, float* dgamma, float* dbeta) {
  for (std::int64_t r = 0; r < rows; ++r, dy += cols, x += cols) {
    const float centre = mean[r], scale = rstd[r];
    for (std::int64_t i = 0; i < cols; ++i) {
      dgamma[i] += dy[i] * (x[i] - centre) * scale;
      dbeta[i] += dy[i];
    }
  }
}

PENSTOCK_CLONES void softmax_row(std::int64_t visible, std::int64_t all, float scale, float* x) {
  float largest = x[0] * scale;
  for (std::int64_t i = 1; i < visible; ++i) {
    const float here = x[i] * scale;
    largest = here > largest ? here : largest;
  }
  float sum = 0;
  for (std::int64_t i = 0; i < visible; ++i) {
    x[i] = exp_of(x[i] * scale - largest);
    sum += x[i];
  }
  const float inverse = 1.0F / sum;
  for (std::int64_t i = 0; i < visible; ++i) x[i] *= inverse;
  for (std::int64_t i = visible; i < all; ++i) x[i] = 0;
}

PENSTOCK_CLONES void softmax_backward_row(std::int64_t visible, std::int64_t all, float scale,
                                          const float* p, float* g) {
  float mean = 0;
  for (std::int64_t i = 0; i < visible; ++i) mean += p[i] * g[i];
  for (std::int64_t i = 0; i < visible; ++i) g[i] = scale * p[i] * (g[i] - mean);
  for (std::int64_t i = visible; i < all; ++i) g[i] = 0;
}

PENSTOCK_CLONES void adamw(std::int64_t n, const AdamwFactors& f, const float* w, float* next,
                           float* gradient, float* m, float* v) {
#if defined(__clang__)  // A step in place is no vector there: its sums must have the same order.
#pragma clang fp reassociate(off) contract(off)
#endif
  const AdamwFactors c = f;
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale + c.decay * w[i];
    const float mean = c.beta1 * m[i] + c.one_minus_beta1 * g;
    const float square = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
    const float deviation = std::sqrt(square * c.second_correction) + c.epsilon;
    next[i] = w[i] * c.kept - c.rate * (mean * c.first_correction + c.beside * g) / deviation;
    m[i] = mean;
    v[i] = square;
    gradient[i] = 0;
  }
}

}  // namespace penstock::wide
