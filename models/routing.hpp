// SPDX-License-Identifier: Apache-2.0
// Which share of a microbatch's tokens goes to which expert, and what that makes of the GPUs that
// divide them: the one that gets most decides how long a layer takes, as all wait for it.
//
// The workloads are those of Megatron-LM's benchmark of token imbalance (pull request 7488: W0 to
// W7, without W4, whose sources are ragged: all GPUs have as many tokens here), and Zipf's law. A
// step of theirs is a microbatch. With E experts, k for each token, p_e the share of all choices
// that expert e gets, at most 1/k as a token's experts differ, on n GPUs with E/n experts each:
//   balanced     p_e = 1/E
//   zipf         p_e ~ 1/rank^exponent, ranks drawn for each layer
//   hot-experts  hot_experts of them, drawn for each layer, get hot_share together (W1)
//   hot-rank     the same of the first experts, which are on one GPU (W2)
//   spread       the same of experts evenly over the GPUs (W3)
//   idle         half of the experts, behind the others, get nothing (W5)
//   rotating     hot-rank, whose GPU is the next one every `period` microbatches (W6)
//   burst        balanced, and hot-experts in every `period`-th microbatch (W7)
//   histogram    as listed
// With `drift` the logarithm of each share takes a normal step from microbatch to microbatch. Then
//   capacity     no expert takes more than capacity_factor / E of the choices, the others are
//                dropped; padded: each takes as many (Megatron-LM's --moe-expert-capacity-factor,
//                --moe-pad-expert-input-to-capacity)
//   redundant    so many of the experts with most tokens have a second place, on the GPU with the
//                least to do that has room, and share their tokens with it evenly, or less, as far
//                as that evens out the two (EPLB's and ECHO's copies)
#pragma once

#include "models/transformer.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock {

struct RoutingSpec {
  enum class Load : std::uint8_t {
    balanced,
    zipf,
    hot_experts,
    hot_rank,
    spread,
    idle,
    rotating,
    burst,
    histogram
  };
  Load load = Load::balanced;
  double exponent = 1.2;   ///< zipf
  double hot_share = 0.5;  ///< of all choices, which hot experts get together
  int hot_experts = 0;     ///< 0: those of one GPU
  int period = 0;          ///< microbatches; 0: the benchmark's, 3 of rotating, 4 of burst
  double drift = 0;        ///< standard deviation of a step
  std::vector<double> histogram{};
  std::uint64_t seed = 1;
  double capacity_factor = 0;  ///< 0: no token is dropped
  bool padded = false;
  int redundant = 0;  ///< experts with a second place

  /// Does it give another answer with another seed?
  bool drawn() const {
    return drift > 0 || load == Load::zipf || load == Load::hot_experts || load == Load::rotating ||
           load == Load::burst;
  }
  /// Room for further experts that each of so many GPUs needs.
  int copies(int gpus) const { return (redundant + gpus - 1) / gpus; }
};
inline constexpr std::string_view kRoutingLoads =
    "balanced|zipf|hot-experts|hot-rank|spread|idle|rotating|burst|histogram";

/// What the GPUs that divide a layer's experts get of a microbatch.
struct RoutedLoad {
  std::vector<double> of_gpu;  ///< rows of its experts over the mean of the tokens' choices
  double most = 1;             ///< of these
  double of_node = 1;          ///< the mean of the node that gets most
  double skew = 0;             ///< how unlike the experts' rows are on the GPU that gets most
  double dropped = 0;          ///< share of the choices
};

/// Shares, which add up to 1, with no more than 1/k for any of them: what is beyond goes to the
/// others, in proportion. Precondition: there are at least k.
std::vector<double> within_choices(std::vector<double> shares, int k);

/// What the GPUs get whose experts have these shares. `node`: GPUs of a node.
RoutedLoad routed_load(const RoutingSpec& spec, std::vector<double> shares, int gpus, int node);

/// Returns the loads of one layer, by microbatch; `sample`: which of the draws.
std::vector<RoutedLoad> routed_loads(const RoutingSpec& spec, const Experts& experts, int gpus,
                                     int node, int layer, std::uint32_t sample,
                                     std::uint32_t microbatches);

}  // namespace penstock
