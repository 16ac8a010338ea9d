// SPDX-License-Identifier: Apache-2.0
// Optimizers that take whole matrices change a stage's costs. Their matrices are those of
// the layers: queries, keys, values and the projection apart, the MLP's into its width as one
// (Megatron-LM's muon_split_qkv), those of each expert apart, each tensor rank its own part
// (muon_tp_mode blockwise, the default there). Each matrix is one replica's work. Where replicas
// share the states alone (ZeRO-1), it lies whole in that one's share (Megatron-LM's layer-wise
// optimizer, shard-aligned buckets), so what is scattered and gathered anyway is what they need,
// and no more is moved. Where they share gradients or weights, too (ZeRO-2 and 3, FSDP), each has
// rows of every matrix: an all-to-all gathers the pieces of each on the one that works on it, and
// another one brings each piece of the result back (Dion's Muon for FSDP2; NVIDIA/Megatron-LM
// #6720), of n replicas each (n-1)/n of its n-th of the elements, in bf16 for Muon and fp32 for
// basis rotation. The step waits for both.
//
// Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/): for a matrix with the
// smaller side s and the larger side l, a step of Newton-Schulz computes A = X X^T (2 s^2 l FLOPs),
// A A (2 s^3) and (b A + c A A) X (2 s^2 l):
//   FLOPs = 5 (4 s^2 l + 2 s^3)        (five steps, no use of symmetry)
// Muon's matrices keep one of Adam's two moments.
//
// Plausibility: NVIDIA/Megatron-LM #6676 (2026) has an optimizer step of 632 ms on 32 GB300 where
// each of 16 ranks orthogonalizes all matrices, and of 157 ms where they divide them. By the
// formula the FLOPs are 16 to 1, so Newton-Schulz would be 507 ms of the one and 32 ms of the
// other, and 125 ms what both have to do beside it.
//
// The experts' matrices are divided among the replicas that hold the same experts, and their step
// follows that of the others (Megatron-LM chains one optimizer for each).
//
// Basis rotation (Jung et al., ICML 2026, arXiv:2602.03515; hw/optimizer_step.hpp has the step):
// for a matrix of r x c, two means and two bases of r x r and c x c beside Adam's moments; products
// with a side of r (2 r^2 c FLOPs) and as many of c (2 r c^2): a mean, the gradient and the moment
// into the bases, the step out of them; and at each tenth step, for each side n, a product (2 n^3)
// and a QR decomposition (4/3 n^3, and as much for its vectors):
//   FLOPs = 8 r c (r + c) + 14/30 (r^3 + c^3)
// as fp32 products (tf32 where the device has it). A decomposition on a GPU is far from the speed
// of products, so that these seconds are the least that it takes.
#pragma once

#include "models/device.hpp"
#include "models/layer/module.hpp"
#include "models/sharding.hpp"
#include "models/transformer.hpp"
#include "program/transfer.hpp"
#include "program/vocabulary.hpp"

#include <functional>
#include <vector>

namespace penstock {

/// A matrix of a layer's weights that the optimizer takes whole.
struct LayerMatrix {
  double rows = 0, cols = 0;
  int count = 1;            ///< how many matrices of these sides there are
  bool of_experts = false;  ///< whether it belongs to a routed expert
  double elements() const { return rows * cols; }
  /// Return the FLOPs of one step of one matrix.
  double muon_flops() const;
  double rotation_flops() const;
};

/// Returns the matrices of so many layers that one of the GPUs that share a stage holds.
std::vector<LayerMatrix> layer_matrices(const TransformerSpec& model, const Layer& layer,
                                        const TensorParallel& tensor = {},
                                        const ExpertParallel& expert = {}, int layers = 1);

/// Returns the FLOPs of the replica that has most to do, where `shards` replicas divide the
/// matrices: the largest matrix goes first, each to the replica that has least.
double most_flops(const std::vector<LayerMatrix>& matrices, double (LayerMatrix::*flops)() const,
                  int shards);

/// Describes the optimizer's step of a stage on one of the GPUs that share it. Fewer replicas hold
/// the same experts than hold the other weights, so that fewer divide the experts' matrices.
struct MatrixStep {
  /// `exchange` counts where replicas hold rows of every matrix: it is an all-to-all among them.
  MatrixStep(const std::vector<LayerMatrix>& matrices, const DeviceSpec& device,
             const TensorParallel& tensor, const Sharding& sharding,
             const CollectivePrice& exchange);

  std::vector<LayerMatrix> dense, of_experts;
  const DeviceSpec& device;
  const TensorParallel& tensor;
  int shards, expert_shards;  ///< how many replicas divide the states of either
  CollectivePrice exchange;
};

/// Change the costs of a stage with Adam to those with the optimizer of the name.
void use_muon(StageCosts& costs, const TransformerSpec& model, const MatrixStep& step);
void use_basis_rotation(StageCosts& costs, const TransformerSpec& model, const MatrixStep& step);

}  // namespace penstock
