#include "models/transformer.hpp"

namespace penstock {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

std::int64_t TransformerSpec::layer_matrix_parameters() const {
  const std::int64_t attention = 2 * hidden_size * hidden_size + 2 * hidden_size * kv_size();
  const int mlp_matrices = family == Family::llama ? 3 : 2;
  return attention + mlp_matrices * hidden_size * ffn_hidden_size;
}

std::int64_t TransformerSpec::layer_parameters() const {
  if (family == Family::llama) return layer_matrix_parameters() + 2 * hidden_size;
  const std::int64_t attention_biases = 2 * hidden_size + 2 * kv_size();
  const std::int64_t mlp_biases = ffn_hidden_size + hidden_size;
  return layer_matrix_parameters() + attention_biases + mlp_biases + 4 * hidden_size;
}

std::int64_t TransformerSpec::embedding_parameters() const {
  const std::int64_t positions = family == Family::llama ? 0 : seq_length;
  return (vocab_size + positions) * hidden_size;
}

std::int64_t TransformerSpec::head_parameters() const {
  return vocab_size * hidden_size + (family == Family::llama ? 1 : 2) * hidden_size;
}

std::int64_t TransformerSpec::parameters() const {
  const std::int64_t shared = tie_embeddings ? vocab_size * hidden_size : 0;
  return num_layers * layer_parameters() + embedding_parameters() + head_parameters() - shared;
}

double TransformerSpec::layer_attention_flops(double b) const {
  return 4 * b * as_double(seq_length) * as_double(seq_length) * as_double(hidden_size);
}

double TransformerSpec::layer_weight_flops(double b) const {
  return 2 * b * as_double(seq_length) * as_double(layer_matrix_parameters());
}

double TransformerSpec::layer_forward_flops(double b) const {
  return layer_weight_flops(b) + layer_attention_flops(b);
}

double TransformerSpec::head_forward_flops(double b) const {
  return 2 * b * as_double(seq_length) * as_double(hidden_size) * as_double(vocab_size);
}

double TransformerSpec::layer_input_bytes(double b) const {
  return element_bytes() * b * as_double(seq_length) * as_double(hidden_size);
}

double TransformerSpec::layer_activation_bytes(double b, Recompute recompute) const {
  if (recompute == Recompute::full) return layer_input_bytes(b);
  const double tokens = b * as_double(seq_length);
  const double h = as_double(hidden_size);
  const double e = element_bytes();
  const bool dropout = family != Family::llama;
  // Scores, softmax and, with dropout, its output and mask.
  const double probabilities = tokens * as_double(seq_length) * as_double(num_attention_heads) *
                               (dropout ? 2 * e + 1 : 2 * e);
  const bool kept = recompute == Recompute::none && !flash_attention;
  // llama: norm inputs and outputs 4h, queries and attention output 2h, keys and values, MLP 3f.
  const double linear =
      dropout ? tokens * h * (16 * e + 2)
              : tokens * e * (6 * h + 2 * as_double(kv_size()) + 3 * as_double(ffn_hidden_size));
  return linear + (kept ? probabilities : 0);
}

double TransformerSpec::layer_after_input_bytes(double b) const {
  const double linear = layer_activation_bytes(b, Recompute::selective);
  if (family == Family::llama) return linear;
  const double dropout_masks = 2 * b * as_double(seq_length) * as_double(hidden_size);
  return linear - dropout_masks;  // they go with I
}

double TransformerSpec::logits_bytes(double b) const {
  return 4 * b * as_double(seq_length) * as_double(vocab_size);
}

double TransformerSpec::logits_workspace_bytes(double b) const {
  return (4 + element_bytes()) * b * as_double(seq_length) * as_double(vocab_size);
}

}  // namespace penstock
