// SPDX-License-Identifier: Apache-2.0
// How deep JSON may nest: whoever walks through a value calls itself for each list and object that
// stands in another, so a text of a kilobyte, compressed, would take all of the stack.
#pragma once

#include "base/error.hpp"
#include "base/json.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

inline constexpr std::size_t kDeepestJson = 128;  ///< lists and objects within one another

/// Throws JsonError where a text nests more. `Json::parse` does; for who reads with the library
/// itself.
void require_shallow_json(std::string_view text);

/// Says what is wrong with a text, with the line and column of the error's byte.
InputError not_json(std::string_view text, const JsonError& error, const std::string& origin);

}  // namespace penstock
