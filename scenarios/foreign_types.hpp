// SPDX-License-Identifier: Apache-2.0
// What a `model_type` of Hugging Face says that its configuration need not: the facts of its layers
// and the defaults of its class, as keys of ours. Read from the classes' documentation and code in
// transformers (github.com/huggingface/transformers, src/transformers/models/<type>) and, of types
// that it does not have, from the code beside the published weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ForeignType {
  std::string_view name;
  std::string_view facts;  ///< "key: value, key: value"; the first is the family
  std::string_view sizes;  ///< defaults of keys that its files may leave out, as they write them
  std::string_view bias = "attention";  ///< what its attention_bias gives biases
};

/// Null where it is not known.
const ForeignType* find_foreign_type(std::string_view name);

/// What a type is that has no stack of alike decoder layers ("a state-space model"); empty where it
/// is not known to be such.
std::string_view other_than_decoder(std::string_view name);

/// The dense type whose layers those of a mixture of experts resemble; empty where none is known.
std::string_view dense_sibling(std::string_view name);

std::vector<std::string> foreign_type_names();

}  // namespace penstock
