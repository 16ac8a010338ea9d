// SPDX-License-Identifier: Apache-2.0
// Attention on the host, in fp32, whose probabilities are never stored: head by head, some rows at
// a time against all the keys that they see, by OpenBLAS. Its backward recomputes the rows'
// probabilities from the log-sums and adds to the gradients of keys and values in the order of the
// rows. Formulas as of the fused kernels (hw/cuda/attention.cuh), which it is the reference of.
#pragma once

#include "hw/math.hpp"

namespace penstock {

/// As Math::attention and Math::attention_backward.
void attend(const Attention& shape, const float* qkv, float* context, float* log_sums);
void attend_backward(const Attention& shape, const float* qkv, const float* context,
                     const float* log_sums, const float* dcontext, float* dqkv);

}  // namespace penstock
