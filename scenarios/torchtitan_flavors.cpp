// SPDX-License-Identifier: Apache-2.0
#include "scenarios/torchtitan_flavors.hpp"

#include "scenarios/scenario.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace penstock {
namespace {

constexpr std::string_view kLatentExperts =
    "multi-latent attention, the other experts' weights, routing and all-to-all";

// Of the mixtures, ffn_hidden_size is that of the experts a token visits, the shared ones included:
// of Llama 4 one routed and the shared one of 8192 each (compute_moe_hidden_dim), and where every
// second layer is dense (17bx128e) those are 16384 wide, too; of DeepSeek 6 + 2 of 1408 (16B) or
// 1536 (236B), and 8 + 1 of 2048 (671B).
constexpr TitanFlavor kFlavors[] = {
    {"llama3", "debugmodel",
     "num_layers: 6, hidden_size: 256, num_attention_heads: 16, ffn_hidden_size: 768, "
     "vocab_size: 2048"},
    {"llama3", "8B", "base: llama-3.1-8b"},
    {"llama3", "70B", "base: llama-3.1-70b"},
    {"llama3", "405B", "base: llama-3.1-405b"},
    {"llama2", "7B",
     "num_layers: 32, hidden_size: 4096, num_attention_heads: 32, ffn_hidden_size: 11008, "
     "vocab_size: 32000"},
    {"llama2", "13B",
     "num_layers: 40, hidden_size: 5120, num_attention_heads: 40, ffn_hidden_size: 13824, "
     "vocab_size: 32000"},
    {"llama2", "70B",
     "num_layers: 80, hidden_size: 8192, num_attention_heads: 64, num_query_groups: 8, "
     "ffn_hidden_size: 28672, vocab_size: 32000"},
    {"qwen3", "debugmodel",
     "num_layers: 8, hidden_size: 256, num_attention_heads: 16, num_query_groups: 8, "
     "head_dim: 128, ffn_hidden_size: 3072, vocab_size: 2048, qk_norm: head, "
     "tie_embeddings: true"},
    {"qwen3", "0.6B", "base: qwen3-0.6b"},
    {"qwen3", "1.7B", "base: qwen3-1.7b"},
    {"qwen3", "4B", "base: qwen3-4b"},
    {"qwen3", "8B", "base: qwen3-8b"},
    {"qwen3", "14B", "base: qwen3-14b"},
    {"qwen3", "32B", "base: qwen3-32b"},
    {"qwen3", "30B-A3B",
     "num_layers: 48, hidden_size: 2048, num_attention_heads: 32, num_query_groups: 4, "
     "head_dim: 128, ffn_hidden_size: 6144, vocab_size: 151936, qk_norm: head",
     kWithoutExperts},
    {"qwen3", "235B-A22B",
     "num_layers: 94, hidden_size: 4096, num_attention_heads: 64, num_query_groups: 4, "
     "head_dim: 128, ffn_hidden_size: 12288, vocab_size: 151936, qk_norm: head",
     kWithoutExperts},
    {"llama4", "17bx16e",
     "num_layers: 48, hidden_size: 5120, num_attention_heads: 40, num_query_groups: 8, "
     "ffn_hidden_size: 16384, vocab_size: 202048",
     kWithoutExperts},
    {"llama4", "17bx128e",
     "num_layers: 48, hidden_size: 5120, num_attention_heads: 40, num_query_groups: 8, "
     "ffn_hidden_size: 16384, vocab_size: 202048",
     kWithoutExperts},
    {"deepseek_v3", "16B",
     "num_layers: 27, hidden_size: 2048, num_attention_heads: 16, ffn_hidden_size: 11264, "
     "vocab_size: 102400",
     kLatentExperts},
    {"deepseek_v3", "236B",
     "num_layers: 60, hidden_size: 5120, num_attention_heads: 128, ffn_hidden_size: 12288, "
     "vocab_size: 102400",
     kLatentExperts},
    {"deepseek_v3", "671B",
     "num_layers: 61, hidden_size: 7168, num_attention_heads: 128, ffn_hidden_size: 18432, "
     "vocab_size: 129280",
     kLatentExperts}};

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

const TitanFlavor* find_titan_flavor(std::string_view name, std::string_view flavor) {
  std::string wanted = plain(flavor);
  if (wanted.starts_with(plain(name))) wanted.erase(0, plain(name).size());
  for (const std::string_view kernel : {"attn", "flex", "varlen", "sdpa", "fusedqkv"})
    if (wanted.ends_with(kernel)) wanted.erase(wanted.rfind(kernel));
  const auto* found = std::ranges::find_if(kFlavors, [&](const TitanFlavor& f) {
    return plain(f.name) == plain(name) && plain(f.flavor) == wanted;
  });
  return found == std::end(kFlavors) ? nullptr : found;
}

std::string titan_flavor_names() {
  std::vector<std::string> names;
  for (const TitanFlavor& f : kFlavors) names.push_back(fmt::format("{} {}", f.name, f.flavor));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace penstock
