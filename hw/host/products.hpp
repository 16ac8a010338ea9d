// SPDX-License-Identifier: Apache-2.0
// Matrix products of the host, in fp32. Those whose parts fit a core's cache are computed here
// where the machine has AVX-512: a training of a small model multiplies matrices of 32 to 600 rows
// and columns, for which packing both sides, as OpenBLAS does, costs a good part of the time, and
// OpenBLAS takes kernels of half the width on processors that it does not know. All others are
// OpenBLAS'. Which of both computes a product follows from k and the machine alone, and an element
// is one sum in the order of k, whatever m and n are.
#pragma once

#include <cstdint>

namespace penstock {

/// One operand of a product, as it is stored: row-major.
struct Side {
  const float* data;
  std::int64_t leading;
  bool transposed = false;
};

/// C = alpha op(A) op(B) + beta C; op(A) is m x k, op(B) k x n. With beta = 0, C is not read.
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Side a, Side b,
              float beta, float* c, std::int64_t ldc);

}  // namespace penstock
