// SPDX-License-Identifier: Apache-2.0
// The stage that is executed where a model is only stated costs: two 32 x 32 linear layers.
//
//   z = x W1^T, y = x + gelu(z) W2^T, 32 rows a microbatch; the first stage's x and the last
//   stage's targets are hashes of the microbatch, the loss is the mean of (y - target)^2 / 2.
// Small enough to cost microseconds, real enough that a wrong order, version or message changes
// its weights. Adding x, and weights uniform in [-1/8, 1/8), keep signal and gradient alive through
// a thousand stages: one makes them about half a percent larger. Parameters: W1, W2.
// `saved_for_weight` holds z (and x on the first stage, dy on the last), `kept` dz (and dy
// elsewhere).
#pragma once

#include "hw/math.hpp"
#include "hw/stage.hpp"

namespace penstock {

class StandInStage : public Stage {
 public:
  static constexpr std::int64_t width = 32;

  /// Stage `stage` of `stages`. `element_bytes` is Math's.
  StandInStage(int stage, int stages, int element_bytes, std::uint64_t seed);

  const StageSizes& sizes() const override { return sizes_; }
  /// Its two matrices, the second first.
  std::vector<GradientPiece> pieces() const override;
  void initialize(std::span<float> weights) const override;
  void forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_input(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_weight(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;

 private:
  struct Places;
  Places places(const StageBuffers& b) const;

  int stage_;
  bool first_, last_;
  std::int64_t matrix_bytes_;  ///< 32 x 32 working elements
  std::uint64_t seed_;
  StageSizes sizes_;
};

}  // namespace penstock
