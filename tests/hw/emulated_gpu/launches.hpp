// SPDX-License-Identifier: Apache-2.0
// Launches of kernels on the emulated GPU: a kernel is one function of the stream, its team one
// thread. Before the backend's sources that have kernels, which are compiled as C++ here.
#pragma once

#include <cuda_bf16.h>  // before the row kernels, which then have it, too

#include "hw/cuda/teams.cuh"
#include "tests/hw/emulated_gpu/gpu.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock::cuda {

/// As <<<>>> and cudaGetLastError(): an error that somebody left behind is taken for the launch's.
/// On first use a kernel is loaded, once per GPU.
template <class Kernel>
void launch(cudaStream_t stream, Kernel kernel, const char* what) {
  static std::array<std::once_flag, emulated::kMostGpus> loaded;
  std::call_once(loaded[static_cast<std::size_t>(emulated::current_gpu())], emulated::load_code);
  auto held = std::make_unique<Kernel>(std::move(kernel));
  const auto run = [](void* data) { (*std::unique_ptr<Kernel>(static_cast<Kernel*>(data)))(); };
  check(cudaLaunchHostFunc(stream, run, held.get()), what);
  static_cast<void>(held.release());
  check(cudaGetLastError(), what);
}

template <auto kernel, class... Arguments>
void launch_rows(cudaStream_t stream, std::int64_t rows, std::int64_t step,
                 Arguments... arguments) {
  launch(
      stream,
      [=] {
        for (std::int64_t row = 0; row < rows; row += step) kernel(BlockTeam{}, row, arguments...);
      },
      "launch a row kernel");
}

/// Shared memory begins as garbage.
template <class Kernel>
void launch_tiles(cudaStream_t stream, std::int64_t heads, const Kernel& kernel) {
  launch(
      stream,
      [=] {
        std::vector<std::uint32_t> shared(Kernel::kSharedBytes / 4);
        for (std::int64_t head = 0; head < heads; ++head) {
          for (int tile = 0; tile < kernel.tiles(); ++tile) {
            std::fill(shared.begin(), shared.end(), 0x7fc0deadU);
            kernel.run_tile(head, tile, shared.data());
          }
        }
      },
      "launch a tile kernel");
}

template <auto kernel, class... Arguments>
void launch_block(cudaStream_t stream, Arguments... arguments) {
  launch(
      stream, [=] { kernel(BlockTeam{}, arguments...); }, "launch a one-block kernel");
}

template <auto kernel, class... Arguments>
void launch_grid(cudaStream_t stream, int, std::int64_t elements, Arguments... arguments) {
  if (elements == 0) return;
  launch(
      stream, [=] { kernel(GridTeam{}, arguments...); }, "launch an element kernel");
}

}  // namespace penstock::cuda
