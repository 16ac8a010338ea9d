// SPDX-License-Identifier: Apache-2.0
// Seconds that a stage computes, from the modules of its layers, a device and a stack: what of it
// the neutral stack says and what one that takes layers apart (models/stack.hpp).
#pragma once

#include "models/cost/kernel_layer.hpp"
#include "models/cost/stage_job.hpp"

namespace penstock {

/// FLOPs of a stage's ops on one of its GPUs.
struct StageFlops {
  double forward = 0, backward = 0, again = 0, weight = 0;
};
StageFlops stage_flops(const StageJob& job, const LayerCount& count, bool last);

/// Seconds of a stage's ops on one of its GPUs, without what they exchange.
struct StageSeconds {
  double forward = 0, backward = 0, input = 0, weight = 0;
};

/// Seconds of ops of any number of a job's layers.
class LayerSeconds {
 public:
  /// The job must outlive it.
  explicit LayerSeconds(const StageJob& job);

  /// Returns the seconds of a stage with so many layers of the job's kind and bytes of weights.
  StageSeconds of(const LayerCount& count, bool first, bool last, std::int64_t weight_bytes) const;
  /// Returns the time of a layer's attention products, forward.
  double attention_s() const { return attention_s(job_.forward); }
  /// Returns the time of a layer's other products, forward.
  double products_s() const;
  /// Returns the time of routed experts, forward; 0 where the layer has none.
  double experts_s() const;
  /// Returns how long memory takes to read or write so many bytes.
  double streaming_s(double bytes) const;

 private:
  struct Parts {
    double forward_s = 0, input_s = 0, weight_s = 0;
  };

  double matrix_rate() const;
  double head_rate() const;
  double attention_rate() const;
  double masked_share() const;
  double beside_exchanges() const;
  double ratio_of(ProductClass products) const;
  double weighted_flops(const LayerWork& work) const;
  double changed_s(double flops, ProductClass products) const;
  double changed_s(const LayerWork& work) const;
  double head_casts_s(bool back) const;
  double repeated_s() const;
  double per_token_s(double bytes) const;
  double operands_s(double bytes) const;
  double traffic_s(double bytes) const;
  double moved_s(double traffic, double times) const;
  double attention_s(const LayerWork& work) const;
  double products_s(const LayerWork& work) const;
  double modules_s(const LayerWork& work) const;
  double accumulation_s(std::int64_t parameters) const;
  Parts layer_by_parts(bool in_full) const;
  Parts head_by_parts() const;
  StageSeconds by_parts(const LayerCount& count, bool first, bool last) const;
  double op_s(double flops, double kernels, double read_s, double repeated) const;

  const StageJob& job_;
  std::optional<KernelLayer> kernels_;  // where the stack and the device have them
  double peak_ = 0, rate_ = 0, repeated_s_ = 0, product_peak_ = 0;
  Parts kept_, again_, head_;  // of a layer: kept, and recomputed in full
};

}  // namespace penstock
