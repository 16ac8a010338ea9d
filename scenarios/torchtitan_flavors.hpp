// SPDX-License-Identifier: Apache-2.0
// The models that torchtitan calls by a name and a flavor, from its registries
// (github.com/pytorch/torchtitan, torchtitan/models/{llama3,llama4,qwen3,deepseek_v3}/__init__.py;
// llama2 as it was in torchtitan/models/llama).
#pragma once

#include <string>
#include <string_view>

namespace penstock {

struct TitanFlavor {
  std::string_view name, flavor;
  std::string_view keys;          ///< of a model, but for its length and precision
  std::string_view missing = {};  ///< what of a mixture of experts is left out
};

/// The flavor of these names, in any case and with any kernel of attention ("8B_flex"); null where
/// it is not known. `flavor` may repeat the name, as `--config llama3_8b` does.
const TitanFlavor* find_titan_flavor(std::string_view name, std::string_view flavor);

/// "llama3 8B, llama3 70B ...".
std::string titan_flavor_names();

}  // namespace penstock
