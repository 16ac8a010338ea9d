// SPDX-License-Identifier: Apache-2.0
// The keys of configurations of Hugging Face, Megatron and MPT: what they mean in a model of ours,
// what names a model beyond our families, and what changes no prediction.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace penstock {

using Words = std::span<const std::string_view>;

inline constexpr std::string_view kLongest[] = {"max_position_embeddings", "n_positions", "n_ctx",
                                                "max_seq_len", "model_max_length"};
inline constexpr std::string_view kActivations[] = {"hidden_act", "activation_function",
                                                    "hidden_activation", "activation"};
inline constexpr std::string_view kGated[] = {"silu", "swish", "swiglu", "geglu"};

/// What other configurations call our keys, beside the names that scenarios may use, too.
inline constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"n_embed", "hidden_size"},
    {"d_model", "hidden_size"},
    {"dim", "hidden_size"},
    {"n_layers", "num_layers"},
    {"n_heads", "num_attention_heads"},
    {"num_heads", "num_attention_heads"},
    {"n_kv_heads", "num_query_groups"},
    {"kv_n_heads", "num_query_groups"},
    {"multi_query_group_num", "num_query_groups"},
    {"head_size", "head_dim"},
    {"attention_head_dim", "head_dim"},
    {"d_ff", "ffn_hidden_size"},
    {"hidden_dim", "ffn_hidden_size"},
    {"num_ln_in_parallel_attn", "norms"},
    {"sliding_window_size", "sliding_window"}};

/// Words of a key and the choices of ours that they are.
struct Meaning {
  std::string_view key, words, ours, value;
};
inline constexpr Meaning kMeanings[] = {
    {"normalization", "|LayerNorm|layernorm|LayerNorm1P|layernorm1p|", "norm", "layer"},
    {"normalization", "|RMSNorm|rmsnorm|", "norm", "rms"},
    {"norm_type", "|layer_norm|layernorm|", "norm", "layer"},
    {"norm_type", "|rms|rms_norm|rmsnorm|", "norm", "rms"},
    {"norm_type", "|low_precision_layernorm|", "norm", "layer-without-bias"},
    {"position_embedding_type", "|rope|rope_gptj|rotary|yarn|", "positions", "rotary"},
    {"position_embedding_type", "|learned_absolute|absolute|learned|", "positions", "learned"},
    {"position_embedding_type", "|alibi|", "positions", "alibi"},
    {"position_embedding_type", "|none|nope|", "positions", "none"}};

/// Which linear layers a key gives biases where it is true; '!': where it is false.
inline constexpr std::pair<std::string_view, std::string_view> kBiasKeys[] = {
    {"add_qkv_bias", "qkv"},
    {"qkv_bias", "qkv"},
    {"use_qkv_bias", "qkv"},
    {"mlp_bias", "mlp"},
    {"attention_bias", ""},
    {"attn_bias", ""},
    {"add_bias_linear", "all"},
    {"enable_bias", "all"},
    {"use_bias", "all"},
    {"bias", "all"},
    {"disable_bias_linear", "!all"},
    {"no_bias", "!all"}};

inline constexpr std::string_view kDropoutKeys[] = {"dropout",
                                                    "hidden_dropout",
                                                    "resid_pdrop",
                                                    "residual_dropout",
                                                    "resid_dropout",
                                                    "attn_pdrop",
                                                    "attention_dropout",
                                                    "attention_probs_dropout_prob",
                                                    "hidden_dropout_prob"};
inline constexpr std::string_view kWindowKeys[] = {"sliding_window", "use_sliding_window",
                                                   "max_window_layers", "layer_types",
                                                   "sliding_window_pattern"};

inline constexpr std::string_view kNormsOfQueries[] = {"use_qk_norm", "qk_layernorm", "qk_norm",
                                                       "use_qk_layernorm"};
inline constexpr const char* kNoMixture = "mixture-of-experts models are not modelled";
inline constexpr const char* kNoEncoder = "encoder-decoder models are not modelled";
inline constexpr const char* kNoStates = "state-space models are not modelled";
inline constexpr const char* kNoHybrid = "hybrid models are not modelled";
inline constexpr std::string_view kExpertCounts[] = {"num_local_experts", "num_experts",
                                                     "n_routed_experts"};

/// Keys that name a model beyond our families when their value is more than 0, or true.
inline constexpr std::pair<std::string_view, const char*> kBeyondUs[] = {
    {"num_local_experts", kNoMixture},
    {"num_experts", kNoMixture},
    {"n_routed_experts", kNoMixture},
    {"num_experts_per_tok", kNoMixture},
    {"n_shared_experts", kNoMixture},
    {"encoder_layers", kNoEncoder},
    {"decoder_layers", kNoEncoder},
    {"num_decoder_layers", kNoEncoder},
    {"decoder_num_layers", kNoEncoder},
    {"is_encoder_decoder", kNoEncoder},
    {"add_cross_attention", kNoEncoder},
    {"multi_latent_attention", "multi-latent attention is not modelled"},
    {"kv_lora_rank", "multi-latent attention is not modelled"},
    {"q_lora_rank", "multi-latent attention is not modelled"},
    {"is_mamba_config", kNoStates},
    {"ssm_cfg", kNoStates},
    {"state_size", kNoStates},
    {"mamba_d_state", kNoStates},
    {"mamba_d_conv", kNoStates},
    {"mamba_num_heads", kNoStates},
    {"ssm_state_size", kNoStates},
    {"attn_layer_period", kNoHybrid},
    {"full_attention_interval", kNoHybrid},
    {"linear_num_value_heads", kNoHybrid},
    {"lru_width", kNoHybrid},
    {"mtp_num_layers", "multi-token prediction is not modelled"},
    {"num_nextn_predict_layers", "multi-token prediction is not modelled"}};

/// Keys without a meaning for a prediction: whole names, beginnings and endings.
inline constexpr std::string_view kMeaningless[] = {
    "architectures",
    "_name_or_path",
    "name_or_path",
    "auto_map",
    "use_cache",
    "gradient_checkpointing",
    "is_decoder",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "pretraining_tp",
    "problem_type",
    "id2label",
    "label2id",
    "finetuning_task",
    "task_specific_params",
    "activation_dropout",
    "type_vocab_size",
    "vocab_file",
    "merge_file",
    "make_vocab_size_divisible_by",
    "do_layer_norm_before",
    "_remove_final_layer_norm",
    "apply_layernorm_1p",
    "original_max_position_embeddings",
    "norm_epsilon",
    "norm_eps",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "reorder_and_upcast_attn",
    "classifier_dropout",
    "layerdrop",
    "position_buckets",
    "prefix",
    "torchscript",
    "openai_gelu",
    "logit_scale",
    "multiple_of",
    "ffn_dim_multiplier",
    "experts_per_token",
    "swiglu_limit",
    "norm_topk_prob",
    "decoder_sparse_step",
    "mlp_only_layers",
    "n_group",
    "topk_group",
    "topk_method",
    "routed_scaling_factor",
    "scoring_func",
    "seq_aux",
    "aux_loss_alpha",
    "ep_size",
    "first_k_dense_replace",
    "v_head_dim",
    "mm_tokens_per_image",
    "unk_token_id",
    "rotary_dim",
    "rotary_pct",
    "partial_rotary_factor",
    "offset_alibi",
    "slow_but_exact",
    "skip_bias_add",
    "use_cache",
    "attn_implementation",
    "query_pre_attn_scalar",
    "rms_norm_epsilon",
    "mlp_type",
    "no_rope_layers",
    "no_rope_layer_interval",
    "clip_qkv",
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "scale_emb",
    "scale_depth",
    "dim_model_base",
    "initial_context_length",
    "mup_enabled",
    "scale_attention_softmax_in_fp32",
    "ffn_act_layer",
    "onnx_safe",
    "lr",
    "min_lr",
    "weight_decay",
    "clip_grad",
    "seed",
    "train_iters",
    "train_samples",
    "exit_interval",
    "split",
    "save",
    "load",
    "loss_scale",
    "initial_loss_scale",
    "encoder_num_layers",
    "attention_softmax_in_fp32",
    "accumulate_allreduce_grads_in_fp32",
    "apply_query_key_layer_scaling",
    "apply_residual_connection_post_layernorm",
    "distributed_backend",
};
inline constexpr std::string_view kMeaninglessBeginnings[] = {
    "rope_",         "rotary_",        "layer_norm_",    "layernorm_",
    "rms_norm_",     "initializer_",   "init_method",    "lr_",
    "adam_",         "sgd_",           "log_",           "eval_",
    "save_",         "load_",          "data_",          "vocab_",
    "tokenizer_",    "summary_",       "tensorboard_",   "wandb_",
    "transformers_", "special_tokens", "min_loss_scale", "loss_scale_",
    "weight_decay_", "attn_logit",     "final_logit",    "bos_",
    "eos_",          "pad_",           "quantization_",  "rope",
    "router_",       "output_router",  "qk_nope_",       "qk_rope_",
    "use_rope",
};
inline constexpr std::string_view kMeaninglessEndings[] = {
    "_token_id", "_dropout", "_dropout_prob", "_pdrop", "_drop_rate", "_eps", "_epsilon",
};

inline bool contains(Words words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Returns whether a key changes nothing that is predicted.
inline bool is_meaningless(std::string_view key) {
  return contains(kMeaningless, key) ||
         std::ranges::any_of(kMeaninglessBeginnings, [&](auto w) { return key.starts_with(w); }) ||
         std::ranges::any_of(kMeaninglessEndings, [&](auto w) { return key.ends_with(w); });
}

}  // namespace penstock
