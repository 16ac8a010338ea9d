// SPDX-License-Identifier: Apache-2.0
// Which activations a stage does not keep but computes again in the backward, in Megatron-LM's
// words: a granularity, and for `full` a method with a number of layers N.
//
//   full, uniform   groups of N layers: of each the input is kept, and all of the group's
//                   activations are made again before its backward; N = 1: layer by layer
//   full, block     the first N layers of a stage one by one; the others keep their activations
//
// A stage with fewer than N layers recomputes all of them (block), or is one group (uniform).
#pragma once

#include "program/per_stage.hpp"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class Recompute : std::uint8_t { none, selective, full };
inline constexpr std::string_view kRecomputeNames[] = {"none", "selective", "full"};

enum class RecomputeMethod : std::uint8_t { block, uniform };
inline constexpr std::string_view kRecomputeMethodNames[] = {"block", "uniform"};

/// Parts of a layer that selective recomputation makes again, as Megatron-LM's --recompute-modules
/// names them.
enum class LayerPart : std::uint8_t {
  core_attn,  ///< attention's products and softmax, from queries, keys and values
  mlp,        ///< the MLP, from its norm's output
  layernorm,  ///< the norms before attention and MLP, from what they read
  moe_act,  ///< the activation function of the MLP or of experts, from their first matrix's output
  moe,      ///< router, experts and shared experts, from their norm's output
  shared_experts,  ///< the shared experts alone
  mla_up_proj,     ///< latent attention's queries, keys and values, from their latents
  /// A layer's second, fourth, sixth product, and all but products and attention (torchtitan's
  /// `selective_ac_option = "op"`, torchtitan/distributed/activation_checkpoint.py); outputs of the
  /// other products and of attention are kept.
  every_second_product,
};
inline constexpr std::string_view kLayerPartNames[] = {
    "core_attn",      "mlp",         "layernorm",           "moe_act", "moe",
    "shared_experts", "mla_up_proj", "every_second_product"};
/// The first of them are Megatron-LM's.
inline constexpr std::size_t kMegatronParts = 7;

/// A set of them.
struct LayerParts {
  std::uint8_t bits = 0;

  constexpr LayerParts() = default;
  constexpr LayerParts(LayerPart part) : bits(static_cast<std::uint8_t>(1U << unsigned(part))) {}

  constexpr bool contains(LayerPart part) const { return overlaps(part); }
  constexpr bool overlaps(LayerParts other) const { return (bits & other.bits) != 0; }
  friend constexpr LayerParts operator|(LayerParts a, LayerParts b) {
    a.bits = static_cast<std::uint8_t>(a.bits | b.bits);
    return a;
  }
  friend constexpr auto operator<=>(LayerParts, LayerParts) = default;
};

/// The names of those in the set.
std::vector<std::string_view> names_of(LayerParts parts);

/// What becomes of a stage's activations between F and the backward. Ordered from the least that is
/// recomputed to the most.
struct Recomputation {
  Recompute granularity = Recompute::none;
  RecomputeMethod method = RecomputeMethod::uniform;
  int layers = 1;
  LayerParts parts = LayerPart::core_attn;  ///< that selective recomputation makes again
  /// Share of what layers keep that waits in the memory of the host (Wan et al., "PipeOffload",
  /// ICML'25; Yuan et al., USENIX ATC'24). It is copied out under F and in under B or I, a layer
  /// under the next one; both ends of a copy are buffers.
  double offload = 0;

  Recomputation() = default;
  Recomputation(Recompute all) : granularity(all) {}
  /// Of no layer: the same as `none`.
  static Recomputation block(int layers);
  /// In groups of one: the same as `full`.
  static Recomputation uniform(int layers);

  bool in_full() const { return granularity == Recompute::full; }
  /// Does one of the three granularities say it all?
  bool plain() const { return *this == Recomputation(granularity); }
  /// How many of a stage's layers are recomputed in full: its first ones.
  int recomputed(int of_layers) const {
    if (!in_full()) return 0;
    return method == RecomputeMethod::block ? std::min(layers, of_layers) : of_layers;
  }
  /// Layers of a group: made again together, only the input of the first one kept.
  int group(int of_layers) const {
    return method == RecomputeMethod::block ? 1 : std::clamp(of_layers, 1, layers);
  }

  friend auto operator<=>(const Recomputation&, const Recomputation&) = default;
};

/// "none", "selective", "selective mlp+layernorm", "full", "block 3", "uniform 2"; and back: none
/// where it is no such text.
std::string to_string(const Recomputation& recomputation);
std::optional<Recomputation> recomputation_named(std::string_view text);

/// "full", "none, offload 50 %"; where stages differ "[block 3, none]".
std::string recompute_text(const PerStage<Recomputation>& recompute);

}  // namespace penstock
