// SPDX-License-Identifier: Apache-2.0
// Tiles of a warp: matrices of 16 rows whose elements its 32 lanes hold in registers, as the tensor
// cores' instructions want them, and products of such with matrices in shared memory.
//
// On a GPU a thread holds what its lane holds. Elsewhere one thread holds the registers of all 32
// lanes and carries out the same instructions as their document says (PTX ISA: mma.m16n8k16,
// ldmatrix, shfl.bfly): so an emulated GPU runs the same algorithm on the same layouts.
//   accumulators, 16 x 8: lane l holds rows l/4 and l/4 + 8, columns 2 (l%4) and the next one
//   left operand, 16 x 16: the same of the columns 0-7, then of the columns 8-15
//   right operand, 16 x 8: lane l holds column l/4, rows 2 (l%4) and the next one, and both + 8
#pragma once

#include <cuda_bf16.h>  // before the row kernels, which then have it, too

#include "hw/row_kernels.hpp"

#include <bit>
#include <cstring>

#ifdef __CUDACC__
#define PENSTOCK_UNROLL _Pragma("unroll")
#define PENSTOCK_LOOP _Pragma("unroll 1")
#else
#define PENSTOCK_UNROLL
#define PENSTOCK_LOOP
#endif

namespace penstock::cuda {

#ifdef __CUDA_ARCH__
inline constexpr int kHeldLanes = 1;
#else
inline constexpr int kHeldLanes = 32;
#endif

PENSTOCK_HD inline int lane_of(int held) {
#ifdef __CUDA_ARCH__
  return static_cast<int>(threadIdx.x) % 32 + held;
#else
  return held;
#endif
}

PENSTOCK_HD inline void sync_warp() {
#ifdef __CUDA_ARCH__
  __syncwarp();
#endif
}
PENSTOCK_HD inline void sync_block() {
#ifdef __CUDA_ARCH__
  __syncthreads();
#endif
}

/// Of a block: 4 x 32 threads; elsewhere one thread that is a warp.
#ifdef __CUDACC__
inline constexpr int kWarps = 4;
#else
inline constexpr int kWarps = 1;
#endif
inline constexpr int kTileRows = 16 * kWarps;  ///< of a block

PENSTOCK_HD inline int thread_of_block() {
#ifdef __CUDA_ARCH__
  return static_cast<int>(threadIdx.x);
#else
  return 0;
#endif
}
PENSTOCK_HD inline int threads_of_block() {
#ifdef __CUDA_ARCH__
  return static_cast<int>(blockDim.x);
#else
  return 1;
#endif
}
PENSTOCK_HD inline int warp_of_block() { return thread_of_block() / 32; }

/// 16 rows x kColumns of fp32.
template <int kColumns>
struct Accumulators {
  static constexpr int kBlocks = kColumns / 8;
  float at[kHeldLanes][kBlocks][4] = {};

  /// f(element, row, column) for the elements held here.
  template <class F>
  PENSTOCK_HD void each(const F& f) {
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      const int lane = lane_of(held);
      PENSTOCK_UNROLL
      for (int j = 0; j < kBlocks; ++j) {
        PENSTOCK_UNROLL
        for (int c = 0; c < 4; ++c)
          f(at[held][j][c], lane / 4 + 8 * (c / 2), 8 * j + 2 * (lane % 4) + c % 2);
      }
    }
  }
  /// f(element, value of its row).
  template <class Values, class F>
  PENSTOCK_HD void each_with(const Values& values, const F& f) {
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      PENSTOCK_UNROLL
      for (int j = 0; j < kBlocks; ++j) {
        PENSTOCK_UNROLL
        for (int c = 0; c < 4; ++c) f(at[held][j][c], values.at[held][c / 2]);
      }
    }
  }
};

/// One fp32 number for each of 16 rows; the four lanes of a row hold the same.
struct RowValues {
  float at[kHeldLanes][2];

  /// f(value, row).
  template <class F>
  PENSTOCK_HD void each(const F& f) {
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      PENSTOCK_UNROLL
      for (int half = 0; half < 2; ++half) f(at[held][half], lane_of(held) / 4 + 8 * half);
    }
  }
  PENSTOCK_HD static RowValues all(float x) {
    RowValues v;
    v.each([&](float& value, int) { value = x; });
    return v;
  }
};

/// Every lane gets with(its own value, that of lane ^ far).
template <class With>
PENSTOCK_HD void exchange(RowValues& v, int far, const With& with) {
  for (int half = 0; half < 2; ++half) {
#ifdef __CUDA_ARCH__
    v.at[0][half] = with(v.at[0][half], __shfl_xor_sync(0xffffffffU, v.at[0][half], far));
#else
    float other[kHeldLanes];
    for (int lane = 0; lane < kHeldLanes; ++lane) other[lane] = v.at[lane ^ far][half];
    for (int lane = 0; lane < kHeldLanes; ++lane)
      v.at[lane][half] = with(v.at[lane][half], other[lane]);
#endif
  }
}

/// All elements of each row into one number, beginning with `from`.
template <int kColumns, class With>
PENSTOCK_HD RowValues combine_rows(const Accumulators<kColumns>& tile, float from,
                                   const With& with) {
  RowValues rows = RowValues::all(from);
  PENSTOCK_UNROLL
  for (int held = 0; held < kHeldLanes; ++held) {
    PENSTOCK_UNROLL
    for (int j = 0; j < kColumns / 8; ++j) {
      PENSTOCK_UNROLL
      for (int c = 0; c < 4; ++c)
        rows.at[held][c / 2] = with(rows.at[held][c / 2], tile.at[held][j][c]);
    }
  }
  exchange(rows, 1, with);
  exchange(rows, 2, with);
  return rows;
}

// Tensor cores. A register holds two bf16, the one of the lower index in its lower half.

using Registers = std::uint32_t;

PENSTOCK_HD inline Registers pack_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  Registers packed;
  memcpy(&packed, &pair, sizeof packed);
  return packed;
}

#ifndef __CUDA_ARCH__
inline float half_of(Registers packed, int which) {
  return std::bit_cast<float>(which == 0 ? packed << 16 : packed & 0xffff0000U);
}
#endif

/// Four 8 x 8 matrices of bf16 from shared memory; lane l of a warp names row l % 8 of matrix l
/// / 8. Register i of lane l gets elements 2 (l % 4) and the next of row l / 4 of matrix i;
/// transposed, of column l / 4.
template <bool kTransposed, class RowOf>
PENSTOCK_HD void load_matrices(Registers (*to)[4], const RowOf& row_of) {
#ifdef __CUDA_ARCH__
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row_of(lane_of(0))));
  Registers* r = to[0];
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
#else
  for (int lane = 0; lane < kHeldLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int first = 2 * (lane % 4), other = lane / 4;
      const auto element = [&](int row, int column) {
        return __bfloat162float(row_of(8 * i + row)[column]);
      };
      to[lane][i] = kTransposed ? pack_pair(element(first, other), element(first + 1, other))
                                : pack_pair(element(other, first), element(other, first + 1));
    }
  }
#endif
}

/// acc (16 x 8) += left (16 x 16) right (16 x 8); `right`: registers of each lane.
PENSTOCK_HD inline void multiply_add(float (*acc)[4], int acc_step, const Registers (*left)[4],
                                     int left_step, const Registers (*right)[4], int right_at) {
#ifdef __CUDA_ARCH__
  float* c = acc[0];
  const Registers* a = left[0];
  const Registers* b = right[0] + right_at;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kHeldLanes; ++lane) {
    const int row = lane / 4, pair = 2 * (lane % 4);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i)
        a[row + 8 * (i % 2)][pair + 8 * (i / 2) + half] = half_of(left[lane * left_step][i], half);
      for (int i = 0; i < 2; ++i)
        b[pair + 8 * i + half][row] = half_of(right[lane][right_at + i], half);
    }
  }
  for (int lane = 0; lane < kHeldLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      float sum = acc[lane * acc_step][i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      acc[lane * acc_step][i] = sum;
    }
  }
#endif
}

/// Products of bf16 by tensor cores. Tiles in shared memory are row-major, with a stride that is a
/// multiple of 8 elements.
struct TensorMultiply {
  using Element = __nv_bfloat16;
  static constexpr int kForwardTile = 64;
  static constexpr int kScratch = 0;  ///< elements per warp and column of a left operand

  /// 16 rows x kDepth.
  template <int kDepth>
  struct Left {
    static constexpr int kSteps = kDepth / 16;
    Registers at[kHeldLanes][kSteps][4];
  };

  template <int kDepth>
  PENSTOCK_HD static Left<kDepth> load(const Element* rows, int stride) {
    Left<kDepth> left;
    PENSTOCK_UNROLL
    for (int k = 0; k < kDepth / 16; ++k) {
      Registers four[kHeldLanes][4];
      load_matrices<false>(
          four, [&](int lane) { return rows + (lane % 16) * stride + 16 * k + 8 * (lane / 16); });
      keep(left, k, four);
    }
    return left;
  }
  /// What accumulators hold, rounded: their layout is that of a left operand already.
  template <int kDepth>
  PENSTOCK_HD static Left<kDepth> from(const Accumulators<kDepth>& acc, Element*) {
    Left<kDepth> left;
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      PENSTOCK_UNROLL
      for (int k = 0; k < kDepth / 16; ++k) {
        PENSTOCK_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* c = acc.at[held][2 * k + i / 2];
          left.at[held][k][i] = pack_pair(c[2 * (i % 2)], c[2 * (i % 2) + 1]);
        }
      }
    }
    return left;
  }
  /// acc += left right^T; right: kColumns rows of kDepth.
  template <int kColumns, int kDepth>
  PENSTOCK_HD static void multiply_transposed(Accumulators<kColumns>& acc, const Left<kDepth>& left,
                                              const Element* right, int stride) {
    product<false>(acc, left, [&](int k, int j, int lane) {
      return right + (8 * j + lane % 8 + 8 * (lane / 16)) * stride + 16 * k + 8 * (lane / 8 % 2);
    });
  }
  /// acc += left right; right: kDepth rows of kColumns.
  template <int kColumns, int kDepth>
  PENSTOCK_HD static void multiply(Accumulators<kColumns>& acc, const Left<kDepth>& left,
                                   const Element* right, int stride) {
    product<true>(acc, left, [&](int k, int j, int lane) {
      return right + (16 * k + lane % 16) * stride + 8 * j + 8 * (lane / 16);
    });
  }

 private:
  template <int kDepth>
  PENSTOCK_HD static void keep(Left<kDepth>& left, int k, const Registers (*four)[4]) {
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      PENSTOCK_UNROLL
      for (int i = 0; i < 4; ++i) left.at[held][k][i] = four[held][i];
    }
  }
  /// Two blocks of eight columns at a time; row_of(k, j, lane): of the four matrices.
  template <bool kTransposed, int kColumns, int kDepth, class RowOf>
  PENSTOCK_HD static void product(Accumulators<kColumns>& acc, const Left<kDepth>& left,
                                  const RowOf& row_of) {
    PENSTOCK_UNROLL
    for (int k = 0; k < kDepth / 16; ++k) {
      PENSTOCK_UNROLL
      for (int j = 0; j < kColumns / 8; j += 2) {
        Registers right[kHeldLanes][4];
        load_matrices<kTransposed>(right, [&](int lane) { return row_of(k, j, lane); });
        PENSTOCK_UNROLL
        for (int i = 0; i < 2; ++i)
          multiply_add(&acc.at[0][j + i], kColumns / 8, &left.at[0][k], kDepth / 16, right, 2 * i);
      }
    }
  }
};

/// Products of fp32, one number at a time. A left operand stays in shared memory.
struct PlainMultiply {
  using Element = float;
  static constexpr int kForwardTile = 32;
  static constexpr int kScratch = 16;

  template <int kDepth>
  struct Left {
    const float* rows;
    int stride;
  };

  template <int kDepth>
  PENSTOCK_HD static Left<kDepth> load(const float* rows, int stride) {
    return {rows, stride};
  }
  template <int kDepth>
  PENSTOCK_HD static Left<kDepth> from(Accumulators<kDepth>& acc, float* scratch) {
    sync_warp();  // other lanes may still read what the scratch holds
    acc.each([&](float& x, int row, int column) { scratch[row * kDepth + column] = x; });
    sync_warp();
    return {scratch, kDepth};
  }
  template <int kColumns, int kDepth>
  PENSTOCK_HD static void multiply_transposed(Accumulators<kColumns>& acc, const Left<kDepth>& left,
                                              const float* right, int stride) {
    acc.each([&](float& x, int row, int column) {
      const float* a = left.rows + row * left.stride;
      const float* b = right + column * stride;
      PENSTOCK_LOOP
      for (int k = 0; k < kDepth; ++k) x += a[k] * b[k];
    });
  }
  template <int kColumns, int kDepth>
  PENSTOCK_HD static void multiply(Accumulators<kColumns>& acc, const Left<kDepth>& left,
                                   const float* right, int stride) {
    acc.each([&](float& x, int row, int column) {
      const float* a = left.rows + row * left.stride;
      PENSTOCK_LOOP
      for (int k = 0; k < kDepth; ++k) x += a[k] * right[k * stride + column];
    });
  }
};

}  // namespace penstock::cuda
