// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/driver.hpp"

#include <fmt/format.h>

namespace penstock::cuda {
namespace {

void* entry_point(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t result =
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
  if (result == cudaSuccess && found == cudaDriverEntryPointSuccess && function != nullptr)
    return function;
  throw SystemError(fmt::format("this NVIDIA driver has no {} (CUDA {}.{} or newer is needed)",
                                name, version / 1000, version % 1000 / 10));
}

template <class Function>
void look_up(Function& function, const char* name, unsigned version) {
  function = reinterpret_cast<Function>(entry_point(name, version));
}

Driver look_up_all() {
  Driver d{};
  look_up(d.device_get, "cuDeviceGet", 2000);
  look_up(d.device_resource, "cuDeviceGetDevResource", 12040);
  look_up(d.split_by_count, "cuDevSmResourceSplitByCount", 12040);
  look_up(d.describe_resource, "cuDevResourceGenerateDesc", 12040);
  look_up(d.green_create, "cuGreenCtxCreate", 12040);
  look_up(d.green_destroy, "cuGreenCtxDestroy", 12040);
  look_up(d.green_stream, "cuGreenCtxStreamCreate", 12050);
  return d;
}

}  // namespace

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report it once more
  throw SystemError(fmt::format("CUDA cannot {}: {}", what, cudaGetErrorString(result)));
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  throw SystemError(fmt::format("CUDA cannot {}: driver error {}", what, static_cast<int>(result)));
}

namespace {

/// The runtime is linked in, and no other one is loaded: a new one needs a new driver (CUDA's
/// release notes, table "CUDA Toolkit and Minimum Required Driver Version").
std::string needed_driver() {
  constexpr int kMajor = CUDART_VERSION / 1000;
  constexpr const char* kLeast = kMajor == 13 ? "580" : kMajor == 12 ? "525" : "";
  if (*kLeast == '\0') return "";
  return fmt::format(", which drivers from {} on support", kLeast);
}

}  // namespace

int count_gpus() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    throw NoGpu("no NVIDIA driver on this machine (libcuda.so.1 not found); use --backend host");
  int gpus = 0;
  const cudaError_t result = cudaGetDeviceCount(&gpus);
  cudaGetLastError();
  if (result == cudaErrorInsufficientDriver)
    throw NoGpu(
        fmt::format("the NVIDIA driver supports CUDA {}.{}, {}.{} is needed{}; use --backend host",
                    version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
                    CUDART_VERSION % 1000 / 10, needed_driver()));
  if (result != cudaSuccess && result != cudaErrorNoDevice)
    throw NoGpu(
        fmt::format("the GPU cannot be used: {}; use --backend host", cudaGetErrorString(result)));
  if (gpus == 0) throw NoGpu("no GPU on this machine; use --backend host");
  return gpus;
}

bool is_idle(cudaStream_t stream) {
  if (cudaStreamQuery(stream) != cudaErrorNotReady) return true;
  cudaGetLastError();
  return false;
}

void use_gpu(int gpu) {
  thread_local int current = -1;
  if (current == gpu) return;
  check(cudaSetDevice(gpu), "select the GPU");
  current = gpu;
}

const Driver& driver() {
  static const Driver loaded = look_up_all();
  return loaded;
}

}  // namespace penstock::cuda
