// SPDX-License-Identifier: Apache-2.0
// Measures kernels alone on one GPU, by their shapes: matrix products as its library makes them,
// penstock's own fused attention, copies in its memory. What a device's file of kernel times
// (models/kernels/kernel_times.hpp) says of other families no kernel here can tell: products of 8
// and 4 bits, layers of experts, the attention and the collectives of frameworks.
//
// A shape is issued many times back to back between two events, so that the host's launches hide
// under the kernels; its time is the median of such rows over their number.
#pragma once

#include "hw/backend.hpp"

#include <functional>
#include <string>
#include <vector>

namespace penstock {

struct KernelRequest {
  std::int64_t largest = 8192;  ///< side of a product, and tokens of a sequence
  int rows = 5;                 ///< medians are of so many, after one that is not counted
  int in_row = 10;              ///< launches between two events
};

/// C[m,n] = A[m,k] B[k,n] in the working type; `sums`: a gradient of weights, added to one in fp32.
struct MeasuredProduct {
  std::string type;
  double m = 0, n = 0, k = 0;
  bool sums = false;
  double seconds = 0;
};
struct MeasuredAttention {
  std::string type;
  double batch = 0, seq = 0, heads = 0, head_dim = 0, forward_s = 0, backward_s = 0;
};
/// A copy, which reads so many bytes and writes as many.
struct MeasuredCopy {
  double bytes = 0, seconds = 0;
};

struct MeasuredKernels {
  Description machine;
  std::vector<MeasuredProduct> products;
  std::vector<MeasuredAttention> attention;
  std::vector<MeasuredCopy> copies;
};

/// Measures on the first device that `open` gives, in bf16. Throws as the backend does.
MeasuredKernels measure_kernels(
    const KernelRequest& request,
    const std::function<std::unique_ptr<Backend>(const BackendRequest&)>& open);

// As JSON text. Reading throws InputError that names `origin`.
std::string to_json(const MeasuredKernels& measured);
MeasuredKernels parse_measured_kernels(const std::string& json, const std::string& origin);

}  // namespace penstock
