// SPDX-License-Identifier: Apache-2.0
// Gradient buckets of wait-free backpropagation: the backward runs from the last layer to the
// first, and what it has finished is reduced while it goes on (Zhang et al., "Poseidon", ATC'17,
// section 3.1). Layers are joined until a bucket has a stated size, as PyTorch's
// DistributedDataParallel does (Li et al., VLDB'20, section 3.2.2), and a bucket is ready when the
// backward of the first of its layers, which comes last, has ended.
#pragma once

#include "program/vocabulary.hpp"

#include <cstdint>
#include <vector>

namespace penstock {

/// PyTorch's `bucket_cap_mb`, at which a bucket is closed. (PyTorch's first bucket is closed at
/// 1 MiB; here, where layers are not divided, it is like the others.)
inline constexpr std::int64_t kBucketBytes = 25 * 1024 * 1024;

/// One layer of a stage.
struct LayerGradient {
  double gradient_bytes = 0;  ///< reduced over the replicas; 0: a layer without parameters
  double backward_s = 0;      ///< of a microbatch; only the layers' proportions matter
};

/// The buckets of consecutive layers, given in the order of the forward pass, in the order in which
/// they get ready: each of at least `least_bytes`, but for the last one, which has what is left;
/// with `least_bytes` 0, one bucket per layer that has a gradient. The last one is ready when the
/// backward has ended, also where the first layers have no parameters. One bucket where there is
/// nothing to reduce. Precondition: nothing is negative.
std::vector<GradientBucket> gradient_buckets(const std::vector<LayerGradient>& layers,
                                             double least_bytes);

/// `count` equal parts, ready at equal intervals: for a stage whose layers are unknown.
std::vector<GradientBucket> equal_buckets(int count);

}  // namespace penstock
