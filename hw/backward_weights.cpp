// SPDX-License-Identifier: Apache-2.0
#include "hw/backward_weights.hpp"

#include "hw/math.hpp"
#include "schedules/pipemare.hpp"

#include <cmath>

namespace penstock {

BackwardWeights::BackwardWeights(const RunPlan& plan, std::uint32_t stage, std::int64_t parameters,
                                 Device& device)
    : kind_(plan.program.versions.backward), parameters_(parameters), device_(device) {
  if (kind_ == VersionRule::Backward::plain) return;
  buffer_ = device.allocate(kComputeQueue, parameters * device.math().element_bytes());
  if (kind_ == VersionRule::Backward::corrected)
    delay_ = static_cast<double>(plan.program.versions.delay[stage]) /
             plan.program.microbatches_per_update;
}

void BackwardWeights::start(Tensor weights) {
  if (!plain())
    device_.math().copy(parameters_ * device_.math().element_bytes(), weights, {buffer_});
}

Tensor BackwardWeights::weights_for(Tensor version, Tensor latest, std::uint32_t behind) {
  if (kind_ == VersionRule::Backward::corrected) return {buffer_};
  if (plain() || behind == 0) return version;
  const double stale = std::exp(-static_cast<double>(behind));
  blend(stale, version, 1 - stale, latest);
  return {buffer_};
}

void BackwardWeights::before_step(Tensor weights) {
  if (kind_ != VersionRule::Backward::corrected) return;
  const delayed::Correction c = delayed::correction(delay_);
  blend(c.keep, {buffer_}, c.before, weights);
}

void BackwardWeights::after_step(Tensor weights) {
  if (kind_ != VersionRule::Backward::corrected) return;
  blend(1, {buffer_}, delayed::correction(delay_).after, weights);
}

void BackwardWeights::blend(double a, Tensor x, double b, Tensor y) {
  device_.math().blend(parameters_, static_cast<float>(a), x, static_cast<float>(b), y, {buffer_});
}

}  // namespace penstock
