// SPDX-License-Identifier: Apache-2.0
// How large a model's vocabulary is, by the name of its tokenizer:
// models/tokenizers/vocabularies.yaml, which has the sources. A name that leaves the size open is
// not known, so that it is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

/// Returns the rows of the embedding that goes with a tokenizer: `meta-llama/Meta-Llama-3-8B`, a
/// path with such a name in it, a class such as GPT2BPETokenizer; none where the table does not
/// tell.
std::optional<std::int64_t> vocabulary_of(std::string_view tokenizer_name);

}  // namespace penstock
