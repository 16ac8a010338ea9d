// SPDX-License-Identifier: Apache-2.0
#include "scenarios/foreign_types.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock {
namespace {

constexpr ForeignType kTypes[] = {
    {"gpt2", "family: gpt", ""},
    {"gpt", "family: gpt", ""},
    {"gpt_neo", "family: gpt", ""},
    {"opt", "family: gpt", ""},
    {"gpt_bigcode", "family: gpt", ""},
    {"bloom", "family: gpt, positions: alibi", "max_position_embeddings: 2048"},
    {"bert", "family: bert", ""},
    {"roberta", "family: bert", ""},

    {"llama", "family: llama", ""},
    {"mistral", "family: llama", ""},
    {"Yi", "family: llama", ""},
    {"aquila", "family: llama", ""},
    {"xverse", "family: llama", ""},
    {"baichuan", "family: llama", ""},
    {"internlm", "family: llama", ""},
    {"internlm2", "family: llama", ""},
    {"internlm3", "family: llama", ""},
    {"helium", "family: llama", ""},
    {"granite", "family: llama", ""},
    {"phi3", "family: llama", ""},
    {"minicpm", "family: llama, tie_embeddings: true", ""},
    {"smollm3", "family: llama, tie_embeddings: true", ""},
    {"ernie4_5", "family: llama, tie_embeddings: true", "head_dim: 128"},
    {"seed_oss", "family: llama", "head_dim: 128", "qkv"},
    {"exaone", "family: llama", ""},
    {"exaone4", "family: llama, qk_norm: head", ""},
    {"hunyuan_v1_dense", "family: llama, qk_norm: head", ""},
    {"arcee", "family: llama, gated_mlp: false", ""},
    {"apertus", "family: llama, gated_mlp: false, qk_norm: head", ""},
    {"qwen2", "family: llama, biases: qkv", ""},
    {"qwen", "family: llama, biases: qkv", ""},
    {"qwen3", "family: llama, qk_norm: head", "head_dim: 128"},
    {"qwen2_vl", "family: llama, biases: qkv", ""},
    {"qwen2_vl_text", "family: llama, biases: qkv", ""},
    {"qwen2_5_vl", "family: llama, biases: qkv", ""},
    {"qwen3_vl_text", "family: llama, qk_norm: head", "head_dim: 128"},
    {"qwen2_5_vl_text", "family: llama, biases: qkv", ""},
    {"olmo", "family: llama, norm: layer-without-parameters", ""},
    {"olmo2", "family: llama, qk_norm: width", ""},
    {"olmo3", "family: llama, qk_norm: width", ""},
    {"orion", "family: llama, norm: layer", ""},
    {"stablelm", "family: llama, norm: layer", ""},
    {"gemma", "family: llama, tie_embeddings: true", "head_dim: 256"},
    {"gemma2", "family: llama, norms: 4, full_attention_every: 2, tie_embeddings: true",
     "head_dim: 256, num_key_value_heads: 4, vocab_size: 256000, max_position_embeddings: 8192, "
     "sliding_window: 4096"},
    {"gemma3_text",
     "family: llama, norms: 4, qk_norm: head, full_attention_every: 6, tie_embeddings: true",
     "head_dim: 256, num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 262208, "
     "max_position_embeddings: 131072, sliding_window: 4096"},
    {"glm", "family: llama", "head_dim: 128", "qkv"},
    {"glm4", "family: llama, norms: 4", "head_dim: 128", "qkv"},
    {"chatglm", "family: llama, biases: qkv", ""},
    {"cohere",
     "family: llama, norm: layer-without-bias, norms: 1, parallel_residual: true, "
     "tie_embeddings: true",
     ""},
    {"cohere2",
     "family: llama, norm: layer-without-bias, norms: 1, parallel_residual: true, "
     "full_attention_every: 4, tie_embeddings: true",
     "sliding_window: 4096"},
    {"nemotron", "family: llama, gated_mlp: false, norm: layer", ""},
    {"persimmon", "family: llama, gated_mlp: false, norm: layer, biases: all", ""},
    {"starcoder2",
     "family: llama, gated_mlp: false, norm: layer, biases: all, tie_embeddings: true", ""},
    {"gpt_neox",
     "family: llama, gated_mlp: false, norm: layer, biases: all, parallel_residual: true", ""},
    {"phi",
     "family: llama, gated_mlp: false, norm: layer, norms: 1, biases: all, parallel_residual: true",
     ""},
    {"gptj",
     "family: llama, gated_mlp: false, norm: layer, norms: 1, biases: mlp, parallel_residual: true",
     ""},
    {"codegen",
     "family: llama, gated_mlp: false, norm: layer, norms: 1, biases: mlp, parallel_residual: true",
     ""},
    {"falcon", "family: llama, gated_mlp: false, norm: layer, tie_embeddings: true",
     "vocab_size: 65024, max_position_embeddings: 2048"},
    {"mpt", "family: llama, gated_mlp: false, norm: layer-without-bias, tie_embeddings: true",
     "max_seq_len: 2048"}};

constexpr const char* kStateSpace = "a state-space or hybrid model";
constexpr const char* kEncoders = "an encoder-decoder";
constexpr const char* kShared = "a model whose layers differ from each other";
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
    {"mamba", kStateSpace},
    {"mamba2", kStateSpace},
    {"falcon_mamba", kStateSpace},
    {"codestral_mamba", kStateSpace},
    {"rwkv", kStateSpace},
    {"jamba", kStateSpace},
    {"zamba", kStateSpace},
    {"zamba2", kStateSpace},
    {"bamba", kStateSpace},
    {"nemotron_h", kStateSpace},
    {"falcon_h1", kStateSpace},
    {"lfm2", kStateSpace},
    {"recurrent_gemma", kStateSpace},
    {"qwen3_next", kStateSpace},
    {"granitemoehybrid", kStateSpace},
    {"plamo2", kStateSpace},
    {"minimax", kStateSpace},
    {"minimax_m1", kStateSpace},
    {"minimax_text_01", kStateSpace},
    {"MiniMaxText01", kStateSpace},
    {"kimi_linear", kStateSpace},
    {"lfm2_moe", kStateSpace},
    {"qwen3_5", kStateSpace},
    {"qwen3_5_text", kStateSpace},
    {"qwen3_5_moe", kStateSpace},
    {"qwen3_5_moe_text", kStateSpace},
    {"rwkv5", kStateSpace},
    {"rwkv6", kStateSpace},
    {"rwkv7", kStateSpace},
    {"hymba", kStateSpace},
    {"olmo_hybrid", kStateSpace},
    {"xlstm", kStateSpace},
    {"t5", kEncoders},
    {"mt5", kEncoders},
    {"umt5", kEncoders},
    {"longt5", kEncoders},
    {"switch_transformers", kEncoders},
    {"bart", kEncoders},
    {"mbart", kEncoders},
    {"pegasus", kEncoders},
    {"marian", kEncoders},
    {"whisper", kEncoders},
    {"m2m_100", kEncoders},
    {"t5gemma", kEncoders},
    {"gemma3n", kShared},
    {"deci", kShared},
    {"nemotron-nas", kShared},
    {"openelm", kShared}};

constexpr std::pair<std::string_view, std::string_view> kSiblings[] = {
    {"mixtral", "mistral"},    {"qwen2_moe", "qwen2"},
    {"qwen3_moe", "qwen3"},    {"deepseek", "llama"},
    {"deepseek_v2", "llama"},  {"deepseek_v3", "llama"},
    {"deepseek_v32", "llama"}, {"kimi_k2", "llama"},
    {"olmoe", "olmo2"},        {"phimoe", "llama"},
    {"granitemoe", "granite"}, {"gpt_oss", "llama"},
    {"llama4_text", "llama"},  {"llama4", "llama"},
    {"glm4_moe", "llama"},     {"ernie4_5_moe", "ernie4_5"},
    {"dots1", "qwen3"},        {"hunyuan_v1_moe", "hunyuan_v1_dense"}};

template <class Rows>
std::string_view second_of(const Rows& rows, std::string_view name) {
  const auto row = std::ranges::find(rows, name, [](const auto& r) { return r.first; });
  return row == std::end(rows) ? std::string_view() : row->second;
}

}  // namespace

const ForeignType* find_foreign_type(std::string_view name) {
  const auto* type = std::ranges::find(kTypes, name, &ForeignType::name);
  return type == std::end(kTypes) ? nullptr : type;
}

std::string_view other_than_decoder(std::string_view name) { return second_of(kOthers, name); }

std::string_view dense_sibling(std::string_view name) { return second_of(kSiblings, name); }

std::vector<std::string> foreign_type_names() {
  std::vector<std::string> names;
  for (const ForeignType& type : kTypes) names.emplace_back(type.name);
  return names;
}

}  // namespace penstock
