// SPDX-License-Identifier: Apache-2.0
#include "hw/closed_form_stages.hpp"

#include "base/error.hpp"
#include "hw/row_kernels.hpp"

namespace penstock {
namespace {

// Streams of random numbers: of inputs' microbatches, and of the matrix that is to be found.
constexpr std::uint64_t kLinearInputs = 1ULL << 32;
constexpr std::uint64_t kLinearTarget = 2ULL << 32;

void fill_start(std::span<float> weights, std::uint64_t seed, int stage, float scale) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = scale * kernels::uniform(kernels::hash(seed, static_cast<unsigned>(stage), i));
}

}  // namespace

LinearStage::LinearStage(int stage, int stages, std::int64_t rows, int element_bytes,
                         std::uint64_t seed)
    : stage_(stage),
      first_(stage == 0),
      last_(stage == stages - 1),
      rows_(rows),
      bytes_(rows * width * element_bytes),
      seed_(seed) {
  sizes_.parameters = width * width;
  sizes_.matrices = {{0, width, width}};
  sizes_.input_bytes = first_ ? 0 : bytes_;
  sizes_.output_bytes = last_ ? 0 : bytes_;
  sizes_.saved_for_weight_bytes = ((first_ ? 1 : 0) + (last_ ? 1 : 0)) * bytes_;
  sizes_.kept_bytes = last_ ? 0 : bytes_;
  sizes_.weight_needs_input = !first_;
  sizes_.forward_workspace_bytes = last_ ? 3 * bytes_ + width * width * element_bytes : 0;
}

void LinearStage::initialize(std::span<float> weights) const {
  fill_start(weights, seed_, stage_, 1.0F / 8);
}

/// y = x + alpha x W^T, or without the transposition.
void LinearStage::residual(Math& math, Tensor x, float alpha, bool transposed, Tensor weights,
                           Tensor y) const {
  math.copy(bytes_, x, y);
  math.gemm({.m = rows_,
             .n = width,
             .k = width,
             .transpose_b = transposed,
             .lda = width,
             .ldb = width,
             .ldc = width,
             .alpha = alpha,
             .beta = 1},
            x, weights, y);
}

Tensor LinearStage::output_gradient(const StageBuffers& b) const {
  return last_ ? b.saved_for_weight.at(first_ ? bytes_ : 0) : b.kept;
}

void LinearStage::forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const {
  const std::int64_t n = rows_ * width;
  if (first_) math.fill_uniform(n, seed_, kLinearInputs + microbatch, b.saved_for_weight);
  if (!last_) return residual(math, input(b), 1, true, b.weights, b.output);
  const Tensor y = b.workspace, x = b.workspace.at(bytes_), target = b.workspace.at(2 * bytes_),
               matrix = b.workspace.at(3 * bytes_);
  residual(math, input(b), 1, true, b.weights, y);
  math.fill_uniform(n, seed_, kLinearInputs + microbatch, x);
  math.fill_uniform(width * width, 1, kLinearTarget, matrix);
  residual(math, x, 0.25F, true, matrix, target);
  math.squared_error(n, y, target, output_gradient(b), b.loss);
}

void LinearStage::backward_input(Math& math, const StageBuffers& b, std::uint32_t) const {
  if (!last_) math.copy(bytes_, b.output_gradient, b.kept);
  if (!first_) residual(math, output_gradient(b), 1, false, b.weights, b.input_gradient);
}

void LinearStage::backward_weight(Math& math, const StageBuffers& b, std::uint32_t) const {
  math.gemm({.m = width,
             .n = width,
             .k = rows_,
             .transpose_a = true,
             .lda = width,
             .ldb = width,
             .ldc = width,
             .beta = 1,
             .fp32_output = true},
            output_gradient(b), input(b), b.gradients);
}

QuadraticStage::QuadraticStage(int stage, int stages, std::uint64_t seed)
    : stage_(stage), first_(stage == 0), last_(stage == stages - 1), seed_(seed) {
  sizes_.parameters = weights;
  sizes_.input_bytes = first_ ? 0 : 4;
  sizes_.output_bytes = last_ ? 0 : 4;
  sizes_.saved_for_weight_bytes = weights * 4;
  sizes_.weight_needs_input = false;
}

void QuadraticStage::initialize(std::span<float> values) const {
  fill_start(values, seed_, stage_, 1);
}

void QuadraticStage::forward(Math& math, const StageBuffers& b, std::uint32_t) const {
  math.copy(weights * 4, b.weights, b.saved_for_weight);
  const Tensor sum = last_ ? b.loss : b.output;
  math.gemm({.m = 1,
             .n = 1,
             .k = weights,
             .transpose_b = true,
             .lda = weights,
             .ldb = weights,
             .ldc = 1,
             .alpha = 0.5F,
             .fp32_output = true},
            b.weights, b.weights, sum);
  if (!first_) math.accumulate(1, b.input, sum);
}

void QuadraticStage::backward_input(Math& math, const StageBuffers& b, std::uint32_t) const {
  if (!first_) math.zero(4, b.input_gradient);
}

void QuadraticStage::backward_weight(Math& math, const StageBuffers& b, std::uint32_t) const {
  math.accumulate(weights, b.saved_for_weight, b.gradients);
}

}  // namespace penstock
