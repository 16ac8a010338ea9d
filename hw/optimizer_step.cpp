// SPDX-License-Identifier: Apache-2.0
#include "hw/optimizer_step.hpp"

#include "base/error.hpp"
#include "schedules/pipemare.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock {
namespace {

using Optimizer = OptimizerSpec::Kind;

double learning_rate(const RunPlan& plan, std::uint32_t stage, std::uint32_t update) {
  const double rate = plan.optimizer.learning_rate * rate_factor(plan.training, update);
  const double delay = delay_in_updates(plan, stage);
  // A delay below one would make the rate larger than it was asked to be.
  if (delay <= 1) return rate;
  if (plan.training.discounted) return rate / delay;
  if (plan.training.rescheduled == 0) return rate;
  return rate * delayed::learning_rate_factor(delay, update, plan.training.rescheduled);
}

struct LargestMatrix {
  std::int64_t elements = 0, square = 0;  ///< of all, and of their Gram matrices
};
LargestMatrix largest(const StageSizes& sizes) {
  LargestMatrix most;
  for (const WeightMatrix& m : sizes.matrices) {
    const std::int64_t side = std::min(m.rows, m.cols);
    most.elements = std::max(most.elements, m.elements());
    most.square = std::max(most.square, side * side);
  }
  return most;
}

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Two of each: the steps go from one to the other.
struct Scratch {
  Tensor x, next, gram, polynomial;
};
Scratch laid_out(Tensor start, const StageSizes& sizes, int element_bytes) {
  const LargestMatrix most = largest(sizes);
  const std::int64_t whole = rounded_up(most.elements * element_bytes);
  const std::int64_t square = rounded_up(most.square * element_bytes);
  return {start, start.at(whole), start.at(2 * whole), start.at(2 * whole + square)};
}

/// Five steps of Newton-Schulz; returns which of s.x and s.next has the result.
Tensor orthogonalize(Math& math, const WeightMatrix& matrix, Scratch s) {
  constexpr float a = 3.4445F, b = -4.7750F, c = 2.0315F;
  const bool tall = matrix.rows > matrix.cols;
  const std::int64_t side = std::min(matrix.rows, matrix.cols);
  const std::int64_t square_bytes = side * side * math.element_bytes();
  Gemm gram{.m = side, .n = side, .k = std::max(matrix.rows, matrix.cols)};
  gram.transpose_a = tall, gram.transpose_b = !tall;
  gram.lda = gram.ldb = matrix.cols, gram.ldc = side;
  Gemm square{.m = side, .n = side, .k = side, .lda = side, .ldb = side, .ldc = side};
  square.alpha = c, square.beta = b;
  Gemm product{.m = matrix.rows, .n = matrix.cols, .k = side};
  product.lda = tall ? matrix.cols : side, product.ldb = tall ? side : matrix.cols;
  product.ldc = matrix.cols, product.beta = a;
  for (int i = 0; i < 5; ++i) {
    math.gemm(gram, s.x, s.x, s.gram);
    math.copy(square_bytes, s.gram, s.polynomial);
    math.gemm(square, s.gram, s.gram, s.polynomial);
    math.copy(matrix.elements() * math.element_bytes(), s.x, s.next);
    math.gemm(product, tall ? s.x : s.polynomial, tall ? s.polynomial : s.x, s.next);
    std::swap(s.x, s.next);
  }
  return s.x;
}

}  // namespace

double delay_in_updates(const RunPlan& plan, std::uint32_t stage) {
  const VersionRule& rule = plan.program.versions;
  if (rule.kind == VersionRule::Kind::double_buffer) return 1;
  if (rule.delay.empty()) return 0;
  return static_cast<double>(rule.delay[stage]) / plan.program.microbatches_per_update;
}

std::int64_t optimizer_numbers(const OptimizerSpec& optimizer, const StageSizes& sizes) {
  std::int64_t numbers = sizes.parameters * optimizer.moments() + basis_numbers(optimizer, sizes);
  if (optimizer.kind != Optimizer::muon) return numbers;
  for (const WeightMatrix& m : sizes.matrices) numbers -= m.elements();
  return numbers;
}

std::int64_t basis_numbers(const OptimizerSpec& optimizer, const StageSizes& sizes) {
  std::int64_t numbers = 0;
  if (optimizer.kind != Optimizer::basis_rotation) return numbers;
  for (const WeightMatrix& m : sizes.matrices) numbers += rotation_numbers(m.rows, m.cols);
  return numbers;
}

std::int64_t correction_numbers(const TrainingSpec& training, const StageSizes& sizes) {
  return training.error_feedback ? 2 * sizes.parameters : 0;
}

std::int64_t optimizer_scratch_bytes(const OptimizerSpec& optimizer, const StageSizes& sizes,
                                     int element_bytes) {
  if (!optimizer.of_matrices()) return 0;
  std::int64_t rotated = 0;
  for (const WeightMatrix& m : sizes.matrices)
    rotated = std::max(rotated, rotation_scratch_numbers(m.rows, m.cols));
  if (optimizer.kind == Optimizer::basis_rotation) return rounded_up(rotated * 4);
  const LargestMatrix most = largest(sizes);
  return 2 * (rounded_up(most.elements * element_bytes) + rounded_up(most.square * element_bytes));
}

OptimizerState::OptimizerState(const RunPlan& plan, std::uint32_t stage, const StageSizes& sizes,
                               Device& device)
    : plan_(plan),
      stage_(stage),
      sizes_(sizes),
      element_bytes_(device.math().element_bytes()),
      ahead_(plan.training.predicted ? delay_in_updates(plan, stage) : 0) {
  if (ahead_ > 0 && mixed())
    throw InputError(plan.name, "weights are predicted in fp32 alone; use --precision fp32");
  if (plan.training.error_feedback && mixed())
    throw InputError(plan.name, "error feedback is executed in fp32 alone; use --precision fp32");
  const auto zeros = [&](std::int64_t numbers) {
    Block* block = device.allocate(kComputeQueue, numbers * 4);
    device.math().zero(numbers * 4, {block});
    return block;
  };
  const std::int64_t bases = basis_numbers(plan.optimizer, sizes);
  const std::int64_t all = optimizer_numbers(plan.optimizer, sizes) - bases;
  if (all > 0) moments_[0] = zeros(std::min(all, sizes.parameters));
  if (all > sizes.parameters) moments_[1] = zeros(all - sizes.parameters);
  if (bases > 0) bases_ = zeros(bases);
  if (plan.training.error_feedback)
    before_ = zeros(sizes.parameters), last_ = zeros(sizes.parameters);
  const std::int64_t bytes = optimizer_scratch_bytes(plan.optimizer, sizes, element_bytes_);
  if (bytes > 0) scratch_ = device.allocate(kComputeQueue, bytes);
}

std::vector<Block*> OptimizerState::blocks() const {
  std::vector<Block*> blocks;
  for (Block* block : {moments_[0], moments_[1], bases_, before_, last_})
    if (block != nullptr) blocks.push_back(block);
  return blocks;
}

void OptimizerState::issue(Math& math, StepTensors t, std::int64_t step,
                           std::uint32_t microbatches) {
  const std::int64_t n = sizes_.parameters;
  const Tensor predicted = ahead_ > 0 ? t.working_out : Tensor{};
  if (predicted) {
    math.blend(n, static_cast<float>(-ahead_), t.master_in, 0, t.master_in, predicted);
    t.working_out = {};
  }
  if (before_ != nullptr) math.copy(n * 4, t.master_in, {before_});
  t.first_moment = {moments_[0]}, t.second_moment = {moments_[1]};
  mean_ = 1.0 / microbatches;
  step_ = step;
  const double rate = learning_rate(plan_, stage_, static_cast<std::uint32_t>(step - 1));
  if (plan_.training.clip > 0)
    math.clip(n, static_cast<float>(plan_.training.clip / mean_), t.gradient);
  std::int64_t done = 0;
  if (plan_.optimizer.of_matrices()) {
    Tensor kept{bases_};
    for (const WeightMatrix& matrix : sizes_.matrices) {
      issue_rest(math, done, matrix.first, t, rate);
      if (bases_ != nullptr) {
        issue_rotated(math, matrix, part(t, matrix.first), kept, rate);
        kept = kept.at(rotation_numbers(matrix.rows, matrix.cols) * 4);
      } else {
        issue_matrix(math, matrix, part(t, matrix.first), rate);
        t.second_moment = t.second_moment.at(-matrix.elements() * 4);  // it has none
      }
      done = matrix.first + matrix.elements();
    }
  }
  issue_rest(math, done, n, t, rate);
  if (before_ != nullptr) correct(math, t.master_out);
  if (predicted)
    math.blend(n, static_cast<float>(1 + ahead_), t.master_out, 1, predicted, predicted);
}

/// Takes the error of the last step back, after the optimizer's own.
void OptimizerState::correct(Math& math, Tensor weights) const {
  const std::int64_t n = sizes_.parameters;
  const Tensor own{before_}, last{last_};
  math.blend(n, 1, own, -1, weights, own);
  if (step_ > 1) {
    math.blend(n, 1, last, -1, own, last);
    math.blend(n, 1, weights, 1, last, weights);
  }
  math.copy(n * 4, own, last);
}

void OptimizerState::issue_part(Math& math, StepTensors t, std::int64_t at, std::int64_t count,
                                std::int64_t step, std::uint32_t microbatches) {
  t.first_moment = {moments_[0], at * 4}, t.second_moment = {moments_[1], at * 4};
  mean_ = 1.0 / microbatches;
  step_ = step;
  issue_rest(math, 0, count, t, learning_rate(plan_, stage_, static_cast<std::uint32_t>(step - 1)));
}

StepTensors OptimizerState::part(const StepTensors& t, std::int64_t first) const {
  const auto at = [&](Tensor x, int bytes) { return x ? x.at(first * bytes) : x; };
  return {.master_in = at(t.master_in, 4),
          .master_out = at(t.master_out, 4),
          .working_out = at(t.working_out, element_bytes_),
          .gradient = at(t.gradient, 4),
          .first_moment = at(t.first_moment, 4),
          .second_moment = at(t.second_moment, 4)};
}

void OptimizerState::issue_rest(Math& math, std::int64_t first, std::int64_t end, StepTensors t,
                                double rate) {
  if (first == end) return;
  const OptimizerSpec& o = plan_.optimizer;
  t = part(t, first);
  if (o.moments() < 2)
    return math.sgd_step(end - first, t,
                         {rate, mean_, o.beta1, o.weight_decay, o.kind == Optimizer::nesterov});
  math.adamw_step(end - first, t, adamw(rate), step_);
}

AdamwSettings OptimizerState::adamw(double rate) const {
  const OptimizerSpec& o = plan_.optimizer;
  const bool muon = o.kind == Optimizer::muon;
  return {rate,
          muon ? OptimizerSpec{}.beta1 : o.beta1,
          o.beta2,
          o.epsilon,
          o.weight_decay,
          mean_,
          o.kind != Optimizer::adam,
          o.kind == Optimizer::nadamw};
}

void OptimizerState::issue_rotated(Math& math, const WeightMatrix& matrix, const StepTensors& t,
                                   Tensor kept, double rate) {
  math.rotated_step(matrix.rows, matrix.cols, t, kept, {scratch_}, adamw(rate), step_);
}

void OptimizerState::issue_matrix(Math& math, const WeightMatrix& matrix, const StepTensors& t,
                                  double rate) {
  const OptimizerSpec& o = plan_.optimizer;
  const Scratch scratch = laid_out({scratch_}, sizes_, math.element_bytes());
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(matrix.rows, matrix.cols)));
  const MuonSettings settings{rate * scale, o.beta1, mean_, 1 - rate * o.weight_decay};
  math.muon_direction(matrix.elements(), t, settings, scratch.x);
  math.muon_step(matrix.elements(), t, settings, orthogonalize(math, matrix, scratch));
}

}  // namespace penstock
