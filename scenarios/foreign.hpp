// SPDX-License-Identifier: Apache-2.0
// Model files of other tools: Hugging Face's config.json, Megatron's arguments as JSON.
#pragma once

#include "scenarios/section.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Turns the map of a foreign model file into one of our keys. What changes the costs is
/// understood or refused; what was left out is added to `notes`.
void adopt_foreign_model(Value& document, Diagnostics& diagnostics,
                         std::vector<std::string>& notes);

/// Returns what to say when the sequence length of a model comes from the longest that a foreign
/// file allows; "" when it does not.
std::string note_on_length(const Value& model);

}  // namespace penstock
