// SPDX-License-Identifier: Apache-2.0
// The weights a backward uses where its rule blends versions (VersionRule::Backward), in one buffer
// as large as the weights and of the working type:
//   corrected  w - tau delta, kept up to date by every step (schedules/pipemare.hpp)
//   mixed      e^-d W(stale) + (1 - e^-d) W(latest), made when a backward needs it
// One arithmetic for the executor and its sequential reference, which must agree bit for bit.
#pragma once

#include "hw/run_plan.hpp"
#include "hw/device.hpp"

namespace penstock {

class BackwardWeights {
 public:
  /// Of a stage with so many parameters.
  BackwardWeights(const RunPlan& plan, std::uint32_t stage, std::int64_t parameters,
                  Device& device);

  bool plain() const { return buffer_ == nullptr; }
  Block* buffer() const { return buffer_; }
  /// Once, when the stage's weights have been loaded.
  void start(Tensor weights);
  /// What the backward uses, of the version its rule names and the latest, `behind` updates newer.
  Tensor weights_for(Tensor version, Tensor latest, std::uint32_t behind);
  /// Around a step, with the weights before and after it.
  void before_step(Tensor weights);
  void after_step(Tensor weights);

 private:
  void blend(double a, Tensor x, double b, Tensor y);

  VersionRule::Backward kind_;
  double delay_ = 0;  // corrected: tau
  std::int64_t parameters_;
  Device& device_;
  Block* buffer_ = nullptr;
};

}  // namespace penstock
