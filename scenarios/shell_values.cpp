// SPDX-License-Identifier: Apache-2.0
#include "scenarios/shell_values.hpp"

#include "base/numbers.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

namespace penstock {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_variable_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::ranges::all_of(text, is_name);
}

// ---- patterns

std::optional<bool> matches_pattern(std::string_view text, std::string_view pattern) {
  const auto plain = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (!std::ranges::all_of(text, plain)) return {};
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '[') return {};
    if (pattern[i] == '(' && i > 0 && std::string_view("?*+@!").find(pattern[i - 1]) < 5) return {};
    if (pattern[i] == '\\' && ++i == pattern.size()) return {};
  }
  std::size_t at = 0, p = 0, star = std::string_view::npos, behind = 0;
  while (at < text.size()) {
    const bool escaped = p < pattern.size() && pattern[p] == '\\';
    const char sign = p < pattern.size() ? pattern[p + (escaped ? 1 : 0)] : '\0';
    if (p < pattern.size() && sign == '*' && !escaped) {
      star = ++p;
      behind = at;
    } else if (p < pattern.size() && ((sign == '?' && !escaped) || sign == text[at])) {
      p += escaped ? 2 : 1;
      ++at;
    } else if (star != std::string_view::npos) {
      p = star;
      at = ++behind;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string pattern_of(const ShellText& text) {
  std::string out;
  for (const ShellPiece& piece : text.pieces)
    for (const char c : piece.text) {
      if (piece.quoted && !is_name(c)) out += '\\';
      out += c;
    }
  return out;
}

// ---- arithmetic

bool assigns_in_arithmetic(std::string_view expression) {
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i], next = i + 1 < expression.size() ? expression[i + 1] : '\0';
    if ((c == '+' || c == '-') && next == c) return true;
    if (c != '=') continue;
    const char before = i > 0 ? expression[i - 1] : '\0';
    const char second = i > 1 ? expression[i - 2] : '\0';
    if (next == '=') {
      ++i;
      continue;
    }
    const bool compares = before == '!' || ((before == '<' || before == '>') && second != before);
    if (!compares) return true;
  }
  return false;
}

namespace {

using Wide = std::int64_t;
using VariableReader = std::function<ShellText(const std::string&)>;

constexpr int kMostEvaluated = 300;  // texts of one expression: itself, and values of its names
constexpr int kDeepestArithmetic = 100;
constexpr int kNameInAnother = 20;  // levels that the value of a name counts for
constexpr std::size_t kLongestExpression = 4'000;

/// What is beyond the arithmetic that is evaluated.
struct NotEvaluated {};

struct ArithmeticSign {
  int level;
  std::string_view sign;
};
constexpr ArithmeticSign kSigns[] = {{1, "||"}, {2, "&&"}, {6, "=="}, {6, "!="},  {8, "<<"},
                                     {8, ">>"}, {7, "<="}, {7, ">="}, {11, "**"}, {3, "|"},
                                     {4, "^"},  {5, "&"},  {7, "<"},  {7, ">"},   {9, "+"},
                                     {9, "-"},  {10, "*"}, {10, "/"}, {10, "%"}};

class Arithmetic {
 public:
  Arithmetic(std::string text, const VariableReader& read, int open, int& evaluated)
      : text_(std::move(text)), read_(read), open_(open), evaluated_(evaluated) {}

  ShellNumber value() {
    if (++evaluated_ > kMostEvaluated || open_ > kDeepestArithmetic ||
        text_.size() > kLongestExpression || assigns_in_arithmetic(text_))
      throw NotEvaluated();
    skip();
    if (at_ == text_.size()) return {0, {}};
    ShellNumber all = choice();
    if (at_ != text_.size()) throw NotEvaluated();
    return all;
  }

 private:
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  bool take(char sign) {
    if (here() != sign) return false;
    ++at_;
    skip();
    return true;
  }

  ShellNumber choice() {
    const ShellNumber condition = binary(1);
    if (!take('?')) return condition;
    const ShellNumber yes = choice();
    if (!take(':')) throw NotEvaluated();
    const ShellNumber no = choice();
    if (condition.value) return *condition.value != 0 ? yes : no;
    return unknown(unknown(condition, yes), no);
  }

  static ShellNumber unknown(const ShellNumber& a, const ShellNumber& b) {
    ShellNumber out{{}, a.names};
    add_names(out.names, b.names);
    return out;
  }

  const ArithmeticSign* sign_here() const {
    const auto found = std::ranges::find_if(kSigns, [&](const ArithmeticSign& sign) {
      return text_.substr(at_).starts_with(sign.sign);
    });
    return found == std::end(kSigns) ? nullptr : found;
  }

  /// Reads operators of a level and above. A power binds to the right, all others to the left.
  ShellNumber binary(int level) {
    if (++open_ > kDeepestArithmetic) throw NotEvaluated();
    ShellNumber left = unary();
    for (const ArithmeticSign* sign = sign_here(); sign != nullptr && sign->level >= level;
         sign = sign_here()) {
      at_ += sign->sign.size();
      skip();
      const ShellNumber right = binary(sign->sign == "**" ? sign->level : sign->level + 1);
      left = operated(left, sign->sign, right);
    }
    --open_;
    return left;
  }

  static ShellNumber operated(const ShellNumber& a, std::string_view sign, const ShellNumber& b) {
    if (sign == "&&" || sign == "||") {
      const bool with_or = sign == "||";
      for (const ShellNumber* one : {&a, &b})
        if (one->value && (*one->value != 0) == with_or) return {with_or ? 1 : 0, {}};
      return a.value && b.value ? ShellNumber{with_or ? 0 : 1, {}} : unknown(a, b);
    }
    if (!a.value || !b.value) return unknown(a, b);
    const Wide x = *a.value, y = *b.value;
    Wide out = 0;
    bool over = false;
    switch (sign[0]) {
      case '+': over = __builtin_add_overflow(x, y, &out); break;
      case '-': over = __builtin_sub_overflow(x, y, &out); break;
      case '*':
        if (sign == "**") return raised(x, y);
        over = __builtin_mul_overflow(x, y, &out);
        break;
      case '/':
      case '%':
        if (y == 0 || (x == std::numeric_limits<Wide>::min() && y == -1)) return {};
        out = sign == "/" ? x / y : x % y;
        break;
      case '&': out = x & y; break;
      case '|': out = x | y; break;
      case '^': out = x ^ y; break;
      case '=': out = x == y ? 1 : 0; break;
      case '!': out = x != y ? 1 : 0; break;
      default: return ordered(x, sign, y);
    }
    return over ? ShellNumber{} : ShellNumber{out, {}};
  }

  static ShellNumber ordered(Wide x, std::string_view sign, Wide y) {
    if (sign == "<<" || sign == ">>") {
      if (y < 0 || y > 62 || x < 0 || (sign == "<<" && x > (std::numeric_limits<Wide>::max() >> y)))
        return {};
      return {sign == "<<" ? x << y : x >> y, {}};
    }
    const bool equal = sign.size() == 2 && x == y;
    return {equal || (sign[0] == '<' ? x < y : x > y) ? 1 : 0, {}};
  }

  static ShellNumber raised(Wide x, Wide y) {
    if (y < 0 || y > 64) return {};
    Wide out = 1;
    for (; y > 0; --y)
      if (__builtin_mul_overflow(out, x, &out)) return {};
    return {out, {}};
  }

  ShellNumber unary() {
    if (++open_ > kDeepestArithmetic) throw NotEvaluated();
    const char sign = here();
    ShellNumber out;
    if (take('-')) {
      out = operated({0, {}}, "-", unary());
    } else if (take('+')) {
      out = unary();
    } else if (take('!')) {
      out = operated(unary(), "==", {0, {}});
    } else if (take('~')) {
      out = operated(unary(), "^", {-1, {}});
    } else if (take('(')) {
      out = choice();
      if (!take(')')) throw NotEvaluated();
    } else if (is_name(sign)) {
      out = name_or_number();
    } else {
      throw NotEvaluated();
    }
    --open_;
    return out;
  }

  ShellNumber name_or_number() {
    const std::size_t begin = at_;
    while (is_name(here())) ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    skip();
    if (is_variable_name(word)) {
      if (here() == '[') throw NotEvaluated();
      const ShellText text = read_(word);
      if (!text.known()) return {{}, text.names()};
      return Arithmetic(text.shown(), read_, open_ + kNameInAnother, evaluated_).value();
    }
    const auto number = parse_number<Wide>(word);
    if (!number || here() == '#' || (word.size() > 1 && word[0] == '0')) throw NotEvaluated();
    return {number, {}};
  }

  const std::string text_;
  const VariableReader& read_;
  std::size_t at_ = 0;
  int open_;
  int& evaluated_;
};

// ---- tests

struct TestFailure {};

constexpr std::array kNumberTests{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};

bool compares_numbers(const std::string& sign) {
  return std::ranges::find(kNumberTests, sign) != kNumberTests.end();
}

std::int64_t whole_of_test(const ShellText& text) {
  const std::string shown = text.shown();
  const std::size_t begin = std::min(shown.find_first_not_of(" \t\n"), shown.size());
  const std::size_t end = shown.find_last_not_of(" \t\n");
  const bool plus = begin < shown.size() && shown[begin] == '+';
  const auto value = parse_number<std::int64_t>(std::string_view(shown).substr(
      begin + (plus ? 1 : 0), end == std::string::npos ? 0 : end + 1 - begin - (plus ? 1 : 0)));
  if (!value) throw TestFailure();
  return *value;
}

bool is_plain_word(const ShellText& word, std::string_view text) {
  return word.known() && word.shown() == text;
}

ShellVerdict inverted(ShellVerdict verdict) {
  verdict.truth = negated(verdict.truth);
  return verdict;
}

ShellVerdict not_told(std::span<const ShellText> words) {
  ShellVerdict out{Truth::unknown, {}};
  for (const ShellText& word : words) add_names(out.names, word.names());
  return out;
}

/// Returns what up to four words say, which POSIX defines.
ShellVerdict truth_of_few(std::span<const ShellText> w) {
  if (w.empty()) return {};
  if (w.size() == 3 && w[1].known() && is_binary_test(w[1].shown()))
    return compared_texts(w[0], w[1].shown(), w[2]);
  if (w.size() > 1 && is_plain_word(w[0], "!")) return inverted(truth_of_few(w.subspan(1)));
  if (w.size() == 1) return tested_text("-n", w[0]);
  if (!w[w.size() == 3 ? 1 : 0].known()) return not_told(w);
  if (w.size() > 2) throw TestFailure();
  if (!is_unary_test(w[0].shown())) throw TestFailure();
  return tested_text(w[0].shown(), w[1]);
}

/// Cuts the words at `-o` or `-a`.
std::vector<std::span<const ShellText>> cut_at(std::span<const ShellText> words,
                                               std::string_view sign) {
  std::vector<std::span<const ShellText>> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= words.size(); ++i) {
    if (i < words.size() && !is_plain_word(words[i], sign)) continue;
    out.push_back(words.subspan(begin, i - begin));
    begin = i + 1;
  }
  return out;
}

}  // namespace

ShellNumber arithmetic_value(std::string_view expression, const VariableReader& read) {
  int evaluated = 0;
  try {
    return Arithmetic(std::string(expression), read, 0, evaluated).value();
  } catch (const NotEvaluated&) {
    return {};
  }
}

Truth negated(Truth truth) {
  return truth == Truth::yes ? Truth::no : truth == Truth::no ? Truth::yes : Truth::unknown;
}

Truth truth_of(bool value) { return value ? Truth::yes : Truth::no; }

ShellVerdict both_hold(const ShellVerdict& a, const ShellVerdict& b) {
  if (a.truth == Truth::no || b.truth == Truth::no) return {Truth::no, {}};
  if (a.truth == Truth::yes) return b;
  ShellVerdict out = a;
  if (b.truth == Truth::unknown) add_names(out.names, b.names);
  return out;
}

ShellVerdict either_holds(const ShellVerdict& a, const ShellVerdict& b) {
  ShellVerdict out = both_hold({negated(a.truth), a.names}, {negated(b.truth), b.names});
  out.truth = negated(out.truth);
  return out;
}

bool is_unary_test(const std::string& word) {
  return word.size() == 2 && word[0] == '-' &&
         std::string_view("abcdefghknoprstuvwxzGLNORS").find(word[1]) != std::string_view::npos;
}

bool is_binary_test(const std::string& word) {
  constexpr std::array kOthers{"=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"};
  return compares_numbers(word) || std::ranges::find(kOthers, word) != kOthers.end();
}

ShellVerdict compared_texts(const ShellText& a, const std::string& sign, const ShellText& b) {
  const bool equality = sign == "=" || sign == "==" || sign == "!=";
  const auto blank = [](const ShellText& text) { return text.empty() || text.absent(); };
  if (equality && blank(a) && blank(b))
    return {truth_of(sign != "!="), {}};  // "$A" = "" asks whether it is set
  const std::array both{a, b};
  if (!a.known() || !b.known() || (!equality && !compares_numbers(sign))) return not_told(both);
  if (equality) return {truth_of((a.shown() == b.shown()) == (sign != "!=")), {}};
  const std::int64_t x = whole_of_test(a), y = whole_of_test(b);
  const bool holds = sign == "-eq"   ? x == y
                     : sign == "-ne" ? x != y
                     : sign == "-lt" ? x < y
                     : sign == "-le" ? x <= y
                     : sign == "-gt" ? x > y
                                     : x >= y;
  return {truth_of(holds), {}};
}

ShellVerdict tested_text(const std::string& sign, const ShellText& a) {
  if (sign != "-n" && sign != "-z") return {Truth::unknown, {}};  // files are not looked at
  const bool some_known = std::ranges::any_of(a.pieces, &ShellPiece::known);
  if (!some_known && !a.empty() && !a.absent()) return {Truth::unknown, a.names()};
  return {truth_of(some_known == (sign == "-n")), {}};
}

ShellVerdict truth_of_test(std::span<const ShellText> words) {
  const auto splits = [](const ShellText& word) {
    return std::ranges::any_of(word.pieces, [](const auto& p) { return !p.known && !p.quoted; });
  };
  const auto told = [&](const ShellText& word) { return !splits(word) || word.absent(); };
  // Of what nothing sets no word is left: `[ -n $A ]` asks whether "-n" is a text then.
  if (!std::ranges::all_of(words, told)) return not_told(words);
  if (std::ranges::any_of(words, splits)) {
    const std::size_t first = is_plain_word(words[0], "!") ? 1 : 0;
    if (words.size() - first > 2) return not_told(words);
    std::vector<ShellText> left(words.begin(), words.end());
    std::erase_if(left, splits);
    return truth_of_test(left);
  }
  try {
    if (words.size() < 4) return truth_of_few(words);
    ShellVerdict out;
    for (const auto& either : cut_at(words, "-o")) {
      ShellVerdict all{Truth::yes, {}};
      for (const auto& one : cut_at(either, "-a")) {
        if (one.empty() || one.size() > 4) return not_told(words);
        all = both_hold(all, truth_of_few(one));
      }
      out = either_holds(out, all);
    }
    return out;
  } catch (const TestFailure&) {
    return words.size() > 3 ? not_told(words) : ShellVerdict{};
  }
}

}  // namespace penstock
