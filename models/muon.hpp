// SPDX-License-Identifier: Apache-2.0
// What Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) changes of a stage's
// costs. For a matrix with the smaller side s and the larger side l, a step of Newton-Schulz
// computes A = X X^T (2 s^2 l FLOPs), A A (2 s^3) and (b A + c A A) X (2 s^2 l):
//   FLOPs = 5 (4 s^2 l + 2 s^3)        (five steps, no use of symmetry)
// Its matrices are those of the layers: queries, keys, values and the projection apart, the MLP's
// into its width as one (Megatron-LM's muon_split_qkv), those of each expert apart, each tensor
// rank its own part (muon_tp_mode blockwise, the default there). Of Adam's two moments they keep
// one. Where replicas share the state, each matrix lies whole in one's share (Megatron-LM's
// layer-wise optimizer, shard-aligned buckets), so what ZeRO-1 scatters and gathers is what Muon
// needs, and no more is moved.
//
// Plausibility: NVIDIA/Megatron-LM #6676 (2026) has an optimizer step of 632 ms on 32 GB300 where
// each of 16 ranks orthogonalizes all matrices, and of 157 ms where they divide them. By the
// formula the FLOPs are 16 to 1, so Newton-Schulz would be 507 ms of the one and 32 ms of the
// other, and 125 ms what both have to do beside it.
#pragma once

#include "models/device.hpp"
#include "models/layer/module.hpp"
#include "models/transformer.hpp"
#include "program/vocabulary.hpp"

#include <vector>

namespace penstock {

struct MuonMatrix {
  double rows = 0, cols = 0;
  int count = 1;  ///< so many of them
  double elements() const { return rows * cols; }
  /// Of the five steps.
  double flops() const;
};

/// Those of so many layers, on one of the GPUs that share a stage.
std::vector<MuonMatrix> muon_matrices(const TransformerSpec& model, const Layer& layer,
                                      const TensorParallel& tensor = {},
                                      const ExpertParallel& expert = {}, int layers = 1);

/// FLOPs of the replica that has most to do, of `shards` that divide the matrices among them: the
/// largest matrices first, each to who has least.
double most_muon_flops(const std::vector<MuonMatrix>& matrices, int shards);

/// Turns Adam's state and step of a stage with these matrices into Muon's.
void use_muon(StageCosts& costs, const TransformerSpec& model, const DeviceSpec& device,
              const std::vector<MuonMatrix>& matrices, const TensorParallel& tensor, int shards);

}  // namespace penstock
