// What expressions of the shell say where all in them is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

bool is_blank(char c);
bool is_name(char c);  ///< letter, digit or '_'

/// Of whole numbers, + - * / % and parentheses; none where it is anything else.
std::optional<std::int64_t> arithmetic_value(std::string_view text);

enum class Truth : std::uint8_t { no, yes, unknown };

Truth negated(Truth truth);

/// Of the words between `[` and `]`, their variables replaced; those that could not be still have
/// their '$', and leave it unknown.
Truth truth_of_test(const std::vector<std::string>& words);

/// The names of variables in a value that could not be told: "$NAME", "$((NAME * 8))".
std::vector<std::string> variables_in(std::string_view value);

}  // namespace penstock
