// SPDX-License-Identifier: Apache-2.0
// Conditions on points: `stages*width==64 && model.forward <= 3 ms`.
//
//   or    := and ('||' and)*            compare := sum (('=='|'!='|'<'|'<='|'>'|'>=') sum)?
//   and   := not ('&&' not)*            sum     := product (('+'|'-') product)*
//   not   := '!' not | compare          product := unary (('*'|'/'|'%') unary)*
//   unary := '-' unary | '(' or ')' | number [unit] | 'text' | name
//
// Names are keys of the scenario. Numbers are compared to twelve digits, so that 0.1+0.2 == 0.3. A
// division by zero is no number, and no comparison with it is true. A condition is compiled to a
// program for a stack of numbers (texts are numbered), because it is evaluated for millions of
// points.
#pragma once

#include "base/units.hpp"
#include "sweep/points.hpp"

#include <functional>
#include <optional>
#include <span>

namespace penstock {

/// What a name stands for: a value for each value of one level of the sweep (level 0 are the
/// scenarios, then the axes follow). The values are numbers unless one of them is text.
struct Variable {
  std::size_t level = 0;
  std::optional<Dimension> dimension;  ///< none where the values are texts
  std::vector<double> numbers;
  std::vector<std::string> texts;
};

/// Returns a name's variable. Throws InputError, whose message is shown with a caret at the name.
using FindVariable = std::function<Variable(const std::string& name)>;

class Condition {
 public:
  /// Compiles a condition. Throws InputError with the place of what is wrong.
  Condition(const std::string& text, const FindVariable& find);

  /// Returns whether it holds for the point that has these values: the index of one for each level.
  bool holds(std::span<const std::size_t> digits) const;

  /// Returns the last level whose value it depends on.
  std::size_t level() const { return level_; }

  enum class Operation : std::uint8_t {
    constant,
    variable,
    negate,
    invert,
    add,
    subtract,
    multiply,
    divide,
    remainder,
    equal,
    unequal,
    less,
    at_most,
    greater,
    at_least,
    both,
    either,
  };
  struct Step {
    Operation operation;
    double number = 0;         ///< the value of a constant
    std::size_t variable = 0;  ///< the index of a variable's column
  };
  struct Column {
    std::size_t level;
    std::vector<double> values;
  };

 private:
  std::vector<Step> steps_;
  std::vector<Column> columns_;
  std::size_t level_ = 0;
};

}  // namespace penstock
