// SPDX-License-Identifier: Apache-2.0
// Math on CUDA: cuBLASLt for matrix products, the row kernels for the rest.
//
// Every call hands a closure to the compute queue; tensors' memory is looked up when it runs. Rows
// are blocks of threads, sums within a block have one order, so results depend on operands alone.
#pragma once

#include "hw/host/rotation.hpp"
#include "hw/math.hpp"

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

namespace penstock::cuda {

struct MathSettings {
  cudaStream_t stream = nullptr;
  int sms = 0;  ///< to use; 0: all
  bool bf16 = false;
  /// The program's own, which has the linear algebra for it.
  RenewBases* renew_bases = nullptr;
  /// Waits for all that was issued to the stream; for a closure of the compute queue.
  std::function<void()> settle;
};

/// `enqueue` puts work on the compute queue, to be run in this order. The GPU must be current.
std::unique_ptr<Math> make_cuda_math(const MathSettings& settings,
                                     std::function<void(std::function<void()>)> enqueue);

}  // namespace penstock::cuda
