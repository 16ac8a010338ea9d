// SPDX-License-Identifier: Apache-2.0
#include "models/transformer.hpp"

#include "models/layer/module.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::int64_t kVocabMultiple = 128;

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// Returns how many tokens the LM head predicts of each token.
int predictions(const TransformerSpec& model) { return 1 + model.mtp_layers; }

}  // namespace

int TransformerSpec::expert_layers(int begin, int end) const {
  int count = 0;
  for (int layer = begin; layer < end; ++layer) count += has_experts(layer) ? 1 : 0;
  return count;
}

std::int64_t TransformerSpec::layer_matrix_parameters() const {
  return Layer(*this).matrix_parameters();
}

std::int64_t TransformerSpec::layer_parameters(const TensorParallel& tensor) const {
  return Layer(*this).parameters(tensor);
}

std::int64_t TransformerSpec::vocab_rows(const TensorParallel& tensor) const {
  if (tensor.degree == 1) return vocab_size;
  const std::int64_t multiple = kVocabMultiple * tensor.degree;
  return (vocab_size + multiple - 1) / multiple * kVocabMultiple;
}

std::int64_t TransformerSpec::learned_positions() const {
  if (form().positions != Positions::learned) return 0;
  return std::max(position_rows.value_or(0), seq_length);
}

std::int64_t TransformerSpec::embedding_parameters(const TensorParallel& tensor) const {
  return (vocab_rows(tensor) + learned_positions()) * hidden_size + extra_parameters.value_or(0);
}

std::int64_t TransformerSpec::head_parameters(const TensorParallel& tensor) const {
  const int tables = mtp_layers > 0 && !tie_embeddings ? 2 : 1;
  return (tables * vocab_rows(tensor) + form().norm_vectors()) * hidden_size;
}

std::int64_t TransformerSpec::copied_parameters(const TensorParallel& tensor) const {
  return tie_embeddings || mtp_layers > 0 ? vocab_rows(tensor) * hidden_size : 0;
}

namespace {

/// Returns the sum of `of(layer)` over the layers of a model, those that predict further tokens
/// included.
template <class Of>
auto sum_over_layers(const TransformerSpec& model, const Of& of) {
  const int experts = model.expert_layers(0, model.num_layers);
  const int dense = model.num_layers - experts;
  decltype(of(Layer(model))) sum{};
  if (dense > 0) sum += dense * of(Layer(model, LayerKind::dense));
  if (experts > 0) sum += experts * of(Layer(model, LayerKind::experts));
  if (model.mtp_layers > 0) sum += model.mtp_layers * of(Layer(model, LayerKind::prediction));
  return sum;
}

}  // namespace

std::int64_t TransformerSpec::parameters() const {
  return sum_over_layers(*this, [](const Layer& layer) { return layer.parameters({}); }) +
         embedding_parameters() + head_parameters() - copied_parameters();
}

std::int64_t TransformerSpec::active_parameters() const {
  return parameters() -
         sum_over_layers(*this, [](const Layer& layer) { return layer.idle_parameters(); });
}

double TransformerSpec::forward_flops(double b) const {
  return head_forward_flops(b) + sum_over_layers(*this, [&](const Layer& layer) {
           const LayerWork work = layer.work(b, {});
           return work.product_flops + work.attention_flops;
         });
}

double TransformerSpec::attention_pairs(std::int64_t length) const {
  const double all = as_double(length) * as_double(length);
  const std::int64_t window = sliding_window.value_or(length);
  if (window >= length || !flash_attention) return all;
  const double outside = as_double(length - window);
  const int full = full_attention_every ? num_layers / *full_attention_every : 0;
  return all - outside * outside * (num_layers - full) / num_layers;
}

double TransformerSpec::windowed_layers() const {
  if (sliding_window.value_or(seq_length) >= seq_length || !flash_attention) return 0;
  const int full = full_attention_every ? num_layers / *full_attention_every : 0;
  return 1 - as_double(full) / num_layers;
}

double TransformerSpec::windowed_pairs() const {
  const double outside = 1 - as_double(sliding_window.value_or(seq_length)) / as_double(seq_length);
  return 1 - outside * outside;
}

double TransformerSpec::layer_attention_flops(double b) const {
  return Layer(*this).work(b, {}).attention_flops;
}

double TransformerSpec::layer_weight_flops(double b) const {
  return Layer(*this).work(b, {}).product_flops;
}

double TransformerSpec::layer_forward_flops(double b) const {
  return layer_weight_flops(b) + layer_attention_flops(b);
}

double TransformerSpec::head_forward_flops(double b, const TensorParallel& tensor) const {
  return 2 * b * as_double(seq_length) * as_double(hidden_size) * as_double(vocab_rows(tensor)) *
         predictions(*this);
}

double TransformerSpec::head_operand_bytes(double b, const TensorParallel& tensor) const {
  const double rows = b * as_double(seq_length), columns = as_double(vocab_rows(tensor));
  const double operand = operand_bytes(ProductClass::head);
  return predictions(*this) *
         (operand * (rows + columns) * as_double(hidden_size) + element_bytes() * rows * columns);
}

double TransformerSpec::layer_input_bytes(double b) const {
  return element_bytes() * b * as_double(seq_length) * as_double(hidden_size);
}

double TransformerSpec::layer_activation_bytes(double b, Recompute recompute,
                                               const TensorParallel& tensor) const {
  const Layer layer(*this);
  if (recompute == Recompute::full) return layer.input_bytes(b, tensor);
  const bool selective = recompute == Recompute::selective;
  return layer.kept(b, tensor, selective ? LayerPart::core_attn : LayerParts()).bytes();
}

double TransformerSpec::layer_after_input_bytes(double b, const TensorParallel& tensor) const {
  return Layer(*this).kept(b, tensor).until_weight;
}

double TransformerSpec::logits_bytes(double b, const TensorParallel& tensor) const {
  return 4 * b * as_double(seq_length) * as_double(vocab_rows(tensor)) * predictions(*this);
}

double TransformerSpec::logits_workspace_bytes(double b, const TensorParallel& tensor) const {
  return (4 + element_bytes()) * b * as_double(seq_length) * as_double(vocab_rows(tensor));
}

}  // namespace penstock
