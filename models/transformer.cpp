#include "models/transformer.hpp"

namespace penstock {
namespace {

constexpr std::int64_t kVocabMultiple = 128;

double as_double(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

std::int64_t TransformerSpec::layer_matrix_parameters() const {
  const std::int64_t attention = 2 * hidden_size * hidden_size + 2 * hidden_size * kv_size();
  const int mlp_matrices = family == Family::llama ? 3 : 2;
  return attention + mlp_matrices * hidden_size * ffn_hidden_size;
}

std::int64_t TransformerSpec::layer_parameters(const TensorParallel& tensor) const {
  const std::int64_t matrices = layer_matrix_parameters() / tensor.degree;
  if (family == Family::llama) return matrices + 2 * hidden_size;
  const std::int64_t divided_biases = hidden_size + 2 * kv_size() + ffn_hidden_size;
  const std::int64_t whole_biases = 2 * hidden_size;
  return matrices + divided_biases / tensor.degree + whole_biases + 4 * hidden_size;
}

std::int64_t TransformerSpec::vocab_rows(const TensorParallel& tensor) const {
  if (tensor.degree == 1) return vocab_size;
  const std::int64_t multiple = kVocabMultiple * tensor.degree;
  return (vocab_size + multiple - 1) / multiple * kVocabMultiple;
}

std::int64_t TransformerSpec::embedding_parameters(const TensorParallel& tensor) const {
  const std::int64_t positions = family == Family::llama ? 0 : seq_length;
  return (vocab_rows(tensor) + positions) * hidden_size;
}

std::int64_t TransformerSpec::head_parameters(const TensorParallel& tensor) const {
  return vocab_rows(tensor) * hidden_size + (family == Family::llama ? 1 : 2) * hidden_size;
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

double TransformerSpec::head_forward_flops(double b, const TensorParallel& tensor) const {
  return 2 * b * as_double(seq_length) * as_double(hidden_size) * as_double(vocab_rows(tensor));
}

double TransformerSpec::layer_operand_bytes(double b, const TensorParallel& tensor) const {
  // Queries, keys and values; the projection; the MLP's matrices into its width and out of it.
  const double into = family == Family::llama ? 2 : 1;
  const double divided = 2 * as_double(hidden_size) + 2 * as_double(kv_size()) +
                         (into + 1) * as_double(ffn_hidden_size);
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
  const bool dropout = family != Family::llama;
  // Scores, softmax and, with dropout, its output and mask.
  const double probabilities = tokens * as_double(seq_length) * as_double(num_attention_heads) *
                               (dropout ? 2 * e + 1 : 2 * e);
  const bool kept = recompute == Recompute::none && !flash_attention;
  // Inputs of two norms and of the two matrices after them, with two masks of dropout.
  const double around = tokens * h * (dropout ? 4 * e + 2 : 4 * e);
  // llama: queries and attention output 2h, keys and values, MLP 3f.
  const double divided =
      dropout ? tokens * h * 12 * e
              : tokens * e * (2 * h + 2 * as_double(kv_size()) + 3 * as_double(ffn_hidden_size));
  return around / (tensor.sequence ? tensor.degree : 1) +
         (divided + (kept ? probabilities : 0)) / tensor.degree;
}

double TransformerSpec::layer_after_input_bytes(double b, const TensorParallel& tensor) const {
  const double linear = layer_activation_bytes(b, Recompute::selective, tensor);
  if (family == Family::llama) return linear;
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
  const double masks = family == Family::llama ? 0 : 2;
  return b * as_double(seq_length) * as_double(hidden_size) * (10 * element_bytes() + masks);
}

}  // namespace penstock
