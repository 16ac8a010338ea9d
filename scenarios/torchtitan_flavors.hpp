// SPDX-License-Identifier: Apache-2.0
// The models that torchtitan calls by a name and a flavor: models/torchtitan/flavors.yaml, which
// has the sources.
#pragma once

#include "models/transformer.hpp"
#include "scenarios/job_division.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {

/// Returns the model of these names, in any case and with any kernel of attention ("8B_flex"); none
/// where it is not known. `flavor` may repeat the name, as `--config llama3_8b` does.
std::optional<NamedModel> find_titan_flavor(std::string_view name, std::string_view flavor);

/// Returns the name and the flavor of a dense model with these sizes; none where there is none.
std::optional<std::pair<std::string, std::string>> titan_flavor_of(const TransformerSpec& model);

/// Returns "llama3 8B, llama3 70B ...".
std::string titan_flavor_names();

}  // namespace penstock
