// SPDX-License-Identifier: Apache-2.0
// Where everything of a TransformerStage lies: its parameters in the flat array of weights, its
// activations and gradients in the buffers of a microbatch.
//
// Sizes and places come from the same calls, so they cannot disagree. Parameters, in this order
// (matrices are out x in; no padding, so their number is TransformerSpec's):
//   first stage  token table V x h, position table s x h
//   each layer   ln1 gamma h, beta h; qkv 3h x h, bias 3h; projection h x h, bias h;
//                ln2 gamma h, beta h; up f x h, bias f; down h x f, bias h
//   last stage   final gamma h, beta h; head V x h (its own matrix even in a model that ties it to
//                the token table: tied weights would need an all-reduce between the two stages)
// A layer with E experts has a router E x h (and its bias E) before up and down, which are then
// those of the experts that all tokens use, or nothing; behind them each expert's up, bias, down,
// bias. Where ranks share experts otherwise than all else, experts come first of all: expert by
// expert, of each those of all layers, so that a rank's part of them is one piece.
// With N = b s rows, e bytes an element, every buffer rounded up to 256 bytes; per layer:
//   saved             e (3 N h + b a s^2): q, k, v and probabilities; with flash attention
//                     e 3 N h + 4 N a: of the probabilities only the log of each row's sum
//   saved_for_weight  e (4 N h + N f) + 16 N, + e N h for x unless it is the stage's input:
//                     y1 = LN(x), context, x2 = x + attention, y2 = LN(x2), z = up(y2), and the
//                     norms' fp32 mean and rstd
//   kept              e (7 N h + N f): the gradients of all these and of the layer's output
// Each of t tensor ranks has the t-th part of 3 h, a, f and V, and of what projection and down
// read. With sequence parallelism N h is of N/t rows, `kept` has the gathered gradients of
// both outputs as well, and every workspace begins with N h for what is gathered or not summed yet.
// With experts, of which a token uses k: f is the width of those that all tokens use (or 0), and
//   saved             e (N E + N k h) + 8 N k: probabilities, what experts made, who was chosen
//   kept              e N E: the gradients of the router's scores
// The rows that come to a rank's experts are not here: who gets how many is known when an op runs
// (hw/token_routes.hpp).
// Recompute::selective leaves out the probabilities (of flash attention, nothing); a layer that is
// recomputed in full all but x, and moves what W needs to `kept`, where I puts it; so goes the x of
// those behind the first of a group, which F passes on in two buffers of the workspace. The last
// stage adds x, y, mean and rstd of the final norm and the gradient of the logits (N V e) to
// saved_for_weight, in every mode.
#pragma once

#include "hw/stage.hpp"
#include "models/transformer.hpp"

#include <array>
#include <string>
#include <vector>

namespace penstock {

/// One of the tensor ranks that share a stage. Each has 1/t of the heads, of the MLP's columns and
/// of the vocabulary; with `sequence`, also 1/t of the rows of what is as wide as the model.
struct TensorRank {
  int degree = 1, rank = 0;
  bool sequence = false;

  /// Returns the first of `all` that belongs to this rank, or (1) to the one after it.
  std::int64_t begin(std::int64_t all, int after = 0) const {
    return all * (rank + after) / degree;
  }
  std::int64_t part(std::int64_t all) const { return begin(all, 1) - begin(all); }
};

/// Which of a layer's experts a rank has: the part-th of `degree` equal parts; all of them where
/// part equals degree (the sequential run).
struct ExpertRank {
  int degree = 1, part = 0;
  bool apart = false;  ///< ranks share experts otherwise than all else

  int parts() const { return part == degree ? 1 : degree; }
  int first_of(int experts) const { return part == degree ? 0 : experts / degree * part; }
};

/// The consecutive layers of a model that are one stage.
struct TransformerPart {
  int first_layer = 0;
  int layers = 0;
  bool first = false;  ///< with the embedding
  bool last = false;   ///< with the final norm, the LM head and the loss
  TensorRank tensor = {};
  std::int64_t first_sequence = 0;  ///< of a microbatch that replicas divide
  ExpertRank expert = {};
};

/// Which part of a matrix a rank has: of each of `blocks` blocks of rows the same part.
struct MatrixCut {
  std::int64_t rows, cols;  ///< of the whole matrix
  std::int64_t blocks = 1;
  std::int64_t first_row = 0, own_rows = 0;  ///< of each block
  std::int64_t first_col = 0, own_cols = 0;

  std::int64_t elements() const { return blocks * own_rows * own_cols; }
  /// Returns where in the whole matrix an element of the part is.
  std::int64_t whole(std::int64_t i) const {
    const std::int64_t row = i / own_cols;
    return (row / own_rows * (rows / blocks) + first_row + row % own_rows) * cols + first_col +
           i % own_cols;
  }
};

/// A named piece of the flat array of weights (and of gradients).
struct Parameter {
  enum class Start : std::uint8_t { zero, one, normal };
  std::string name;  ///< "layer 3 up"
  std::int64_t offset = 0, elements = 0;
  Start start = Start::normal;
  MatrixCut cut;             ///< of the whole parameter; a vector has one column
  std::uint64_t stream = 0;  ///< of random numbers; the same however layers are split into stages
};

enum class Area : std::uint8_t {
  input,
  output,
  output_gradient,
  input_gradient,
  saved,
  saved_for_weight,
  kept,
  workspace
};
struct Slot {
  Area area = Area::workspace;
  std::int64_t offset_bytes = 0;
  Tensor in(const StageBuffers& b) const;
};

struct NormSlots {
  Slot x, mean, rstd, y;
};
/// How a layer with experts routes its tokens. Counts are int32, one for each expert: of this
/// rank's copies, and of those that come from each rank.
struct RouterSlots {
  Slot probabilities, chosen, places;
  Slot back;    ///< what experts made of the copies, sorted by expert
  Slot copies;  ///< in the workspace of F and of I
  Slot counts, counts_here;
};
/// x2 = x + projection(context), context = attention(qkv(ln1(x))); then x2 + down(gelu(z)),
/// z = up(ln2(x2)).
struct LayerSlots {
  NormSlots ln1, ln2;  ///< ln1.x is the layer's input, ln2.x is x2
  Slot qkv, context, z;
  Slot attention;  ///< probabilities, or flash attention's log-sums
  Slot activated;  ///< gelu(z), in the workspace of F and of W
  RouterSlots router;
};
struct LayerGradientSlots {
  Slot output, z, y2, x2, qkv, y1, input;
  Slot scores;                  ///< of the router
  Slot whole_output, whole_x2;  ///< of all rows, where ranks divide them; else output and x2
};
/// Elements before each parameter.
struct LayerParameters {
  std::int64_t gamma1, beta1, qkv, qkv_bias, projection, projection_bias;
  std::int64_t gamma2, beta2, up, up_bias, down, down_bias;
  std::int64_t width;  ///< of up and down on this rank; 0: there are none
  std::int64_t router = -1, router_bias = -1;
  std::int64_t experts = 0, next_expert = 0;  ///< before the first one here, from one to the next

  bool has_experts() const { return router >= 0; }
};

struct TransformerLayout {
  TransformerLayout(const TransformerSpec& spec, const TransformerPart& part,
                    std::int64_t microbatch_size, const Recomputation& recompute,
                    int element_bytes);

  StageSizes sizes;
  std::vector<Parameter> parameters;

  std::int64_t token_table = 0, position_table = 0;
  std::vector<LayerParameters> layer_parameters;
  std::int64_t final_gamma = 0, final_beta = 0, head = 0;

  std::vector<Slot> x, dx;  ///< between layers: layers + 1 of each; x in the forward
  std::vector<LayerSlots> in_forward, in_backward;
  std::vector<LayerGradientSlots> gradients;
  NormSlots final_norm;
  Slot final_dy, logits;  ///< logits: their gradient as soon as F has the loss

  // In the workspace, which embedding, layers and head use one after the other.
  Slot tokens, targets, row_losses;
  Slot dattention, dcontext;  ///< in I: the gradient of the probabilities, or flash's scratch
  Slot activated_again;       ///< in I: gelu(z) of a layer that is made again for the next one
  Slot whole;  ///< where ranks divide the rows: all of them, gathered or not summed yet
  Slot row_maxima, row_sums;  ///< where ranks divide the vocabulary
};

}  // namespace penstock
