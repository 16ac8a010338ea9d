// SPDX-License-Identifier: Apache-2.0
// What one virtual stage computes: forward, and backward in its two parts, on buffers it is given.
//
// A stage owns no memory and knows no schedule: the executor allocates what `sizes()` says and
// decides when. B is I followed by W. Everything is issued on the compute queue through Math, so
// the same stage runs on every backend. Elements of activations and weights have
// Math::element_bytes(); gradients and losses are fp32.
//
// Where several ranks share a stage, each computes its part, and calls StageBuffers::exchange at
// the same places as the others.
#pragma once

#include "hw/device.hpp"
#include "hw/token_routes.hpp"
#include "program/recipe.hpp"

#include <functional>
#include <span>
#include <vector>

namespace penstock {

/// A matrix among a stage's weights, row by row from element `first` on.
struct WeightMatrix {
  std::int64_t first, rows, cols;
  std::int64_t elements() const { return rows * cols; }
};

/// Bytes of one microbatch's buffers on one stage (and the number of parameters).
struct StageSizes {
  std::int64_t parameters = 0;  ///< elements of the weights and of the gradients
  /// The first of them: of experts, whose gradients are reduced among other ranks than the others.
  std::int64_t expert_parameters = 0;
  std::vector<WeightMatrix> matrices = {};  ///< those that Muon orthogonalizes, in this order
  std::int64_t input_bytes = 0;             ///< message from the stage before; 0 on the first stage
  std::int64_t output_bytes = 0;            ///< message to the stage after; 0 on the last stage
  std::int64_t saved_bytes = 0;             ///< F to the end of I (or B): beside the input
  std::int64_t saved_for_weight_bytes = 0;  ///< F to the end of W (or B): beside the input
  std::int64_t kept_bytes = 0;              ///< made by I for W
  bool weight_needs_input = true;           ///< W reads `input`, so it lives until W
  std::int64_t forward_workspace_bytes = 0;
  std::int64_t backward_workspace_bytes = 0;  ///< during I, and during W
};

/// Says what the ranks of a stage exchange at one place of an op, each in a buffer as large as the
/// whole. Rank k of n has the k-th part of a reduce-scatter's result, and of what an all-gather
/// gathers.
struct StageExchange {
  enum class Numbers : std::uint8_t {
    working,  ///< sums of working elements
    fp32,     ///< sums of fp32 numbers
    largest,  ///< the largest of fp32 numbers, in place of their sum
  };
  std::string_view name;  ///< "attention"
  Collective what;
  Tensor data;
  std::int64_t elements;
  Numbers numbers = Numbers::working;
};

struct StageBuffers {
  Tensor weights;    ///< the version this op uses
  Tensor gradients;  ///< fp32, accumulated by W
  Tensor input;      ///< none on the first stage
  Tensor output;     ///< none on the last stage
  Tensor saved;
  Tensor saved_for_weight;
  Tensor output_gradient;  ///< none on the last stage
  Tensor input_gradient;   ///< none on the first stage
  Tensor kept;
  Tensor workspace;
  Tensor loss;  ///< fp32, one number; only on the last stage
  /// Gathers weights, or reduces gradients, piece by piece (of Stage::pieces()): see
  /// below. Empty: all are there.
  std::function<Tensor(std::size_t piece)> gathered = {}, reduced = {};
  /// W calls it when it has issued all that it adds to one of Stage::pieces() (of several); may be
  /// empty.
  std::function<void(std::size_t piece)> piece_done = {};
  /// Exchanges with the ranks that share the stage; empty where there are none.
  std::function<void(const StageExchange&)> exchange = {};
  /// Says where a microbatch's tokens are in a stage with experts, and how they get there; empty
  /// where this rank has all experts.
  TokenRoutes* routes = nullptr;
  std::function<void(const RowExchange&)> exchange_rows = {};
  Tensor expert_gradients = {};  ///< where those of experts are instead of among `gradients`

  /// Return where the weights and the gradients of a piece are, as if all of the stage's were
  /// there. A stage of several pieces calls them as it comes to one; it may use the one before no
  /// more.
  Tensor weights_of(std::size_t piece) const { return gathered ? gathered(piece) : weights; }
  Tensor gradients_of(std::size_t piece) const { return reduced ? reduced(piece) : gradients; }
};

/// Elements of the gradients that a W completes together.
struct GradientPiece {
  std::int64_t first, end;
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual const StageSizes& sizes() const = 0;
  /// All gradients, in the order in which W completes them, each piece before the former in memory.
  virtual std::vector<GradientPiece> pieces() const { return {{0, sizes().parameters}}; }
  /// Gradients of which each rank of the stage has summed its rows' part alone, before a step.
  virtual std::vector<GradientPiece> partial_pieces() const { return {}; }
  /// The same weights on every backend, from the run's seed and the stage's place in the model.
  virtual void initialize(std::span<float> weights) const = 0;

  virtual void forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const = 0;
  virtual void backward_input(Math& math, const StageBuffers& b,
                              std::uint32_t microbatch) const = 0;
  virtual void backward_weight(Math& math, const StageBuffers& b,
                               std::uint32_t microbatch) const = 0;
};

}  // namespace penstock
