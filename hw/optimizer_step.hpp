// SPDX-License-Identifier: Apache-2.0
// The optimizer of a stage: its state, and its steps, as the executor and its sequential reference
// both issue them; they must agree bit for bit. The learning rate of a step follows from its
// number; the norm that is clipped is that of the stage's own gradient, which needs no word from
// other stages.
//
// Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) of a matrix of r rows and
// c columns, with the mean gradient g, m = beta m + g and u = g + beta m:
//   X = u / |u|, then five times  X = a X + (b A + c A A) X,  A = X X^T  (Newton-Schulz)
//   w = (1 - lr decay) w - lr 0.2 sqrt(max(r, c)) X
// with a, b, c = 3.4445, -4.7750, 2.0315; where r > c, A = X^T X stands on the other side. The
// scale is that of Liu et al., arXiv:2502.16982, whose steps are as large as AdamW's, so that one
// learning rate serves for both. q, k and v are matrices by themselves; embeddings, the head and
// vectors are AdamW's (betas 0.9 and 0.999).
//
// Basis rotation (Jung et al., ICML 2026, arXiv:2602.03515, algorithms 1 and 2 with both sides and
// second moments, as the authors' optim/basis_rotation.py has them) of a matrix, with the mean
// gradient g:
//   L = beta2 L + (1 - beta2) g g^T,  R = beta2 R + (1 - beta2) g^T g,  m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) (P g S^T)^2
//   w = (1 - lr decay) w - lr sqrt(1 - beta2^t) / (1 - beta1^t) P^T ((P m S^T) / (sqrt(v) + eps)) S
// The rows of P and of S are the eigenvectors of L and of R, the largest eigenvalue first: at the
// first step exactly; at each tenth step they are sorted by the diagonal of P L P^T, v with them,
// and become those of the QR decomposition of L P^T. The same matrices and the same AdamW beside
// them as Muon's.
//
// Weights predicted (after SpecTrain: Chen et al., arXiv:1809.02839, section 3): the ops use,
// instead of version u, W(u) + s (W(u) - W(u-1)), what W will be at their update, s updates later,
// if it goes on as it went: for momentum SGD W(u) - s lr v, the paper's. s is the delay of the
// stage. What is trained stands apart then.
//
// Error feedback (Zmushko et al., arXiv:2606.30634, algorithms 1 and 2, as RamTorch's documentation
// of its optimizers has them), for a delay of one update: with u(t) the optimizer's own step,
// weight decay included,
//   w(t+1) = w(t) - u(t) - (u(t) - u(t-1)),
// the first step being u(1) alone. u is kept as the difference of weights before and after.
#pragma once

#include "hw/run_plan.hpp"
#include "hw/stage.hpp"

#include "hw/math.hpp"

namespace penstock {

/// Updates between the weights that a stage's ops use and those that their gradient changes; 0
/// where the rule has no one number.
double delay_in_updates(const RunPlan& plan, std::uint32_t stage);

/// Returns how many numbers of 4 bytes the optimizer keeps for a stage, beside masters.
std::int64_t optimizer_numbers(const OptimizerSpec& optimizer, const StageSizes& sizes);
/// Returns how many of these are means and bases of basis rotation.
std::int64_t basis_numbers(const OptimizerSpec& optimizer, const StageSizes& sizes);
/// Returns how many numbers of 4 bytes the corrections of its steps keep beside them.
std::int64_t correction_numbers(const TrainingSpec& training, const StageSizes& sizes);

/// Returns the bytes that its steps work in, beside what is kept.
std::int64_t optimizer_scratch_bytes(const OptimizerSpec& optimizer, const StageSizes& sizes,
                                     int element_bytes);

class OptimizerState {
 public:
  /// Allocates all there is, and clears it.
  OptimizerState(const RunPlan& plan, std::uint32_t stage, const StageSizes& sizes, Device& device);

  /// Issues it on a device that reaches the memory. `step` counts from 1. `microbatches`: whose
  /// gradients the sum `t.gradient` is. What is trained goes from t.master_in to t.master_out; the
  /// working weights, where those are apart, to t.working_out. The moments of `t` are filled in.
  void issue(Math& math, StepTensors t, std::int64_t step, std::uint32_t microbatches);
  /// Issues it for `count` elements alone, whose moments are the state's from the `at`-th on.
  void issue_part(Math& math, StepTensors t, std::int64_t at, std::int64_t count, std::int64_t step,
                  std::uint32_t microbatches);
  /// Are the weights that are trained apart from those that ops use?
  bool apart() const { return mixed() || ahead_ > 0; }
  /// For a checkpoint.
  std::vector<Block*> blocks() const;
  Block* scratch() const { return scratch_; }

 private:
  void correct(Math& math, Tensor weights) const;
  void issue_rest(Math& math, std::int64_t first, std::int64_t end, StepTensors t, double rate);
  void issue_matrix(Math& math, const WeightMatrix& matrix, const StepTensors& t, double rate);
  void issue_rotated(Math& math, const WeightMatrix& matrix, const StepTensors& t, Tensor kept,
                     double rate);
  AdamwSettings adamw(double rate) const;
  StepTensors part(const StepTensors& t, std::int64_t first) const;
  bool mixed() const { return element_bytes_ != 4; }

  const RunPlan& plan_;
  std::uint32_t stage_;
  StageSizes sizes_;
  int element_bytes_;
  double ahead_;  // updates that the weights are predicted for; 0: they are not
  double mean_ = 1;
  std::int64_t step_ = 0;
  Block* moments_[2] = {nullptr, nullptr};
  Block* bases_ = nullptr;
  Block* scratch_ = nullptr;
  Block* before_ = nullptr;  // weights, and from then on the step: of error feedback
  Block* last_ = nullptr;    // the step before
};

}  // namespace penstock
