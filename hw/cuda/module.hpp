// SPDX-License-Identifier: Apache-2.0
// The CUDA module, loaded on first use, so that penstock starts without a driver.
#pragma once

#include "hw/backend.hpp"
#include "hw/host/rotation.hpp"

#include <cstddef>
#include <string>

namespace penstock {

inline constexpr const char* kCudaEntry = "penstock_cuda_backend";
/// Null, with one line in `why`: there is no hardware. Throws InputError and SystemError. The
/// module has no linear algebra for hosts, and is given what it needs of the program's.
using CudaEntry = Backend*(const BackendRequest* request, RenewBases* renew_bases, char* why,
                           std::size_t why_bytes);

inline constexpr const char* kCudaProbe = "penstock_cuda_probe";
/// One line: the GPUs that are there, or why not ("no ..."). Valid until the next call.
using CudaProbe = const char*();

inline constexpr const char* kCudaExamine = "penstock_cuda_examine";
/// Says what GPU 0 is like (cuda/examination.hpp), a line at a time. False where there is none.
using CudaExamine = bool(void (*say)(const char* line));

/// What the module and its probe say; the loader's reason where there is no module.
std::string probe_cuda();

/// As CudaExamine. Throws NoHardware where there is no module or no GPU.
void examine_cuda(void (*say)(const char* line));

}  // namespace penstock
