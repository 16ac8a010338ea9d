// SPDX-License-Identifier: Apache-2.0
// Ways to share the work of a model that no cost model here knows: refused by name, never ignored.
#pragma once

#include <string_view>

namespace penstock {

struct NotModelled {
  std::string_view key;      ///< as Megatron, DeepSpeed or Hugging Face call it, or a user would
  double from;               ///< the value from which it means something; true counts as 1
  std::string_view instead;  ///< what it is, and what is modelled
};

/// The row of a key, `--context-parallel-size` as well as context_parallel_size; null for others.
const NotModelled* find_not_modelled(std::string_view key);

}  // namespace penstock
