// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime and driver for the rest of this module: checked calls, the current GPU, and the
// driver's functions, looked up at run time so that the module loads where there is no driver.
#pragma once

#include "base/error.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

namespace penstock::cuda {

/// There is nothing to run on; the text is one line for the user.
class NoGpu : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws SystemError "CUDA cannot WHAT: <CUDA's text>".
void check(cudaError_t result, const char* what);
void check(CUresult result, const char* what);

/// GPUs this process sees. Throws NoGpu when there is none, or no driver, or one too old.
int count_gpus();

/// Has everything issued to the stream run, or failed? "Not yet" would stay behind as an error,
/// which the next launch would report as its own.
bool is_idle(cudaStream_t stream);

/// Makes a GPU the calling thread's.
void use_gpu(int gpu);

struct Driver {
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetDevResource) device_resource;
  decltype(&cuDevSmResourceSplitByCount) split_by_count;
  decltype(&cuDevResourceGenerateDesc) describe_resource;
  decltype(&cuGreenCtxCreate) green_create;
  decltype(&cuGreenCtxDestroy) green_destroy;
  decltype(&cuGreenCtxStreamCreate) green_stream;
};
/// Throws SystemError when this driver lacks one of them (they came with CUDA 12.4 and 12.5).
const Driver& driver();

}  // namespace penstock::cuda
