// SPDX-License-Identifier: Apache-2.0
#include "hw/stand_in_stage.hpp"

#include "base/error.hpp"
#include "hw/row_kernels.hpp"

namespace penstock {
namespace {

constexpr std::int64_t kElements = StandInStage::width * StandInStage::width;

/// C = op(A) op(B), all 32 x 32; the gradient of a weight is added to.
Gemm product(bool transpose_a, bool transpose_b) {
  constexpr std::int64_t w = StandInStage::width;
  Gemm g;
  g.m = w, g.n = w, g.k = w;
  g.lda = w, g.ldb = w, g.ldc = w;
  g.transpose_a = transpose_a;
  g.transpose_b = transpose_b;
  return g;
}
Gemm weight_gradient() {
  Gemm g = product(true, false);
  g.beta = 1;
  g.fp32_output = true;
  return g;
}

// Streams of random numbers: one for all inputs' and one for all targets' microbatches.
constexpr std::uint64_t kInputs = 1ULL << 32;
constexpr std::uint64_t kTargets = 2ULL << 32;

}  // namespace

/// Where things are: see the header.
struct StandInStage::Places {
  Tensor x, z, dy, dz;
};

StandInStage::StandInStage(int stage, int stages, int element_bytes, std::uint64_t seed)
    : stage_(stage),
      first_(stage == 0),
      last_(stage == stages - 1),
      matrix_bytes_(kElements * element_bytes),
      seed_(seed) {
  sizes_.parameters = 2 * kElements;
  sizes_.input_bytes = first_ ? 0 : matrix_bytes_;
  sizes_.output_bytes = last_ ? 0 : matrix_bytes_;
  sizes_.saved_for_weight_bytes = (1 + (first_ ? 1 : 0) + (last_ ? 1 : 0)) * matrix_bytes_;
  sizes_.kept_bytes = (last_ ? 1 : 2) * matrix_bytes_;
  sizes_.weight_needs_input = !first_;
  sizes_.forward_workspace_bytes = (last_ ? 2 : 1) * matrix_bytes_;
  sizes_.backward_workspace_bytes = matrix_bytes_;
}

StandInStage::Places StandInStage::places(const StageBuffers& b) const {
  Places p;
  p.z = b.saved_for_weight;
  p.x = first_ ? b.saved_for_weight.at(matrix_bytes_) : b.input;
  p.dz = b.kept;
  p.dy = last_ ? b.saved_for_weight.at((first_ ? 2 : 1) * matrix_bytes_) : b.kept.at(matrix_bytes_);
  return p;
}

void StandInStage::initialize(std::span<float> weights) const {
  invariant(std::ssize(weights) == sizes_.parameters, "one float per parameter");
  const auto stream = static_cast<std::uint64_t>(stage_);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = kernels::uniform(kernels::hash(seed_, stream, i)) / 8;
  }
}

void StandInStage::forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const {
  const Places p = places(b);
  if (first_) math.fill_uniform(kElements, seed_, kInputs + microbatch, p.x);
  math.gemm(product(false, true), p.x, b.weights_of(1), p.z);
  math.gelu(kElements, p.z, b.workspace);
  const Tensor y = last_ ? b.workspace.at(matrix_bytes_) : b.output;
  math.gemm(product(false, true), b.workspace, b.weights_of(0).at(matrix_bytes_), y);
  math.add_tensors(kElements, p.x, y, y);
  if (!last_) return;
  math.fill_uniform(kElements, seed_, kTargets + microbatch, p.dy);
  math.squared_error(kElements, y, p.dy, p.dy, b.loss);
}

void StandInStage::backward_input(Math& math, const StageBuffers& b, std::uint32_t) const {
  const Places p = places(b);
  if (!last_) math.copy(matrix_bytes_, b.output_gradient, p.dy);
  math.gemm(product(false, false), p.dy, b.weights_of(0).at(matrix_bytes_), p.dz);
  math.gelu_backward(kElements, p.dz, p.z, p.dz);
  if (first_) return;
  math.gemm(product(false, false), p.dz, b.weights_of(1), b.input_gradient);
  math.add_tensors(kElements, p.dy, b.input_gradient, b.input_gradient);
}

void StandInStage::backward_weight(Math& math, const StageBuffers& b, std::uint32_t) const {
  const Places p = places(b);
  math.gelu(kElements, p.z, b.workspace);
  math.gemm(weight_gradient(), p.dy, b.workspace, b.gradients_of(0).at(kElements * 4));
  if (b.piece_done) b.piece_done(0);
  math.gemm(weight_gradient(), p.dz, p.x, b.gradients_of(1));
  if (b.piece_done) b.piece_done(1);
}

std::vector<GradientPiece> StandInStage::pieces() const {
  return {{kElements, 2 * kElements}, {0, kElements}};
}

}  // namespace penstock
