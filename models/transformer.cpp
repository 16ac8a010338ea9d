// SPDX-License-Identifier: Apache-2.0
#include "models/transformer.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::int64_t kVocabMultiple = 128;

double as_double(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

std::int64_t TransformerSpec::layer_matrix_parameters() const {
  const std::int64_t attention = 2 * hidden_size * (query_size() + kv_size());
  return attention + form().mlp_matrices() * hidden_size * ffn_hidden_size;
}

std::int64_t TransformerSpec::layer_parameters(const TensorParallel& tensor) const {
  const LayerForm f = form();
  const std::int64_t attention = query_size() + 2 * kv_size();
  const std::int64_t mlp = (f.mlp_matrices() - 1) * ffn_hidden_size;
  std::int64_t divided = layer_matrix_parameters(),
               whole = f.norms * f.norm_vectors() * hidden_size;
  if (f.has_qkv_biases()) divided += attention;
  if (f.has_mlp_biases()) divided += mlp;
  if (f.has_projection_bias()) whole += hidden_size;
  if (f.has_mlp_biases()) whole += hidden_size;
  if (f.qk_norm == QueryKeyNorm::head) whole += 2 * head_size();
  if (f.qk_norm == QueryKeyNorm::width) divided += query_size() + kv_size();
  return divided / tensor.degree + whole;
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
  return (vocab_rows(tensor) + form().norm_vectors()) * hidden_size;
}

std::int64_t TransformerSpec::parameters() const {
  const std::int64_t shared = tie_embeddings ? vocab_size * hidden_size : 0;
  return num_layers * layer_parameters() + embedding_parameters() + head_parameters() - shared;
}

double TransformerSpec::attention_pairs() const {
  const double all = as_double(seq_length) * as_double(seq_length);
  const std::int64_t window = sliding_window.value_or(seq_length);
  if (window >= seq_length || !flash_attention) return all;
  const double outside = as_double(seq_length - window);
  const int full = full_attention_every ? num_layers / *full_attention_every : 0;
  return all - outside * outside * (num_layers - full) / num_layers;
}

double TransformerSpec::layer_attention_flops(double b) const {
  return 4 * b * attention_pairs() * as_double(query_size());
}

double TransformerSpec::layer_weight_flops(double b) const {
  return 2 * b * as_double(seq_length) * as_double(layer_matrix_parameters());
}

double TransformerSpec::layer_forward_flops(double b) const {
  return layer_weight_flops(b) + layer_attention_flops(b);
}

double TransformerSpec::head_forward_flops(double b, const TensorParallel& tensor) const {
  return 2 * b * as_double(seq_length) * as_double(hidden_size) * as_double(vocab_rows(tensor));
}

double TransformerSpec::layer_operand_bytes(double b, const TensorParallel& tensor) const {
  // Queries, keys and values; the projection; the MLP's matrices into its width and out of it.
  const double divided = 2 * as_double(query_size()) + 2 * as_double(kv_size()) +
                         form().mlp_matrices() * as_double(ffn_hidden_size);
  const double rows = b * as_double(seq_length);
  return element_bytes() * (as_double(layer_matrix_parameters()) / tensor.degree +
                            rows * (4 * as_double(hidden_size) + divided / tensor.degree));
}

double TransformerSpec::head_operand_bytes(double b, const TensorParallel& tensor) const {
  const double rows = b * as_double(seq_length), columns = as_double(vocab_rows(tensor));
  return element_bytes() *
         (rows * (as_double(hidden_size) + columns) + columns * as_double(hidden_size));
}

double TransformerSpec::layer_input_bytes(double b) const {
  return element_bytes() * b * as_double(seq_length) * as_double(hidden_size);
}

double TransformerSpec::held_input_bytes(double b, const TensorParallel& tensor) const {
  return layer_input_bytes(b) / (tensor.sequence ? tensor.degree : 1);
}

double TransformerSpec::layer_activation_bytes(double b, Recompute recompute,
                                               const TensorParallel& tensor) const {
  if (recompute == Recompute::full) return held_input_bytes(b, tensor);
  const double tokens = b * as_double(seq_length);
  const double h = as_double(hidden_size);
  const double e = element_bytes();
  const LayerForm f = form();
  // Scores, softmax and, with dropout, its output and mask.
  const double probabilities = tokens * as_double(seq_length) * as_double(num_attention_heads) *
                               (f.dropout ? 2 * e + 1 : 2 * e);
  const bool kept = recompute == Recompute::none && !flash_attention;
  // Inputs of the norms (of two that read the layer's input, one) and of the two matrices after
  // them (after one norm, one), with two masks of dropout.
  const int inputs = f.parallel_residual ? 1 + f.norms : 2 + f.norms;
  const double around = tokens * h * (f.dropout ? inputs * e + 2 : inputs * e);
  // Queries and attention's output, keys and values, the MLP's columns before and after the
  // activation and of the gate; queries and keys once more before their norm.
  double elements = 2 * as_double(query_size()) + 2 * as_double(kv_size()) +
                    f.mlp_matrices() * as_double(ffn_hidden_size);
  if (f.qk_norm != QueryKeyNorm::none) elements += as_double(query_size() + kv_size());
  return around / (tensor.sequence ? tensor.degree : 1) +
         (tokens * e * elements + (kept ? probabilities : 0)) / tensor.degree;
}

double TransformerSpec::layer_after_input_bytes(double b, const TensorParallel& tensor) const {
  const double linear = layer_activation_bytes(b, Recompute::selective, tensor);
  if (!form().dropout) return linear;
  const double dropout_masks = 2 * b * as_double(seq_length) * as_double(hidden_size);
  return linear - dropout_masks / (tensor.sequence ? tensor.degree : 1);  // they go with I
}

double TransformerSpec::logits_bytes(double b, const TensorParallel& tensor) const {
  return 4 * b * as_double(seq_length) * as_double(vocab_rows(tensor));
}

double TransformerSpec::logits_workspace_bytes(double b, const TensorParallel& tensor) const {
  return (4 + element_bytes()) * b * as_double(seq_length) * as_double(vocab_rows(tensor));
}

double TransformerSpec::layer_elementwise_bytes(double b) const {
  const LayerForm f = form();
  return b * as_double(seq_length) * as_double(hidden_size) *
         ((2 * f.norms + 6) * element_bytes() + (f.dropout ? 2 : 0));
}

}  // namespace penstock
