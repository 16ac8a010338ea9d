// SPDX-License-Identifier: Apache-2.0
// Stages that compute something wrong on purpose: what the check of weights has to notice.
#pragma once

#include "hw/stages.hpp"
#include "tests/hw/plan_rig.hpp"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace penstock {

/// A stage that does one thing wrong.
class WrongStage : public Stage {
 public:
  using Fault = std::function<bool(Stage&, Math&, const StageBuffers&, std::uint32_t microbatch)>;
  WrongStage(std::unique_ptr<Stage> right, Fault weight)
      : right_(std::move(right)), weight_(weight) {}
  const StageSizes& sizes() const override { return right_->sizes(); }
  std::vector<GradientPiece> pieces() const override { return right_->pieces(); }
  std::vector<GradientPiece> partial_pieces() const override { return right_->partial_pieces(); }
  void initialize(std::span<float> weights) const override { right_->initialize(weights); }
  void forward(Math& m, const StageBuffers& b, std::uint32_t k) const override {
    right_->forward(m, b, k);
  }
  void backward_input(Math& m, const StageBuffers& b, std::uint32_t k) const override {
    right_->backward_input(m, b, k);
  }
  void backward_weight(Math& m, const StageBuffers& b, std::uint32_t k) const override {
    if (!weight_(*right_, m, b, k)) right_->backward_weight(m, b, k);
  }

 private:
  std::unique_ptr<Stage> right_;
  Fault weight_;
};

using Wrong = std::function<std::unique_ptr<Stage>(std::unique_ptr<Stage> right)>;

/// Returns a factory of the stages of a plan, one of which is made wrong.
inline StageFactory wrong_at(std::uint32_t wrong, Wrong make_wrong) {
  return [=](const RunPlan& plan, std::uint32_t stage, int bytes, bool stored, int place) {
    auto right = make_stage(plan, stage, bytes, stored, place);
    return stage == wrong ? make_wrong(std::move(right)) : std::move(right);
  };
}

/// Returns how to make a stage that forgets the gradients of some microbatches.
inline Wrong losing(std::function<bool(std::uint32_t microbatch)> lost) {
  return [=](std::unique_ptr<Stage> right) {
    return std::make_unique<WrongStage>(std::move(right), [=](Stage&, Math&, const StageBuffers&,
                                                              std::uint32_t k) { return lost(k); });
  };
}

}  // namespace penstock
