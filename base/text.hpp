// SPDX-License-Identifier: Apache-2.0
// Words of texts that people write: without blanks around them, and what means yes.
#pragma once

#include "base/suggest.hpp"

#include <string>
#include <string_view>

namespace penstock {

/// Returns the text without the blanks and the ends of lines around it.
inline std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\f\v");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n\f\v") - first + 1);
}

/// Returns whether a word means yes, as in YAML 1.1.
inline bool is_true(std::string_view word) {
  const std::string text = lower_case(std::string(word));
  return text == "true" || text == "yes" || text == "on" || text == "1";
}

}  // namespace penstock
