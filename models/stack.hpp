// SPDX-License-Identifier: Apache-2.0
// A training stack: what the software around the matrix products costs. The neutral one adds
// nothing, and the device's efficiency curve of whole layers says all.
//
// One with `matrix_efficiency` takes a layer apart. Of b sequences of s tokens on one of t GPUs:
//   matrices    FLOPs / (t peak matrix_efficiency), attention with its own efficiency, half of it
//               where flash attention skips what is masked; a device that says what products reach
//               on it goes before the stack; products in fp32, on CUDA cores, reach 95 % of peak
//               whatever both say, which is of tensor cores. Operands add bytes / bandwidth, which
//               is what products of few rows or columns lose
//   traffic     norms, activations, casts: bytes per token and hidden element of 16 bits, at memory
//               bandwidth; twice as many of 32 bits
//   weights     gradients added to those of earlier microbatches: bytes per parameter and backward
//   launches    the host's time for a layer's kernels; it and the GPU's join smoothly, as
//               (gpu^4 + host^4)^(1/4): each hides nearly all of the shorter one
// and the LM head, the links under the stack's collectives, the optimizer, what overlaps and what
// is kept for the backward have numbers of their own.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// How software makes the loss of logits, in bytes per logit of e bytes.
enum class CrossEntropy : std::uint8_t {
  separate,  ///< 4 kept, a softmax in fp32; 4 + e beside it, logits in both types
  fused,     ///< 4 kept; e beside it (Megatron-LM's --cross-entropy-loss-fusion)
  in_place,  ///< e kept, the gradient that takes the logits' place (Transformer Engine's)
};

/// Returns what the loss reads and writes of a 16-bit logit, in bytes, the mean of forward and
/// backward. The operations of Megatron-LM's vocabulary-parallel cross entropy were counted from
/// memory of its code, not from the file:
/// * separate: cast 6, maximum 4, subtraction 8, exponential 8, sum 4, division 8; scaling 8, cast
/// 6
/// * fused: cast and maximum 6, subtraction to sum 8, division 8; scaling and cast 6
/// * in_place: maximum and sum 2, gradient 4; scaling 4
constexpr double logits_traffic_of(CrossEntropy how) {
  return how == CrossEntropy::separate ? 26 : how == CrossEntropy::fused ? 14 : 5;
}

struct StackSpec {
  std::string name;
  std::string fitted_on;  ///< which measured rows its numbers have seen; for information

  double matrix_efficiency = 0;      ///< share of peak; 0: a neutral stack
  std::string matrix_efficiency_of;  ///< devices it was measured on; empty: not said
  /// Products and attention take what was measured of such kernels on the device, by their shapes
  /// (models/cost/kernel_layer.hpp); the efficiencies are for devices of which nothing is known.
  bool measured_kernels = false;
  double attention_efficiency = 0;  ///< of attention's two products; 0: as the matrices
  /// The same where the size of a head is no multiple of 8 elements, which tensor cores need
  /// (NVIDIA, Matrix Multiplication Background, "Tensor Core Requirements"); 0: no difference.
  double misaligned_attention = 0;
  /// Of the LM head's product, where a rank's rows of the vocabulary are no multiple of 8 either
  /// (GPT-2's 50257, which only tensor parallelism pads); 0: no difference.
  double misaligned_head = 0;
  /// Share longer that products and attention take in training than kernels that were measured
  /// alone, and that products in types of 8 and 4 bits take beyond that.
  double product_slowdown = 0, narrow_slowdown = 0;
  double beside_exchanges = 0;  ///< share longer that products take where exchanges go beside them
  double operand_traffic = 0;   ///< times that products' operands pass memory with no overlap
  double forward_traffic = 0;   ///< bytes per token and hidden element of a layer's F
  double backward_traffic = 0;  ///< the same of B
  double accumulation = 0;      ///< bytes per parameter of every B
  double logits_traffic = 0;    ///< bytes per logit, in F and again in B

  double forward_host_s = 0;   ///< the host's time for a layer's F
  double backward_host_s = 0;  ///< for B
  double tensor_host_s = 0;    ///< more of each where GPUs share a layer
  /// Kernels are launched as graphs, of a layer or of the whole step: the host takes none of these
  /// times, and no op waits for launches (NVIDIA, "Getting Started with CUDA Graphs", 2019).
  bool cuda_graphs = false;

  double link_efficiency = 1;            ///< share of the links' rate that transfers reach
  std::optional<double> link_latency_s;  ///< of a step between nodes, instead of the cluster's
  std::optional<double> node_latency_s;  ///< the same within a node
  bool overlaps_reduction = false;       ///< with the last backward, unless the pipeline says

  /// GPUs of one kind differ by this standard deviation of their speeds, and a step takes as long
  /// as the slowest (slowest_pace).
  double speed_spread = 0;

  double optimizer_traffic = 0;  ///< bytes per updated parameter; 0: its state read and written
  double iteration_overhead_s = 0;

  /// Kept for B of a layer's token: bytes per hidden element and per column of the MLP. 0: those of
  /// fused kernels (models/transformer.hpp).
  double kept_per_hidden = 0, kept_per_column = 0;
  /// Of the bytes per hidden element those that tensor ranks do not divide, beside gathered inputs.
  double kept_whole = 0;
  bool gathers_again = false;  ///< W's inputs among tensor ranks, instead of keeping them
  CrossEntropy cross_entropy = CrossEntropy::separate;
  double logits_kept = 0;  ///< bytes per logit; 0: as `cross_entropy` says
  /// Products that add weights' gradients up themselves leave one in the model's type for autograd,
  /// of each shape of the layers' matrices (Transformer Engine's get_dummy_wgrad).
  bool gradient_placeholders = false;
  /// Bytes of a parameter where the model does not say them.
  std::optional<double> weight_bytes, gradient_bytes, optimizer_bytes;
  std::optional<double> fp16_gradient_bytes;  ///< of mixed-fp16, and of what replicas reduce

  /// What every process has beside its tensors: CUDA context, kernels, communicators; none: as the
  /// device says.
  std::optional<double> reserved_bytes;
  std::optional<double> allocator_slack;  ///< share of the rest that its allocator cannot use

  bool takes_layers_apart() const { return matrix_efficiency > 0; }
};

/// How much more time the slowest GPU takes than the slowest stage on a GPU of mean speed, a factor
/// of at least 1. With T_s the time of a microbatch on stage s, w_s replicas and Phi the normal
/// distribution, the slowest takes x with prod_s Phi((x / T_s - 1) / spread)^w_s = 1/2 (the
/// median). Stages without work do not count.
double slowest_pace(const std::vector<double>& stage_s, const std::vector<int>& widths,
                    double spread);

}  // namespace penstock
