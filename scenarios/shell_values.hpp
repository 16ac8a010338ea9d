// SPDX-License-Identifier: Apache-2.0
// What expressions of the shell come to: arithmetic, patterns, and whether something holds. Of each
// a part is evaluated that launch scripts use; the rest is not known.
#pragma once

#include "scenarios/shell_text.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

bool is_blank(char c);
bool is_name(char c);  ///< letter, digit or '_'
bool is_variable_name(std::string_view text);

enum class Truth : std::uint8_t { no, yes, unknown };

Truth negated(Truth truth);
Truth truth_of(bool value);

/// Whether something holds, and which variables would tell it where that is not known.
struct ShellVerdict {
  Truth truth = Truth::no;
  ShellNames names{};
};

ShellVerdict both_hold(const ShellVerdict& a, const ShellVerdict& b);
ShellVerdict either_holds(const ShellVerdict& a, const ShellVerdict& b);

/// Returns whether the text is what a pattern of `*`, `?` and plain characters says, in which a
/// backslash makes the next character a plain one. None where the pattern has anything else.
std::optional<bool> matches_pattern(std::string_view text, std::string_view pattern);

/// Returns the text as the pattern that it is: what is quoted in it stands for itself.
std::string pattern_of(const ShellText& text);

struct ShellNumber {
  std::optional<std::int64_t> value;
  ShellNames names{};  ///< where there is none
};

/// Returns whether arithmetic assigns something, such as `A += 2` and `A++`.
bool assigns_in_arithmetic(std::string_view expression);

/// Returns the value as in $((...)), of 64 bits; none where a name's value is not known, and where
/// the expression assigns, overflows, divides by 0 or has what is not evaluated (numbers of other
/// bases than 10, items of arrays, the comma). `read` returns a variable's value.
ShellNumber arithmetic_value(std::string_view expression,
                             const std::function<ShellText(const std::string&)>& read);

/// Returns what `test` says of its words.
ShellVerdict truth_of_test(std::span<const ShellText> words);
bool is_unary_test(const std::string& word);
bool is_binary_test(const std::string& word);
/// Returns what one comparison says: of strings, which are no patterns, or of whole numbers.
ShellVerdict compared_texts(const ShellText& a, const std::string& sign, const ShellText& b);
ShellVerdict tested_text(const std::string& sign, const ShellText& a);

}  // namespace penstock
