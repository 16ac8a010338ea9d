// SPDX-License-Identifier: Apache-2.0
// Transformers by shape: parameters, FLOPs and activation bytes of a layer, the embedding and the
// LM head.
//
// With b sequences of s tokens, hidden size h, a heads, vocabulary V, P matrix parameters a layer:
//   forward FLOPs of a layer    2 b s P + 4 b s^2 h   (GPT: 24 b s h^2 + 4 b s^2 h)
//   backward                    twice that: I = 2 b s P + 8 b s^2 h, W = 2 b s P
//   LM head                     2 b s h V forward, 4 b s h V backward, never recomputed
// Heads of another width than h / a (head_dim) make h of attention a head_dim. A sliding window of
// w < s leaves s^2 - (s - w)^2 of the s^2 pairs, which is twice what a causal mask leaves of them,
// as s^2 is; layers are taken alike, each with the mean of those with and without a window.
//
//   activations of a GPT layer  s b h (34 + 5 a s / h) bytes at 16 bits; its input alone, 2 s b h,
//                               with full recomputation
// Divided among t GPUs as Megatron does (Shoeybi et al., arXiv:1909.08053, section 3): the first
// matrix of attention and of the MLP by columns, the second by rows, so each holds a/t heads;
// embedding and LM head by rows of the vocabulary, which is padded to a multiple of 128 t; norms,
// the biases of the second matrices and the positions on every GPU. Activations of a GPT layer are
// then s b h (10 + 24/t + 5 a s / (h t)), and with sequence parallelism, which divides norms and
// dropout, too, s b h (34 + 5 a s / h) / t.
//
// Mixtures of experts (Shazeer et al., arXiv:1701.06538; Dai et al., DeepSeekMoE,
// arXiv:2401.06066): a router scores E experts, MLPs of their own width, and a token goes through
// the top k of them, beside a shared one. Layers are then of kinds; parameters count all E experts,
// FLOPs k of them. Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) makes
// queries, keys and values of compressed latents; its pairs take 2 FLOPs an element of a query and
// of a value. Sources: Narayanan et al., SC'21, section 5.1 (FLOPs; attention counted in full, as
// Megatron does); Korthikanti et al., MLSys'23, section 4 (activations); Qi et al., ICLR'24 (the
// split I/W).
#pragma once

#include "models/layer_form.hpp"
#include "models/product_types.hpp"
#include "models/recomputation.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

/// Bytes a parameter costs. Mixed precision: 2 + 4 + 12 (fp32 master and Adam's two moments).
struct ParameterBytes {
  double weights = 2;
  double gradients = 4;
  double optimizer = 12;
  double version = 2;  ///< a further weight version
  double reduced = 4;  ///< what the all-reduce between replicas moves
};

/// How ranks that divide every sequence bring queries together with all keys and values.
enum class ContextExchange : std::uint8_t {
  ring,        ///< keys and values go round beside attention (Liu et al., arXiv:2310.01889)
  all_gather,  ///< they are gathered before it (Llama 3: arXiv:2407.21783, section 3.3.2)
  all_to_all,  ///< whole sequences of some heads (DeepSpeed-Ulysses: Jacobs et al.,
               ///< arXiv:2309.14509)
};

/// How the GPUs of a stage share its layers. `degree` must divide heads, key/value heads and the
/// MLP's width; with `sequence`, the sequence, too.
struct TensorParallel {
  int degree = 1;         ///< GPUs, t
  bool sequence = false;  ///< sequence parallelism: norms and dropout are divided, too
  /// Each sends its part of a message between stages, which the receivers then gather (Megatron's
  /// scatter-gather, Narayanan et al., SC'21, section 4.1; DeepSpeed's partitioned activations);
  /// sequence parallelism has only parts to send.
  bool divided_messages = false;
  /// What sequence parallelism gathers and scatters inside of ops goes in t parts beside the
  /// products that need or make it (Wang et al., ASPLOS'23; Transformer Engine's user buffers,
  /// torch's asynchronous tensor parallelism).
  bool overlap = false;
};

/// How GPUs share routed experts: `degree` groups each have E / degree of them, and `tensor` GPUs
/// of a group divide every one (Megatron-LM's expert parallelism, folded: Liu et al.,
/// arXiv:2504.14960).
struct ExpertParallel {
  int degree = 1;
  int tensor = 1;
  bool narrow_dispatch = false;  ///< tokens go to experts in the type of their products
  int copies = 0;      ///< further experts of a layer that a GPU has room for (models/routing.hpp)
  int sms = 0;         ///< multiprocessors that kernels of an exchange occupy
  bool sorts = false;  ///< copies come by their GPUs, as NCCL sends them, not by their experts
  /// Of the GPU that gets most tokens of a microbatch: rows of its experts over the mean of all
  /// GPUs, what it receives over that mean, and how unlike its experts' rows are, from 0 to 1 as by
  /// a power law.
  double rows = 1, received = 1, skew = 0;

  int parts() const { return degree * tensor; }
};

/// The experts of a layer that has some in the place of its MLP.
struct Experts {
  int count = 0;                  ///< routed experts, E
  int top_k = 1;                  ///< of which a token uses so many
  std::int64_t width = 0;         ///< of one of them
  std::int64_t shared_width = 0;  ///< of those that every token uses, together; 0: there are none
  bool shared_gate = false;       ///< a sigmoid of the token weighs what they make (Qwen2-MoE)
  bool router_bias = false;       ///< a parameter of each routed expert (gpt-oss)
  int first_dense = 0;            ///< so many first layers have the model's own MLP (DeepSeek-V3)
  int every = 1;  ///< of the others, the first and every n-th after it have experts (Llama 4
                  ///< Maverick: 2, behind a dense one)
  /// Parts of the routed experts, of which a token's are in so many alone (DeepSeek-V3: 8, 4).
  int groups = 1, groups_per_token = 1;

  bool operator==(const Experts&) const = default;
};

/// Multi-head latent attention.
struct LatentAttention {
  std::int64_t q_rank = 0;    ///< of compressed queries; 0: they are not compressed
  std::int64_t kv_rank = 0;   ///< of compressed keys and values
  std::int64_t rope_dim = 0;  ///< of the part with positions; all heads share a key's
  std::int64_t nope_dim = 0;  ///< of the part without
  std::int64_t value_dim = 0;

  std::int64_t key_dim() const { return nope_dim + rope_dim; }
  bool operator==(const LatentAttention&) const = default;
};

enum class LayerKind : std::uint8_t {
  dense,
  experts,
  /// A further layer after the last that predicts one more token (multi-token prediction:
  /// DeepSeek-V3, arXiv:2412.19437, section 2.2): two norms, a product of what the layers made
  /// beside the next token's embedding, a layer as the last one and a norm before the LM head.
  prediction,
};

struct TransformerSpec {
  std::string name;
  Family family = Family::gpt;
  std::optional<LayerForm> own_form = std::nullopt;  ///< where it is not the family's
  int num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 1;
  std::int64_t num_query_groups = 1;                    ///< key/value heads
  std::optional<std::int64_t> head_dim = std::nullopt;  ///< if not hidden_size / heads
  std::int64_t ffn_hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t seq_length = 0;
  std::optional<std::int64_t> position_rows = std::nullopt;  ///< if not seq_length
  /// Keys of a query in layers with a window, its own included. Kernels of flash attention skip
  /// what is outside.
  std::optional<std::int64_t> sliding_window = std::nullopt;
  std::optional<int> full_attention_every = std::nullopt;  ///< the n-th, 2n-th ... have no window
  std::optional<Experts> experts = std::nullopt;
  std::optional<LatentAttention> latent = std::nullopt;
  int mtp_layers = 0;  ///< of kind LayerKind::prediction, on the last stage
  /// Of the first stage, such as a vision encoder's.
  std::optional<std::int64_t> extra_parameters = std::nullopt;
  bool tie_embeddings = true;
  bool flash_attention = false;
  std::string compute_type = "fp16";  ///< row of the device's peak rates
  ProductTypes product_types = {};    ///< of products that are in other types than that
  ParameterBytes bytes;

  double element_bytes() const { return compute_type == "fp32" || compute_type == "tf32" ? 4 : 2; }
  /// Returns the row of a device's peak rates that products of a class are at.
  std::string peak_of(ProductClass products) const {
    const std::string_view peak = facts_of(product_types.of(products)).peak;
    return peak.empty() ? compute_type : std::string(peak);
  }
  /// Returns the bytes of an operand of these products.
  double operand_bytes(ProductClass products) const {
    const NumberType type = product_types.of(products);
    return type == NumberType::model ? element_bytes() : facts_of(type).bytes;
  }
  bool is_narrow(ProductClass products) const { return operand_bytes(products) < element_bytes(); }
  /// Returns the same model with all products in its own type.
  TransformerSpec in_own_type() const {
    TransformerSpec plain = *this;
    plain.product_types = {};
    return plain;
  }
  LayerForm form() const { return own_form.value_or(form_of(family)); }
  /// Returns the elements of a head's query and of its key.
  std::int64_t head_size() const {
    return latent ? latent->key_dim() : head_dim.value_or(hidden_size / num_attention_heads);
  }
  std::int64_t value_head_size() const { return latent ? latent->value_dim : head_size(); }
  /// Elements of a token's queries, of its keys, of its values and of what attention makes of them.
  std::int64_t query_size() const {
    return latent || head_dim ? head_size() * num_attention_heads : hidden_size;
  }
  std::int64_t key_size() const { return head_size() * num_query_groups; }
  std::int64_t value_size() const { return value_head_size() * num_query_groups; }
  std::int64_t attention_output_size() const {
    return latent ? value_head_size() * num_attention_heads : query_size();
  }

  /// Returns of which kind layer `layer` of the model is, counted from 0.
  LayerKind kind_of(int layer) const {
    if (layer >= num_layers) return LayerKind::prediction;
    const int beyond = experts ? layer - experts->first_dense : -1;
    return beyond >= 0 && beyond % experts->every == 0 ? LayerKind::experts : LayerKind::dense;
  }
  bool has_experts(int layer) const { return kind_of(layer) == LayerKind::experts; }
  /// Returns how many of layers [begin, end) have experts.
  int expert_layers(int begin, int end) const;
  /// Returns of which kind most layers of such a model are.
  LayerKind usual_kind() const { return experts ? LayerKind::experts : LayerKind::dense; }
  /// Pairs of query and key that count, of a sequence and head, the mean over the layers.
  double attention_pairs() const { return attention_pairs(seq_length); }
  /// The same of a sequence, or document, of so many tokens.
  double attention_pairs(std::int64_t length) const;
  /// Returns the share of the layers whose window is shorter than a sequence.
  double windowed_layers() const;
  /// Returns the share of a sequence's pairs that are within the window.
  double windowed_pairs() const;

  // Of a layer of the usual kind:
  std::int64_t layer_matrix_parameters() const;
  // On each of the GPUs that share a stage:
  std::int64_t layer_parameters(const TensorParallel& tensor = {}) const;
  /// Rows of the embedding: the vocabulary, divided and padded (Megatron's
  /// make_vocab_size_divisible_by = 128, times t) where there are several.
  std::int64_t vocab_rows(const TensorParallel& tensor = {}) const;
  /// Rows of the table of learned positions; 0 where there is none.
  std::int64_t learned_positions() const;
  /// Token and position embeddings, and extra_parameters.
  std::int64_t embedding_parameters(const TensorParallel& tensor = {}) const;
  /// Final norm and output projection; the projection is a copy when it is tied. Layers that
  /// predict further tokens need a copy of the embedding beside a projection of its own.
  std::int64_t head_parameters(const TensorParallel& tensor = {}) const;
  /// Those of the head that are copies of the embedding's, which a stage with both has once.
  std::int64_t copied_parameters(const TensorParallel& tensor = {}) const;
  /// Parameters of the whole model, copies counted once.
  std::int64_t parameters() const;
  /// The same without the routed experts that a token does not use.
  std::int64_t active_parameters() const;
  /// FLOPs of the forward of the whole model, those of its layers and of the LM head.
  double forward_flops(double b) const;

  // Per microbatch of b sequences, of a layer of the usual kind:
  double layer_forward_flops(double b) const;
  double layer_weight_flops(double b) const;     ///< W
  double layer_attention_flops(double b) const;  ///< the part selective recomputation repeats
  double layer_input_bytes(double b) const;      ///< of the whole sequence

  // Per microbatch, on each of the GPUs that share a stage; the LM head also of further tokens:
  double head_forward_flops(double b, const TensorParallel& tensor = {}) const;
  double head_operand_bytes(double b, const TensorParallel& tensor = {}) const;
  double layer_activation_bytes(double b, Recompute recompute,
                                const TensorParallel& tensor = {}) const;
  /// Kept from I to W.
  double layer_after_input_bytes(double b, const TensorParallel& tensor = {}) const;
  /// The fp32 softmax kept for the backward.
  double logits_bytes(double b, const TensorParallel& tensor = {}) const;
  /// Logits in both precisions.
  double logits_workspace_bytes(double b, const TensorParallel& tensor = {}) const;
};

}  // namespace penstock
