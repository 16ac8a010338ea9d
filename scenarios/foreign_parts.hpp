// SPDX-License-Identifier: Apache-2.0
// Models within models: what a configuration has beside its language model (an audio encoder, a
// Q-Former), each in a map of its own that ends in _config.
#pragma once

#include "scenarios/document.hpp"

#include <cstdint>
#include <string>

namespace penstock {

/// Returns the parameters of SigLIP's encoder and Gemma 3's projection of what it sees, and of
/// Llama 4's (transformers' siglip, gemma3 and llama4); 0 of others.
std::int64_t vision_parameters(const Value& vision, double text_width);

/// Returns whether an entry is a map that holds a part other than the language model and the
/// encoder of images.
bool is_part(const Value::Entry& entry);

/// Returns what such maps hold, as model.missing says it. `all`: those without sizes, too, as they
/// stand beside a language model in a map of its own.
std::string parts_beside(const Value& document, bool all);

/// Throws InputError that names the map in which a file has its language model, where that is not
/// text_config and the file has no sizes itself.
void refuse_inner_model(const Value& document);

}  // namespace penstock
