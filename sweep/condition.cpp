// SPDX-License-Identifier: Apache-2.0
#include "sweep/condition.hpp"

#include "base/error.hpp"
#include "sweep/decimal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

namespace penstock {
namespace {

using Operation = Condition::Operation;

constexpr std::size_t kDeepest = 64;
constexpr Dimension kDimensions[] = {Dimension::time, Dimension::bytes, Dimension::bandwidth,
                                     Dimension::flops_rate};

struct Token {
  enum class Kind : std::uint8_t { end, number, text, name, symbol };
  Kind kind = Kind::end;
  std::string text;
  double number = 0;
  Dimension dimension = Dimension::number;
  std::size_t from = 0, length = 1;
};

[[noreturn]] void fail(const std::string& source, const Token& at, const std::string& message) {
  const auto characters =
      std::count_if(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at.from),
                    [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  throw InputError({Diagnostic{Position{"--where", 1, static_cast<int>(characters) + 1}, message,
                               source, static_cast<int>(at.length)}});
}

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) {}

  Token next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    Token token;
    token.from = at_;
    if (at_ == text_.size()) return token;
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') {
      read_number(token);
    } else if (begins_name(c)) {
      token.kind = Token::Kind::name;
      while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    } else if (c == '\'' || c == '"') {
      return text_token(token, c);
    } else {
      read_symbol(token);
    }
    token.length = at_ - token.from;
    token.text = text_.substr(token.from, token.length);
    return token;
  }

 private:
  /// The letters behind a number: its unit, with "/s" where that makes one.
  std::size_t unit_end(std::size_t from) const {
    std::size_t end = from;
    while (end < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[end])) != 0 ||
                                  static_cast<unsigned char>(text_[end]) >= 0x80))
      ++end;
    const std::string_view word = std::string_view(text_).substr(from, end - from);
    if (word == "and" || word == "or") return from;  // what other languages write for && and ||
    const bool rate = end > from && text_.compare(end, 2, "/s") == 0 &&
                      (end + 2 == text_.size() || !in_name(text_[end + 2]));
    return rate ? end + 2 : end;
  }

  void read_number(Token& token) {
    token.kind = Token::Kind::number;
    const auto number = split_unit(std::string_view(text_).substr(at_)).number;
    if (number.empty()) fail(text_, token, "a number is missing before or after the point");
    at_ += number.size();
    std::size_t unit = at_;
    while (unit < text_.size() && text_[unit] == ' ') ++unit;
    const std::size_t end = unit_end(unit);
    if (end > unit) at_ = end;
    token.length = at_ - token.from;
    value(token, std::string(number), text_.substr(unit, end - unit));
  }

  void value(Token& token, const std::string& number, const std::string& unit) {
    std::string why;
    if (unit.empty()) {
      const auto plain = parse_quantity(number, Dimension::number, why);
      if (!plain) fail(text_, token, why);
      token.number = *plain;
      return;
    }
    for (const Dimension dimension : kDimensions) {
      const auto quantity = parse_quantity(number + " " + unit, dimension, why);
      if (!quantity) continue;
      token.number = *quantity;
      token.dimension = dimension;
      return;
    }
    fail(text_, token,
         fmt::format("'{}' is no unit (s, ms, us, GiB, GB, Gbps, GB/s, TFLOP/s ...)", unit));
  }

  Token text_token(Token token, char quote) {
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos) {
      token.length = text_.size() - at_;
      fail(text_, token, "the text is not closed");
    }
    token.kind = Token::Kind::text;
    token.text = text_.substr(at_ + 1, end - at_ - 1);
    token.length = end + 1 - at_;
    at_ = end + 1;
    return token;
  }

  void read_symbol(Token& token) {
    token.kind = Token::Kind::symbol;
    for (const char* two : {"==", "!=", "<=", ">=", "&&", "||"}) {
      if (text_.compare(at_, 2, two) != 0) continue;
      at_ += 2;
      return;
    }
    const char c = text_[at_];
    if (c == '=') fail(text_, token, "a comparison is written '=='");
    if (c == '&' || c == '|') fail(text_, token, fmt::format("write '{0}{0}'", c));
    if (std::string_view("+-*/%<>!()").find(c) == std::string_view::npos)
      fail(text_, token, "cannot be part of a condition");
    ++at_;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

/// What an expression is: text, true or false, or a number; of none the dimension that products
/// of quantities have.
struct Kind {
  enum class Base : std::uint8_t { number, text, boolean } base = Base::number;
  std::optional<Dimension> dimension = Dimension::number;
  bool is_zero = false;  // which needs no unit
};

class Compiler {
 public:
  Compiler(const std::string& text, const FindVariable& find)
      : text_(text), find_(find), lexer_(text), token_(lexer_.next()) {}

  void compile() {
    const Token first = token_;
    const Kind kind = joined(0);
    if (token_.kind != Token::Kind::end) fail_unexpected();
    if (kind.base != Kind::Base::boolean)
      fail(text_, first, "is no condition: compare it with something, as in stages*width == 64");
  }

  std::vector<Condition::Step> steps;
  std::vector<Condition::Column> columns;

 private:
  using Base = Kind::Base;

  [[noreturn]] void fail_unexpected() const {
    if (token_.kind == Token::Kind::end) fail(text_, token_, "something is missing here");
    for (const auto& [word, symbol] : {std::pair{"and", "&&"}, {"or", "||"}}) {
      if (token_.text == word) fail(text_, token_, fmt::format("write '{}'", symbol));
    }
    fail(text_, token_, fmt::format("'{}' was not expected here", token_.text));
  }

  bool accept(std::string_view symbol) {
    if (token_.kind != Token::Kind::symbol || token_.text != symbol) return false;
    operator_ = token_;
    token_ = lexer_.next();
    return true;
  }

  /// An operator between two operands, on a level of those that bind alike; level 0 binds most
  /// loosely.
  struct Binary {
    std::string_view symbol;
    Operation operation;
    int level;
  };
  static constexpr int kComparison = 2, kSum = 3, kProduct = 4;
  static constexpr Binary kBinary[] = {{"||", Operation::either, 0},
                                       {"&&", Operation::both, 1},
                                       {"==", Operation::equal, 2},
                                       {"!=", Operation::unequal, 2},
                                       {"<=", Operation::at_most, 2},
                                       {">=", Operation::at_least, 2},
                                       {"<", Operation::less, 2},
                                       {">", Operation::greater, 2},
                                       {"+", Operation::add, kSum},
                                       {"-", Operation::subtract, kSum},
                                       {"*", Operation::multiply, kProduct},
                                       {"/", Operation::divide, kProduct},
                                       {"%", Operation::remainder, kProduct}};

  const Binary* accept_of(int level) {
    const auto* found = std::ranges::find_if(
        kBinary, [&](const Binary& one) { return one.level == level && accept(one.symbol); });
    return found == std::end(kBinary) ? nullptr : found;
  }

  /// Reads operands joined by operators of a level; '!' stands before comparisons.
  Kind joined(int level) {
    const auto operand = [&] {
      return level == kProduct          ? unary()
             : level + 1 == kComparison ? inverted()
                                        : joined(level + 1);
    };
    Kind left = operand();
    while (const Binary* binary = accept_of(level)) {
      const Token at = operator_;
      left = combined(level, left, operand(), at);
      if (level == kComparison && accept_of(level) != nullptr)
        fail(text_, operator_, "join two comparisons with '&&'");
      steps.push_back({binary->operation});
    }
    return left;
  }

  /// Checks two operands. Returns what their combination is.
  Kind combined(int level, Kind left, const Kind& right, const Token& at) const {
    if (level == kComparison) {
      check_comparison(left, right, at);
      return {Base::boolean, std::nullopt, false};
    }
    for (const Kind& side : {left, right}) {
      if (level < kComparison && side.base != Base::boolean)
        fail(text_, at, fmt::format("'{}' stands between two conditions", at.text));
      if (level > kComparison) require_number(side, at);
    }
    if (level < kComparison) return left;
    if (level == kSum) same_dimension(left, right, at, "combines");
    if (at.text == "%") same_dimension(left, right, at, "divides");
    if (level == kSum && left.is_zero) left = right;
    if (level == kProduct) left.dimension = dimension_of(left, right, at.text[0]);
    left.is_zero = false;
    return left;
  }

  void require_number(const Kind& side, const Token& at) const {
    if (side.base != Base::number)
      fail(text_, at, fmt::format("cannot calculate with {}", describe(side)));
  }

  Kind inverted() {
    const Depth depth(*this);
    if (!accept("!")) return joined(kComparison);
    const Token at = operator_;
    const Kind kind = inverted();
    if (kind.base != Base::boolean)
      fail(text_, at, "'!' stands before a condition; put it in parentheses");
    steps.push_back({Operation::invert});
    return kind;
  }

  void check_comparison(const Kind& left, const Kind& right, const Token& at) const {
    if (left.base != right.base)
      fail(text_, at, fmt::format("compares {} with {}", describe(left), describe(right)));
    const bool ordered = at.text != "==" && at.text != "!=";
    if (ordered && left.base != Base::number)
      fail(text_, at, fmt::format("{} is compared with == or != only", describe(left)));
    same_dimension(left, right, at, "compares");
  }

  static std::string describe(const Kind& kind) {
    if (kind.base == Base::text) return "a text";
    if (kind.base == Base::boolean) return "a condition";
    if (!kind.dimension) return "a product of quantities";
    switch (*kind.dimension) {
      case Dimension::time: return "a time";
      case Dimension::bytes: return "a size";
      case Dimension::bandwidth: return "a bandwidth";
      case Dimension::flops_rate: return "a compute rate";
      default: return "a number without a unit";
    }
  }

  void same_dimension(const Kind& left, const Kind& right, const Token& at,
                      const char* verb) const {
    if (left.base != Base::number || !left.dimension || !right.dimension) return;
    if (left.dimension == right.dimension || left.is_zero || right.is_zero) return;
    fail(text_, at, fmt::format("{} {} with {}", verb, describe(left), describe(right)));
  }

  static std::optional<Dimension> dimension_of(const Kind& left, const Kind& right, char symbol) {
    if (symbol == '%' || right.dimension == Dimension::number) return left.dimension;
    if (symbol == '*' && left.dimension == Dimension::number) return right.dimension;
    if (symbol == '/' && left.dimension && left.dimension == right.dimension)
      return Dimension::number;
    return std::nullopt;
  }

  Kind unary() {
    const Depth depth(*this);
    if (accept("-")) {
      const Token at = operator_;
      Kind kind = unary();
      require_number(kind, at);
      steps.push_back({Operation::negate});
      return kind;
    }
    return primary();
  }

  Kind primary() {
    const Token at = token_;
    if (accept("(")) {
      const Kind kind = joined(0);
      if (!accept(")")) fail(text_, at, "this '(' is not closed");
      return kind;
    }
    switch (at.kind) {
      case Token::Kind::number: steps.push_back({Operation::constant, at.number}); break;
      case Token::Kind::text: steps.push_back({Operation::constant, numbered(at.text)}); break;
      case Token::Kind::name: break;
      default: fail_unexpected();
    }
    token_ = lexer_.next();
    if (at.kind == Token::Kind::name) return variable(at);
    if (at.kind == Token::Kind::text) return {Base::text, std::nullopt, false};
    return {Base::number, at.dimension, at.number == 0};
  }

  Kind variable(const Token& at) {
    if (at.text == "true" || at.text == "false") {
      steps.push_back({Operation::constant, numbered(at.text)});
      return {Base::text, std::nullopt, false};
    }
    Variable found;
    try {
      found = find_(at.text);
    } catch (const InputError& error) {
      fail(text_, at, error.diagnostics().front().message);
    }
    Condition::Column column{found.level, std::move(found.numbers)};
    if (!found.dimension)
      for (const std::string& text : found.texts) column.values.push_back(numbered(text));
    steps.push_back({Operation::variable, 0, columns.size()});
    columns.push_back(std::move(column));
    if (!found.dimension) return {Base::text, std::nullopt, false};
    const bool share = *found.dimension == Dimension::fraction;
    return {Base::number, share ? Dimension::number : *found.dimension, false};
  }

  /// The same number for the same text.
  double numbered(const std::string& text) {
    return texts_.try_emplace(text, static_cast<double>(texts_.size())).first->second;
  }

  /// Bounds the nesting, and with it the stack of numbers.
  struct Depth {
    explicit Depth(Compiler& compiler) : compiler_(compiler) {
      if (++compiler_.depth_ > kDeepest)
        fail(compiler_.text_, compiler_.token_, "is nested too deeply");
    }
    ~Depth() { --compiler_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Compiler& compiler_;
  };

  const std::string& text_;
  const FindVariable& find_;
  Lexer lexer_;
  Token token_, operator_;
  std::size_t depth_ = 0;
  std::map<std::string, double> texts_;
};

/// A level of nesting leaves at most three numbers waiting: of ||, &&, a comparison, + and *.
constexpr std::size_t kStack = kDeepest * 5;

/// -1, 0 or 1 where they are equal to twelve digits; 2 where one of them is no number.
int order(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return 2;
  if (std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)) || a == b) return 0;
  return a < b ? -1 : 1;
}

double apply(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::add: return a + b;
    case Operation::subtract: return a - b;
    case Operation::multiply: return a * b;
    case Operation::divide: return b == 0 ? std::nan("") : a / b;
    case Operation::remainder: return std::fmod(a, b);
    case Operation::equal: return order(a, b) == 0;
    case Operation::unequal: return order(a, b) == -1 || order(a, b) == 1;
    case Operation::less: return order(a, b) == -1;
    case Operation::at_most: return order(a, b) <= 0;
    case Operation::greater: return order(a, b) == 1;
    case Operation::at_least: return order(a, b) == 0 || order(a, b) == 1;
    case Operation::both: return a != 0 && b != 0;
    default: return a != 0 || b != 0;
  }
}

}  // namespace

Condition::Condition(const std::string& text, const FindVariable& find) {
  Compiler compiler(text, find);
  compiler.compile();
  steps_ = std::move(compiler.steps);
  columns_ = std::move(compiler.columns);
  for (const Column& column : columns_) level_ = std::max(level_, column.level);
}

bool Condition::holds(std::span<const std::size_t> digits) const {
  std::array<double, kStack> stack;
  std::size_t top = 0;
  for (const Step& step : steps_) {
    switch (step.operation) {
      case Operation::constant: stack[top++] = step.number; break;
      case Operation::variable: {
        const Column& column = columns_[step.variable];
        stack[top++] = column.values[digits[column.level]];
        break;
      }
      case Operation::negate: stack[top - 1] = -stack[top - 1]; break;
      case Operation::invert: stack[top - 1] = stack[top - 1] == 0 ? 1 : 0; break;
      default: --top; stack[top - 1] = apply(step.operation, stack[top - 1], stack[top]);
    }
  }
  return stack[0] != 0;
}

}  // namespace penstock
