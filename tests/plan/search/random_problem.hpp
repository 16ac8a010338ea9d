// SPDX-License-Identifier: Apache-2.0
// Small problems for the search, drawn at random.
#pragma once

#include "plan/search/search.hpp"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace penstock {

inline int between(std::mt19937_64& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

template <class T>
T one_of(std::mt19937_64& random, const std::vector<T>& from) {
  return from[static_cast<std::size_t>(between(random, 0, static_cast<int>(from.size()) - 1))];
}

struct SmallProblem {
  std::string text;
  std::int64_t batch;
  bool asynchronous;
  Objective objective;
};

/// Of up to 12 layers.
inline std::string random_model(std::mt19937_64& random) {
  const int heads = one_of<int>(random, {2, 4});
  return fmt::format(
      "model: {{family: {}, num_layers: {}, hidden_size: {}, num_attention_heads: {}, vocab_size: "
      "{}, seq_length: {}, precision: mixed-fp16, tie_embeddings: {}}}\n",
      one_of<std::string>(random, {"gpt", "llama"}), between(random, 1, 12),
      128 * between(random, 1, 3), heads, between(random, 1, 40) * 100, 64 * between(random, 1, 4),
      between(random, 0, 1) == 1);
}

/// Of up to 12 layers, some of which have experts.
inline std::string random_mixture(std::mt19937_64& random) {
  return fmt::format(
      "model: {{family: llama, num_layers: {}, hidden_size: {}, num_attention_heads: 4, "
      "vocab_size: "
      "{}, seq_length: {}, ffn_hidden_size: {}, precision: mixed-fp16, num_experts: 4, "
      "experts_per_token: {}, expert_ffn_hidden_size: {}, first_dense_layers: {}, "
      "expert_layer_every: {}}}\n",
      between(random, 3, 12), 128 * between(random, 1, 3), between(random, 1, 40) * 100,
      64 * between(random, 1, 4), 128 * between(random, 1, 12), between(random, 1, 2),
      128 * between(random, 1, 8), between(random, 0, 2), between(random, 1, 2));
}

/// Memory from too little for anything to plenty.
inline std::string random_device(std::mt19937_64& random) {
  return fmt::format(
      "device: {{name: d{}, memory: {:.0f} MiB, peak: {{fp16: {} TFLOP/s}}, memory_bandwidth: {} "
      "GB/s, efficiency: [[256, {}%], [512, 100%]]}}",
      between(random, 1, 1'000'000), std::exp2(between(random, 0, 40) / 10.0) * 40,
      between(random, 1, 40), between(random, 1, 300), 20 * between(random, 1, 5));
}

inline SmallProblem with_batch(std::string text, std::mt19937_64& random) {
  SmallProblem out;
  out.text =
      std::move(text) +
      fmt::format("transfers: {}\n",
                  one_of<std::string>(random, {"overlapped", "overlapped", "free", "blocking"}));
  const std::string stack = one_of<std::string>(random, {"nanotron", "megatron"});
  if (out.text.find("measured") == std::string::npos)
    out.text += fmt::format("stack: {}\n", between(random, 0, 2) == 0 ? stack : "none");
  out.batch = one_of<std::int64_t>(random, {1, 2, 4, 6, 8});
  if (out.text.find("measured") == std::string::npos && out.batch % 4 == 2)
    out.text += "pipeline: {transfers_divided: true}\n";
  out.asynchronous = between(random, 0, 3) == 0;
  out.objective = static_cast<Objective>(between(random, 0, 3));
  return out;
}

inline std::string random_link(std::mt19937_64& random) {
  return fmt::format("latency: {} us, bandwidth: {} GB/s", between(random, 0, 50),
                     between(random, 1, 40));
}

/// Up to 8 devices, every two with a link of their own.
inline SmallProblem random_problem(std::mt19937_64& random, const std::string& model) {
  return with_batch(
      model + fmt::format("cluster: {{devices: {}, {}, link: {{{}}}}}\n", between(random, 1, 8),
                          random_device(random), random_link(random)),
      random);
}

/// On nodes of GPUs, of one kind or two, with shared links or without.
inline std::string random_nodes(std::mt19937_64& random) {
  int devices = 0;
  const auto node = [&] {
    devices = between(random, 1, 4);
    return fmt::format("{}, devices_per_node: {}, intra: {{{}, attachment: {}}}",
                       random_device(random), devices, random_link(random),
                       one_of<std::string>(random, {"pairs", "switch"}));
  };
  if (between(random, 0, 2) > 0) {
    const int nodes = between(random, 1, 3);
    const std::string each = node();
    return fmt::format("cluster: {{nodes: {}, {}, inter: {{{}, nics: {}}}}}\n", nodes, each,
                       random_link(random), between(random, 0, 2) == 0 ? devices : 1);
  }
  return fmt::format("cluster: {{inter: {{{}}}, groups: [{{nodes: 1, {}}}, {{nodes: {}, {}}}]}}\n",
                     random_link(random), node(), between(random, 1, 2), node());
}

/// A model whose stages were measured with two microbatch sizes, alone and under load. Times are as
/// noisy as they like; what is made again is not kept.
inline std::string random_profile_rows(std::mt19937_64& random) {
  const auto us = [&](int low, int high) { return between(random, low, high); };
  std::string rows;
  for (const char* recompute : {"none", "full"})
    for (const int load : {1, 4})
      for (const int size : {1, 4}) {
        const auto kept = [&](int half) {
          return std::string_view(recompute) == "none" ? us(half, 2 * half) : us(0, half);
        };
        rows += fmt::format(
            "    - {{microbatch_size: {}, recompute: {}, load: {}, layer: {{forward: {} us, "
            "backward: {} us, activation: {} KiB}}, head: {{forward: {} us, backward: {} us, "
            "activation: {} KiB}}, overhead: {{forward: {} us, backward: {} us, activation: {} "
            "KiB}}}}\n",
            size, recompute, load, size * us(50, 90), size * us(90, 160), size * kept(200),
            size * us(0, 60), size * us(0, 90), size * kept(150), us(0, 40), us(0, 40), kept(100));
      }
  return fmt::format(
      "model:\n  family: gpt\n  num_layers: {}\n  hidden_size: 128\n  num_attention_heads: 2\n"
      "  vocab_size: 1000\n  seq_length: 64\n  precision: mixed-fp16\n  measured:\n{}"
      "  measured_step:\n    - {{overhead: {} us}}\n",
      between(random, 1, 10), rows, us(0, 50));
}

}  // namespace penstock
