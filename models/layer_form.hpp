// SPDX-License-Identifier: Apache-2.0
// What a transformer's layer is made of, beyond its sizes. A family is a preset of these facts,
// each of which a model can have otherwise:
//
//   gpt     layer norm, biases everywhere, an MLP of two matrices, learned positions, dropout
//   bert    the same, and every token attends to all
//   llama   RMS norm, no biases, a gated MLP of three matrices, rotary positions, no dropout
//
// Parameters, FLOPs and bytes of a layer follow from them in layer/module.cpp alone.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

enum class Family : std::uint8_t { gpt, bert, llama };
inline constexpr std::string_view kFamilyNames[] = {"gpt", "bert", "llama"};

enum class Norm : std::uint8_t {
  layer,     ///< weight and bias
  rms,       ///< weight
  unbiased,  ///< layer norm without its bias: costs as rms
  bare,      ///< layer norm without parameters
};
inline constexpr std::string_view kNormNames[] = {"layer", "rms", "layer-without-bias",
                                                  "layer-without-parameters"};

/// A norm of queries and of keys before their product.
enum class QueryKeyNorm : std::uint8_t {
  none,
  head,   ///< one weight per element of a head, the same for all heads (Qwen3, Gemma 3)
  width,  ///< one per element of all heads (OLMo-2)
};
inline constexpr std::string_view kQueryKeyNormNames[] = {"none", "head", "width"};

/// Which linear layers have biases.
enum class Biases : std::uint8_t { none, qkv, attention, mlp, all };
inline constexpr std::string_view kBiasesNames[] = {"none", "qkv", "attention", "mlp", "all"};

/// Only learned ones are parameters.
enum class Positions : std::uint8_t { learned, rotary, alibi, none };
inline constexpr std::string_view kPositionsNames[] = {"learned", "rotary", "alibi", "none"};

struct LayerForm {
  bool causal = true;
  bool gated_mlp = false;  ///< three matrices (SwiGLU, GeGLU) instead of two
  Norm norm = Norm::layer;
  int norms = 2;  ///< of a layer: 1 where attention and MLP share one, 4 before and after both
  QueryKeyNorm qk_norm = QueryKeyNorm::none;
  Biases biases = Biases::all;
  Positions positions = Positions::learned;
  bool parallel_residual = false;  ///< attention and MLP both read the layer's input
  bool dropout = true;
  bool sinks = false;  ///< a learned number of each head beside the keys' scores (gpt-oss)

  bool operator==(const LayerForm&) const = default;

  int mlp_matrices() const { return gated_mlp ? 3 : 2; }
  int norm_vectors() const { return norm == Norm::layer ? 2 : norm == Norm::bare ? 0 : 1; }
  bool has_qkv_biases() const { return biases != Biases::none && biases != Biases::mlp; }
  bool has_projection_bias() const { return biases == Biases::attention || biases == Biases::all; }
  bool has_mlp_biases() const { return biases == Biases::mlp || biases == Biases::all; }
};

constexpr LayerForm form_of(Family family) {
  if (family == Family::llama)
    return {.gated_mlp = true,
            .norm = Norm::rms,
            .biases = Biases::none,
            .positions = Positions::rotary,
            .dropout = false};
  return {.causal = family == Family::gpt};
}

}  // namespace penstock
