// SPDX-License-Identifier: Apache-2.0
// The backend's arithmetic, its kernels as functions of the host.
#include "tests/hw/emulated_gpu/launches.hpp"

#include "hw/cuda/math.cu"
