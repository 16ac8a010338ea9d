// SPDX-License-Identifier: Apache-2.0
// What kernels take on a device, from measured times of many shapes: matrix products, whole layers
// of experts, attention, collectives inside a node, casts. A family has a law of a few numbers,
// which an engineer can read, and corrections of what the law leaves: smooth functions of the
// shape, given in per cent at the corners of small grids and linear in the shape's logarithms
// between them; outside of a grid its border holds. With e^c the corrections' factor, S
// multiprocessors and max_p(a, b) = (a^p + b^p)^(1/p):
//
//   product C[m,n] = A[m,k] B[k,n]    launch + max_4(compute, bytes / rate) + cast of A, times e^c
//     compute: the least over tiles a x b and k split into s = 1, 2, 4, 8 parts of
//       w S 2 a b (k / s + ramp) / (flops e^-loss(a b)),   x = s ceil(m/a) ceil(n/b) / S,
//       w = x + whole_waves (ceil(x) - x), of a split also split_s + 4 m n bytes;
//     long products are slower, which is power: compute (1 + throttle c / (c + patience))
//   experts    launch + max_3(up, its weights) + max_3(down, its weights) + moved bytes, times e^c,
//     of rows that are padded for each expert
//   attention  launch + FLOPs of ceil(s / 128) blocks a head, each w as above and (pairs + ramp)
//     long, + bytes of Q and the result and, apart, of K and V, times e^c
//   collectives, casts: seconds at sizes, linear in the logarithms of both between them
//
// The files models/devices/kernels/*.json say what they were fitted on; scripts/device_kernels
// fits them and prints how far they are off on shapes that it did not see. Times are forward and
// on the GPU alone: no launch from the host.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Names what corrections depend on.
enum class KernelQuantity : std::uint8_t {
  m,
  n,
  k,
  waves,           ///< 128 x 256 tiles over multiprocessors
  rows,            ///< of an expert
  inter,           ///< of an expert on a tensor rank
  hidden,          ///< of a layer of experts
  ep,              ///< GPUs that share the experts
  skew,            ///< 1: all experts have as many rows; 2: as a power law says
  seq,             ///< tokens of a sequence
  sequence_heads,  ///< sequences times heads
  head_dim
};
inline constexpr std::size_t kKernelQuantities = 12;
using KernelShape = std::array<double, kKernelQuantities>;

struct KernelAxis {
  KernelQuantity of = KernelQuantity::m;
  std::vector<double> knots;  ///< ascending
};

/// A correction: e^(percent / 100) at the knots, the last axis' running fastest.
struct KernelGrid {
  std::vector<KernelAxis> axes;
  std::vector<double> percent;
};

struct ProductLaw {
  std::string type;  ///< of the operands: bf16, fp8, fp8_block, nvfp4
  double flops_per_s = 0, launch_s = 0, bytes_per_s = 0;
  double ramp = 0;                  ///< elements of k that filling the pipeline takes
  double whole_waves = 0;           ///< 0: a last wave costs its share; 1: a whole one
  std::vector<double> tile_losses;  ///< of tiles of a half, a quarter, an eighth of 128 x 256
  double split_s = 0, split_bytes_per_s = 0;
  double throttle = 0, patience_s = 0;
  /// Time of products that run for a second and longer, at the clock that power leaves, over
  /// theirs.
  double sustained = 1;
  std::optional<double> cast_bytes_per_s;  ///< of A, which is cast in the same call
  std::vector<KernelGrid> corrections;
};

struct ExpertsLaw {
  std::string type;
  double flops_per_s = 0, launch_s = 0, weights_bytes_per_s = 0, moved_bytes_per_s = 0;
  double padding = 0, skewed_padding = 0;  ///< rows added to each expert
  double ramp = 0;
  std::vector<KernelGrid> corrections;
};

enum class AttentionKind : std::uint8_t { causal, full, mla };

struct AttentionLaw {
  std::string framework;
  AttentionKind kind = AttentionKind::causal;
  std::string type;
  std::vector<double> head_dims, flops_per_s;  ///< a rate for each size, linear between them
  double launch_s = 0, bytes_per_s = 0, kv_bytes_per_s = 0, ramp = 0, whole_waves = 0;
  std::vector<KernelGrid> corrections;
};

/// Seconds at sizes in bytes.
struct KernelPoints {
  std::string op;
  int ranks = 1;  ///< of collectives
  std::vector<double> bytes, seconds;
};

/// Elements of a product's sides: C[m,n] = A[m,k] B[k,n].
struct ProductShape {
  double m = 0, n = 0, k = 0;
};

/// Which of a matrix' three products it is, of `tokens` rows and a matrix of `in` x `out`.
enum class ProductPass : std::uint8_t { forward, input, weight };
ProductShape pass_shape(ProductPass pass, double tokens, double in, double out);

struct ExpertsShape {
  double tokens = 0;  ///< of the whole group of expert ranks
  double hidden = 0, inter = 0, topk = 1, experts = 1;
  bool gated = true;  ///< SwiGLU: three matrices instead of two
  double tp = 1, ep = 1;
  /// Rows of the GPU that has most of them, over the mean.
  double load = 1;
  double skew = 1;  ///< 1: the experts of a GPU get as many rows; 2: as a power law says
};

struct AttentionShape {
  double batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

struct KernelTimes {
  std::string device;  ///< they were measured on
  std::string source;
  double peak_flops_per_s = 0, memory_bytes_per_s = 0;  ///< of its data sheet; bf16, dense
  double multiprocessors = 0;
  double attention_backward = 0;  ///< time of attention's backward over its forward
  std::vector<KernelPoints> streams;
  std::vector<ProductLaw> products;
  std::vector<ExpertsLaw> experts;
  std::vector<AttentionLaw> attention;
  std::vector<KernelPoints> collectives;
  /// Bytes per second that a GPU can send to the others of its node, by data sheet, where the
  /// collectives were measured; none: they were not.
  std::optional<double> link_bytes_per_s;

  /// Returns the seconds of a product of operands of this type (of fp16 as of bf16); none where
  /// that was not measured. So for all of them.
  std::optional<double> product_s(std::string_view type, const ProductShape& shape) const;
  /// Returns the seconds of a layer's gradient of weights that is added to one of so many bytes.
  std::optional<double> accumulated_s(std::string_view type, const ProductShape& shape,
                                      double sum_bytes = 4) const;
  /// Returns `sustained` of this type's products; 1 where it was not measured.
  double sustained(std::string_view type) const;
  /// Returns the seconds of a layer of experts, with routing, permutation and activation.
  std::optional<double> experts_s(std::string_view type, const ExpertsShape& shape) const;
  /// Returns the seconds of attention's forward. Without a framework it is that of the first in
  /// the file: SGLang's FlashAttention 2 and 3 where that was measured.
  std::optional<double> attention_s(AttentionKind kind, std::string_view type,
                                    const AttentionShape& shape,
                                    std::string_view framework = "") const;
  /// Returns the seconds of a collective inside a node; `bytes` as nccl-tests counts them. Between
  /// measured numbers of ranks it is linear in their logarithm.
  std::optional<double> collective_s(std::string_view op, double ranks, double bytes) const;
  /// Returns the seconds of a kernel that memory limits, by the bytes that it reads and writes.
  std::optional<double> stream_s(std::string_view op, double bytes) const;
};

/// Returns what is assumed of a device that was not measured: the same shares of its peaks.
KernelTimes assumed_times(KernelTimes measured, double peak_flops_per_s, double memory_bytes_per_s);

/// Returns a file of kernel times, as `parse_kernel_times` reads it.
std::string to_json(const KernelTimes& times);
/// Reads a file of kernel times. Throws InputError with everything that is wrong.
KernelTimes parse_kernel_times(const std::string& text, const std::string& origin);

}  // namespace penstock
