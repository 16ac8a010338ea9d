// SPDX-License-Identifier: Apache-2.0
// What a run used: GPU, driver, libraries, clocks. NVML is asked where it is there.
#pragma once

#include "hw/backend.hpp"

namespace penstock::cuda {

/// "gpu", "driver", "cuda runtime", "cublaslt", and what NVML says about its clocks and power.
Description describe_gpu(int gpu);

}  // namespace penstock::cuda
