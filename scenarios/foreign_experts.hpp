// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts in configurations of other tools: what they say of their experts, and in
// which layers.
#pragma once

#include "scenarios/document.hpp"

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock {

/// Returns a table of what configurations of Hugging Face say (scenarios/import/huggingface.yaml).
const Value& hf_table(const char* name);

/// Returns the row of its table `beyond` that has this key, or null.
const Value* beyond_us(std::string_view key);

/// Returns the entry of a key that a document gives, or null.
const Value::Entry* given_in(const Value& document, std::string_view key);

/// Returns whether a value is `true` or a number above 0.
bool is_positive(const Value& value);

/// Returns the number that a document gives under the first of these names that is there, or 0.
double first_of(const Value& document, std::initializer_list<const char*> keys);

/// Returns whether it has experts; one is an MLP as any other.
bool has_experts(const Value& document);

/// Returns whether it says that there are no experts, or one.
bool says_dense(const Value& document);

/// The layers of a model that have experts: the first behind so many, and every n-th after it.
struct ExpertLayers {
  int first_dense = 0, every = 1;

  bool operator==(const ExpertLayers&) const = default;
};

/// Returns those of a model whose layers have experts where `has` says so; none where they follow
/// no such rule, or there are none.
std::optional<ExpertLayers> expert_layers(const std::vector<bool>& has);

/// Returns which layers have experts by Megatron-LM's --moe-layer-freq: every so many-th from the
/// first on ("2"), or a list in Python's words ("[0]*3+[1]*58"); none where it is neither.
std::optional<std::vector<bool>> layer_pattern(std::string_view text, int layers);

/// Returns whether each layer has experts, from all that a document may say of it.
std::vector<bool> layers_with_experts(const Value& document, int layers);

/// Returns which of the keys that a type of model needs are not said, where that makes it another
/// model: the number of experts is among them, or the rank of latent attention.
std::vector<std::string> unsaid_needs(const Value& document, const Value& needs);

}  // namespace penstock
