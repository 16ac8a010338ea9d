// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/description.hpp"

#include "hw/cuda/driver.hpp"
#include "hw/cuda/nvml.hpp"

#include <cublasLt.h>

#include <fmt/format.h>

#include <cstdlib>

namespace penstock::cuda {
namespace {

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string cublaslt_version() {
  const std::size_t v = cublasLtGetVersion();  // 130100: 13.1.0
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

}  // namespace

Description describe_gpu(int gpu) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "describe the GPU");
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const Nvml nvml(gpu);
  Description d{
      {"backend", "cuda"},
      {"gpu", fmt::format("{}, {:.1f} GiB, compute capability {}.{}", properties.name,
                          static_cast<double>(properties.totalGlobalMem) / (1 << 30),
                          properties.major, properties.minor)},
      {"driver", fmt::format("{} (CUDA {})", nvml.driver_version(), cuda_version(driver))},
      {"cuda runtime", cuda_version(runtime)},
      {"cublaslt", cublaslt_version()}};
  // How many streams have a hardware queue of their own; others share, and wait for each other.
  if (const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"))
    d["CUDA_DEVICE_MAX_CONNECTIONS"] = queues;
  if (const unsigned now = nvml.clock_mhz("nvmlDeviceGetClockInfo", 1))
    d["clocks"] = fmt::format("SM {} of {} MHz, memory {} MHz", now,
                              nvml.clock_mhz("nvmlDeviceGetMaxClockInfo", 1),
                              nvml.clock_mhz("nvmlDeviceGetClockInfo", 2));
  if (const unsigned limit = nvml.power_limit_mw())
    d["power limit"] = fmt::format("{} W", limit / 1000);
  return d;
}

}  // namespace penstock::cuda
