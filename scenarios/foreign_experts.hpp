// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts in configurations of other tools: what they say of their experts, and the
// dense stand-in that is offered where no other model is.
#pragma once

#include "scenarios/document.hpp"

#include <initializer_list>
#include <string_view>

namespace penstock {

/// Returns a table of what configurations of Hugging Face say (scenarios/import/huggingface.yaml).
const Value& hf_table(const char* name);

/// Returns the row of its table `beyond` that has this key, or null.
const Value* beyond_us(std::string_view key);

/// Returns whether a value is `true` or a number above 0.
bool is_positive(const Value& value);

/// Returns the number that a document gives under the first of these names that is there, or 0.
double first_of(const Value& document, std::initializer_list<const char*> keys);

/// Returns the entry that says how many experts there are, or null; one expert is an MLP as any
/// other.
const Value::Entry* experts_of(const Value& document);

/// Returns whether it says that there are no experts, or one.
bool says_dense(const Value& document);

/// Returns the width of the hidden layers of the experts that a token visits, all together, or 0
/// where it is not said.
double width_of_experts(const Value& document);

}  // namespace penstock
