// What expressions of the shell come to: arithmetic, patterns, and whether something holds.
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

/// Is the text what a pattern of * ? [...] says, in which a backslash makes the next character a
/// plain one? None where that cannot be told: of extended patterns, and of ranges of letters, which
/// depend on the language.
std::optional<bool> matches_pattern(std::string_view text, std::string_view pattern);

struct ShellNumber {
  std::optional<std::int64_t> value;
  ShellNames names{};  ///< where there is none
};

/// The variables that arithmetic reads and writes. An `index` is of an array.
class ShellStore {
 public:
  virtual ~ShellStore() = default;
  virtual ShellText read_variable(const std::string& name,
                                  const std::optional<std::string>& index) = 0;
  virtual void write_variable(const std::string& name, const std::optional<std::string>& index,
                              const ShellNumber& number) = 0;
  /// What is written as \x01 NUMBER \x02: a piece that is not known.
  virtual const ShellPiece& unknown_piece(std::size_t number) const = 0;

  std::size_t evaluated = 0;  ///< texts so far, long ones as several
  int open = 0;               ///< levels of arithmetic within one another, through variables too
};

/// As in $((...)): 64 bits, all operators. Throws ArithmeticFailure where bash fails.
ShellNumber arithmetic_value(const std::string& expression, ShellStore& store);
struct ArithmeticFailure {
  std::string message;
};

/// What `test` says of its words. `is_set`: of a variable's name.
ShellVerdict truth_of_test(std::span<const ShellText> words,
                           const std::function<Truth(const std::string&)>& is_set);
bool is_unary_test(const std::string& word);
bool is_binary_test(const std::string& word);
/// One comparison of strings or a test of one, without patterns and arithmetic.
ShellVerdict compared_texts(const ShellText& a, const std::string& sign, const ShellText& b);
ShellVerdict tested_text(const std::string& sign, const ShellText& a,
                         const std::function<Truth(const std::string&)>& is_set);

}  // namespace penstock
