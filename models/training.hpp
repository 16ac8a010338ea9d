// SPDX-License-Identifier: Apache-2.0
// How the weights of a run are trained: optimizer, learning rate over the updates, data. Only what
// executes looks at it (replay, train), but for the optimizers that take whole matrices, whose
// step costs time and whose state is another (models/matrix_optimizers.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// Gradients are means over the samples of an update.
struct OptimizerSpec {
  enum class Kind : std::uint8_t {
    sgd,       ///< w - lr g
    momentum,  ///< v = beta1 v + g; w - lr v (Polyak)
    nesterov,  ///< v = beta1 v + (1 - beta1) g; w - lr (beta1 v + (1 - beta1) g): the look-ahead
               ///< for delayed gradients (Ajanthan et al., ICML'25, with the stored weights ahead)
    adam,      ///< Kingma and Ba, ICLR'15; weight decay is added to the gradient
    adamw,     ///< Loshchilov and Hutter, ICLR'19: decoupled weight decay
    nadamw,    ///< the same look-ahead with AdamW: PyTorch's NAdam (Dozat, 2016), decoupled decay
    muon,      ///< matrices orthogonalized (Jordan et al., 2024), all else by AdamW
    basis_rotation,  ///< AdamW of matrices in a basis of their own (Jung et al., ICML'26)
  } kind = Kind::sgd;
  double learning_rate = 0.01;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;

  /// Returns whether a step needs whole matrices.
  bool of_matrices() const { return kind == Kind::muon || kind == Kind::basis_rotation; }
  /// Numbers it keeps for each weight; Muon keeps one of two for the matrices that it
  /// orthogonalizes, basis rotation keeps more for them.
  int moments() const {
    if (kind == Kind::sgd) return 0;
    return kind == Kind::momentum || kind == Kind::nesterov ? 1 : 2;
  }
};
inline constexpr std::string_view kOptimizerNames[] = {
    "sgd", "momentum", "nesterov", "adam", "adamw", "nadamw", "muon", "basis_rotation"};

struct TrainingSpec {
  enum class Problem : std::uint8_t {
    model,      ///< the scenario's
    linear,     ///< a product of matrices, one for each stage, fitted to a fixed one
    quadratic,  ///< half the squares of all weights: delayed SGD has a closed form
  } problem = Problem::model;
  enum class Data : std::uint8_t {
    generated,  ///< a hash: skewed tokens that depend on nothing
    markov,     ///< a chain whose entropy is kMarkovBits per token, exactly
    text,       ///< the bytes of a file
  } data = Data::generated;
  enum class Decay : std::uint8_t { none, linear, cosine } decay = Decay::none;
  std::string file = {};          ///< of Data::text
  double held_out = 0.1;          ///< share of the file, from its end, that is evaluated on
  std::uint32_t updates = 0;      ///< over which the rate decays; 0: it was not said
  std::uint32_t warmup = 0;       ///< updates in which the rate rises linearly to its value
  double final_rate = 0.1;        ///< what is left of it when it has decayed, as a share
  double clip = 0;                ///< largest norm of a stage's gradient; 0: any
  std::uint32_t rescheduled = 0;  ///< K of PipeMare's T1 (schedules/pipemare.hpp); 0: without
  bool discounted = false;        ///< learning rates divided by the delay of a stage
  bool predicted = false;         ///< ops use weights predicted for their update (hw/weights.hpp)
  bool error_feedback = false;    ///< steps corrected by the last one (hw/optimizer_step.hpp)
  std::uint32_t evaluate_every = 100;  ///< updates; after the last one, too
  std::uint32_t evaluation_microbatches = 8;
  std::uint64_t seed = 1;
};
inline constexpr std::string_view kProblemNames[] = {"model", "linear", "quadratic"};
inline constexpr std::string_view kDataNames[] = {"generated", "markov", "text"};
inline constexpr std::string_view kDecayNames[] = {"none", "linear", "cosine"};

/// Of Data::markov: the next token is one of four, with probabilities 1/2, 1/4, 1/8 and 1/8. No
/// model's loss can be below, on average (in nats: times ln 2).
inline constexpr double kMarkovBits = 1.75;

/// What update `update`, from 0 on, multiplies the learning rate by: the warm-up, then the decay
/// to `final_rate` at the last update.
double rate_factor(const TrainingSpec& training, std::uint32_t update);

}  // namespace penstock
