// SPDX-License-Identifier: Apache-2.0
// Teams of CUDA threads for the row kernels, and their launches.
//
// A BlockTeam is a block: sums go through the lanes of a warp, then through the warps, always in
// the same order. A GridTeam is the whole grid, for work without sums.
#pragma once

#include "hw/cuda/driver.hpp"
#include "hw/cuda/tiles.cuh"
#include "hw/row_kernels.hpp"

namespace penstock::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kBlockThreads = 1024;  // of a block that works alone

struct BlockTeam {
  static constexpr int columns = 8;
  PENSTOCK_HD std::int64_t rank() const {
#ifdef __CUDA_ARCH__
    return threadIdx.x;
#else
    return 0;
#endif
  }
  PENSTOCK_HD std::int64_t size() const {
#ifdef __CUDA_ARCH__
    return blockDim.x;
#else
    return 1;
#endif
  }
  struct Plus {
    PENSTOCK_HD float operator()(float a, float b) const { return a + b; }
  };
  struct Greater {
    PENSTOCK_HD float operator()(float a, float b) const { return a > b ? a : b; }
  };
  PENSTOCK_HD float sum(float x) const { return combine(x, Plus{}); }
  PENSTOCK_HD float max(float x) const { return combine(x, Greater{}); }

 private:
  template <class Combine>
  PENSTOCK_HD float combine(float x, Combine with) const {
#ifdef __CUDA_ARCH__
    __shared__ float of_warps[32];
    for (unsigned far = 16; far > 0; far /= 2) x = with(x, __shfl_xor_sync(0xffffffffU, x, far));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    float all = of_warps[0];
    for (unsigned w = 1; w < blockDim.x / 32; ++w) all = with(all, of_warps[w]);
    __syncthreads();  // of_warps may be written again
    return all;
#else
    static_cast<void>(with);
    return x;
#endif
  }
};

struct GridTeam {
  static constexpr int columns = 1;
  PENSTOCK_HD std::int64_t rank() const {
#ifdef __CUDA_ARCH__
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
#else
    return 0;
#endif
  }
  PENSTOCK_HD std::int64_t size() const {
#ifdef __CUDA_ARCH__
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
#else
    return 1;
#endif
  }
};

#ifdef __CUDACC__
template <auto kernel, class... Arguments>
__global__ void __launch_bounds__(kThreads) on_rows(std::int64_t step, Arguments... arguments) {
  kernel(BlockTeam{}, static_cast<std::int64_t>(blockIdx.x) * step, arguments...);
}

template <auto kernel, class... Arguments>
__global__ void __launch_bounds__(kBlockThreads) on_block(Arguments... arguments) {
  kernel(BlockTeam{}, arguments...);
}

template <auto kernel, class... Arguments>
__global__ void __launch_bounds__(kThreads) on_grid(Arguments... arguments) {
  kernel(GridTeam{}, arguments...);
}

/// One block per `step` of `rows`: kernel(team, first row, arguments...).
template <auto kernel, class... Arguments>
void launch_rows(cudaStream_t stream, std::int64_t rows, std::int64_t step,
                 Arguments... arguments) {
  if (rows == 0) return;
  const auto blocks = static_cast<unsigned>((rows + step - 1) / step);
  on_rows<kernel><<<blocks, kThreads, 0, stream>>>(step, arguments...);
  check(cudaGetLastError(), "launch a row kernel");
}

template <class Kernel>
__global__ void __launch_bounds__(32 * kWarps) on_tiles(Kernel kernel) {
  extern __shared__ int4 shared[];
  // Blocks begin in this order, and those with the most to do should not be the last.
  const auto at = static_cast<int>(blockIdx.y);
  kernel.run_tile(blockIdx.x, Kernel::kHeavyLast ? kernel.tiles() - 1 - at : at, shared);
}

/// A block for every tile of each of `heads`: kernel.run_tile(head, tile, shared memory).
template <class Kernel>
void launch_tiles(cudaStream_t stream, std::int64_t heads, const Kernel& kernel) {
  constexpr auto bytes = static_cast<int>(Kernel::kSharedBytes);
  check(cudaFuncSetAttribute(on_tiles<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "reserve shared memory for attention");
  const dim3 blocks(static_cast<unsigned>(heads), static_cast<unsigned>(kernel.tiles()));
  on_tiles<Kernel><<<blocks, 32 * kWarps, bytes, stream>>>(kernel);
  check(cudaGetLastError(), "launch a tile kernel");
}

/// One block: kernel(team, arguments...).
template <auto kernel, class... Arguments>
void launch_block(cudaStream_t stream, Arguments... arguments) {
  on_block<kernel><<<1, kBlockThreads, 0, stream>>>(arguments...);
  check(cudaGetLastError(), "launch a one-block kernel");
}

/// As many threads as elements, up to what `sms` SMs hold: kernel(team, arguments...).
template <auto kernel, class... Arguments>
void launch_grid(cudaStream_t stream, int sms, std::int64_t elements, Arguments... arguments) {
  if (elements == 0) return;
  const std::int64_t wanted = (elements + kThreads - 1) / kThreads;
  const std::int64_t most = std::int64_t{8} * sms;
  const auto blocks = static_cast<unsigned>(wanted < most ? wanted : most);
  on_grid<kernel><<<blocks, kThreads, 0, stream>>>(arguments...);
  check(cudaGetLastError(), "launch an element kernel");
}
#endif

}  // namespace penstock::cuda
