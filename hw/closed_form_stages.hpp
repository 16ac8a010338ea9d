// SPDX-License-Identifier: Apache-2.0
// Stages of problems whose training has a closed form, for what is known of update rules.
//
//   linear     y = x + x W^T with one matrix W (8 x 8) a stage; the loss is half the mean square of
//              y - (x + x U^T / 4), where x, uniform, is the first stage's input and U is fixed:
//              one stage with plain SGD is a linear recurrence. B uses the weights of its version.
//   quadratic  the loss is half the squares of all weights, 8 a stage; each stage's gradient is its
//              weights as F used them, so with a delay of tau updates
//                w(t+1) = w(t) - lr w(t - tau)
//              of every stage by itself, stable up to lr = 2 sin(pi / (4 tau + 2)).
#pragma once

#include "hw/math.hpp"
#include "hw/stage.hpp"

namespace penstock {

class LinearStage : public Stage {
 public:
  static constexpr std::int64_t width = 8;

  LinearStage(int stage, int stages, std::int64_t rows, int element_bytes, std::uint64_t seed);
  const StageSizes& sizes() const override { return sizes_; }
  void initialize(std::span<float> weights) const override;
  void forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_input(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_weight(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;

 private:
  void residual(Math& math, Tensor x, float alpha, bool transposed, Tensor weights, Tensor y) const;
  Tensor input(const StageBuffers& b) const { return first_ ? b.saved_for_weight : b.input; }
  Tensor output_gradient(const StageBuffers& b) const;

  int stage_;
  bool first_, last_;
  std::int64_t rows_, bytes_;
  std::uint64_t seed_;
  StageSizes sizes_;
};

/// In fp32 alone.
class QuadraticStage : public Stage {
 public:
  static constexpr std::int64_t weights = 8;

  QuadraticStage(int stage, int stages, std::uint64_t seed);
  const StageSizes& sizes() const override { return sizes_; }
  void initialize(std::span<float> weights) const override;
  void forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_input(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_weight(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;

 private:
  int stage_;
  bool first_, last_;
  std::uint64_t seed_;
  StageSizes sizes_;
};

}  // namespace penstock
