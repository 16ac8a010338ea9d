// SPDX-License-Identifier: Apache-2.0
// Products and attention of a layer as the device's kernels take them (models/kernels): each
// module's product by the sides that a tensor rank has of it, forward, for the input's gradient and
// for the weights', whose product adds to gradients of 32 bits.
#pragma once

#include "models/cost/stage_job.hpp"

#include <optional>

namespace penstock {

/// Seconds on each of the GPUs that share a stage.
struct KernelLayer {
  double forward_s = 0, input_s = 0, weight_s = 0;  ///< of all products
  double experts_s = 0;                             ///< of these, forward: those of routed experts
  /// Seconds of attention, forward and backward; none: it has no kernel, its products are apart.
  std::optional<double> attention_s = {}, attention_backward_s = {};
};

/// Returns those of a layer; none where the stack does not ask for measured kernels or the device
/// has none of this type.
std::optional<KernelLayer> kernel_layer(const StageJob& job);
/// Returns the same of the LM head.
std::optional<KernelLayer> kernel_head(const StageJob& job);

}  // namespace penstock
