// SPDX-License-Identifier: Apache-2.0
// What takes half of a small model's training on the host beside its products, for the widest
// vectors that the machine has. The formulas are those of hw/row_kernels.hpp, with exp(x) as 2^n
// times a polynomial (that of Cephes' expf, off by 2 units in the last place). Results depend on
// the machine's vectors as OpenBLAS' do, and on nothing else: every sum has one order.
#pragma once

#include "hw/adamw_factors.hpp"

#include <cstdint>

namespace penstock::wide {

void gelu(std::int64_t n, const float* z, float* y);
void gelu_backward(std::int64_t n, const float* dy, const float* z, float* dz);
/// `residual` may be null.
void add_bias(std::int64_t rows, std::int64_t cols, const float* bias, const float* residual,
              float* y);
void bias_backward(std::int64_t rows, std::int64_t cols, const float* dy, float* gradient);
void layer_norm(std::int64_t rows, std::int64_t cols, const float* x, const float* gamma,
                const float* beta, float* y, float* mean, float* rstd);
void layer_norm_backward(std::int64_t rows, std::int64_t cols, const float* dy, const float* x,
                         const float* gamma, const float* mean, const float* rstd,
                         const float* residual, float* dx);
void layer_norm_backward_weight(std::int64_t rows, std::int64_t cols, const float* dy,
                                const float* x, const float* mean, const float* rstd, float* dgamma,
                                float* dbeta);
/// One row: exp(scale x - largest) of the first `visible`, divided by their sum; 0 behind them.
void softmax_row(std::int64_t visible, std::int64_t all, float scale, float* x);
/// One row: the gradient of `p` in g becomes that of x above.
void softmax_backward_row(std::int64_t visible, std::int64_t all, float scale, const float* p,
                          float* g);

/// Zeroes the gradient.
void adamw(std::int64_t n, const AdamwFactors& f, const float* w, float* next, float* gradient,
           float* m, float* v);

}  // namespace penstock::wide
