// SPDX-License-Identifier: Apache-2.0
// A stage of a GPT: layers with pre-layer-norm, biases and GELU, for real.
//
//   x2 = x + projection(attention(LN(x)));  y = x2 + down(gelu(up(LN(x2))))
// F of the last stage computes the mean loss and at once turns the logits into their gradient, so
// that the largest buffer exists once. I (backward_input) leaves in `kept` the gradient of the
// output of every linear layer and norm; W multiplies them with the stored inputs and reads no
// weights, so it may run after a step. The embedding's gradient belongs to W. Dropout is left out.
// Several tensor ranks have a part each (TensorRank): what projection, down, embedding and, in I,
// up, qkv and the head make is summed over the ranks; with sequence parallelism it stays divided by
// rows, and what they read is gathered (Shoeybi et al., 2019; Korthikanti et al., MLSys'23).
// With Recompute::full, I repeats F layer by layer; results are the same bits in every mode.
// Layers may have experts in the place of the MLP (hw/expert_layer.hpp), beside one that all use.
// Initial weights are normal(0, 0.02), biases 0, gammas 1 (Radford et al., 2019).
// Sources: as above; Narayanan et al., SC'21 (layer); Qi et al., ICLR'24 (the split I/W).
#pragma once

#include "hw/math.hpp"
#include "hw/transformer_layout.hpp"
#include "models/training.hpp"

namespace penstock {

/// Why such a model cannot be executed, for an InputError; empty if it can. BERT is executed
/// without the causal mask, on the same tokens and targets.
std::string why_not_executable(const TransformerSpec& spec);

class TransformerStage : public Stage {
 public:
  /// `spec` is executable. `element_bytes` is Math's. `text` and `router_start`: of a plan that has
  /// them.
  TransformerStage(const TransformerSpec& spec, const TransformerPart& part,
                   std::int64_t microbatch_size, const Recomputation& recompute, int element_bytes,
                   const TrainingSpec& training, std::shared_ptr<const std::string> text = {},
                   std::vector<double> router_start = {});

  const StageSizes& sizes() const override { return layout_.sizes; }
  /// The final norm and the head, each layer from the last on, the embedding, experts apart.
  std::vector<GradientPiece> pieces() const override;
  /// The norms' of ranks that divide the rows.
  std::vector<GradientPiece> partial_pieces() const override;
  void initialize(std::span<float> weights) const override;
  void forward(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_input(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;
  void backward_weight(Math& math, const StageBuffers& b, std::uint32_t microbatch) const override;

  const TransformerLayout& layout() const { return layout_; }

 private:
  TokenSource tokens(std::uint32_t microbatch) const;
  std::size_t piece_of(int layer) const;

  TransformerSpec spec_;
  TransformerPart part_;
  std::int64_t microbatch_size_;
  Recomputation recompute_;
  TrainingSpec training_;
  std::shared_ptr<const std::string> text_;
  std::vector<double> router_start_;
  TransformerLayout layout_;
};

}  // namespace penstock
