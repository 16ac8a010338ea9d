// SPDX-License-Identifier: Apache-2.0
// The three products of a linear layer y = x W^T + bias, W being out x in.
#pragma once

#include "hw/math.hpp"

namespace penstock {

struct Linear {
  std::int64_t out, in;
  std::int64_t weight, bias;  ///< elements before them; below 0: it has no bias

  /// y = x W^T.
  Gemm forward(std::int64_t rows) const {
    Gemm g;
    g.m = rows, g.n = out, g.k = in;
    g.transpose_b = true;
    g.lda = in, g.ldb = in, g.ldc = out;
    return g;
  }
  /// dx = dy W.
  Gemm backward_input(std::int64_t rows) const {
    Gemm g;
    g.m = rows, g.n = in, g.k = out;
    g.lda = out, g.ldb = in, g.ldc = in;
    return g;
  }
  /// dW += dy^T x.
  Gemm backward_weight(std::int64_t rows) const {
    Gemm g;
    g.m = out, g.n = in, g.k = rows;
    g.transpose_a = true;
    g.lda = out, g.ldb = in, g.ldc = in;
    g.beta = 1;
    g.fp32_output = true;
    return g;
  }
};

}  // namespace penstock
