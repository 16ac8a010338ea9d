#include "scenarios/shell_values.hpp"

#include "base/numbers.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

namespace penstock {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

namespace {

// ---- patterns

enum class Match : std::uint8_t { no, yes, unknown };

bool is_in_class(std::string_view name, unsigned char c, bool& known) {
  if (name == "digit") return std::isdigit(c) != 0;
  if (name == "alpha") return std::isalpha(c) != 0;
  if (name == "alnum") return std::isalnum(c) != 0;
  if (name == "upper") return std::isupper(c) != 0;
  if (name == "lower") return std::islower(c) != 0;
  if (name == "space") return std::isspace(c) != 0;
  if (name == "blank") return c == ' ' || c == '\t';
  if (name == "punct") return std::ispunct(c) != 0;
  known = false;
  return false;
}

/// `pattern[at]` is '['. Moves `at` behind the bracket; where there is no such bracket it is plain.
Match match_of_bracket(std::string_view pattern, std::size_t& at, char c) {
  std::size_t i = at + 1;
  const bool negates = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negates) ++i;
  bool found = false, known = true, first = true;
  for (;; first = false) {
    if (i >= pattern.size()) {  // not closed: a plain '['
      ++at;
      return c == '[' ? Match::yes : Match::no;
    }
    if (pattern[i] == ']' && !first) break;
    if (pattern[i] == '[' && i + 1 < pattern.size() &&
        std::string_view(":.=").find(pattern[i + 1]) != std::string_view::npos) {
      const std::size_t end = pattern.find(std::string{pattern[i + 1], ']'}, i + 2);
      if (end == std::string_view::npos || pattern[i + 1] != ':') return Match::unknown;
      found =
          is_in_class(pattern.substr(i + 2, end - i - 2), static_cast<unsigned char>(c), known) ||
          found;
      i = end + 2;
      continue;
    }
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    const char low = pattern[i++];
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      const bool escaped = pattern[i + 1] == '\\' && i + 2 < pattern.size();
      const char high = pattern[i + (escaped ? 2 : 1)];
      i += escaped ? 3 : 2;
      const bool digits = std::isdigit(static_cast<unsigned char>(low)) != 0 &&
                          std::isdigit(static_cast<unsigned char>(high)) != 0;
      if (!digits) known = false;
      found = found || (low <= c && c <= high);
    } else {
      found = found || low == c;
    }
  }
  at = i + 1;
  if (!known) return Match::unknown;
  return found != negates ? Match::yes : Match::no;
}

/// Of one character; moves `at` behind its part of the pattern.
Match match_of_one(std::string_view pattern, std::size_t& at, char c) {
  if (pattern[at] == '?') {
    ++at;
    return Match::yes;
  }
  if (pattern[at] == '[') return match_of_bracket(pattern, at, c);
  if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
  return pattern[at++] == c ? Match::yes : Match::no;
}

bool is_extended(std::string_view pattern) {
  for (std::size_t i = 1; i < pattern.size(); ++i)
    if (pattern[i] == '(' &&
        std::string_view("?*+@!").find(pattern[i - 1]) != std::string_view::npos)
      return true;
  return false;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// ---- arithmetic

using Wide = std::int64_t;

constexpr std::size_t kMostEvaluated = 100'000;  // texts of 16 characters, of a whole script
constexpr int kMostOpen = 150;                   // of which a name takes 3

Wide wrapped(std::uint64_t value) { return static_cast<Wide>(value); }

class Arithmetic {
 public:
  Arithmetic(const std::string& text, ShellStore& store, int depth)
      : text_(text), store_(store), depth_(depth) {}

  ShellNumber value() {
    store_.evaluated += 1 + text_.size() / 16;
    if (store_.evaluated > kMostEvaluated)
      fail("is more arithmetic than is followed, with all before it");
    skip();
    if (at_ == text_.size()) return {0, {}};
    const ShellNumber all = list();
    skip();
    if (at_ != text_.size()) fail("is no arithmetic");
    return all;
  }

 private:
  enum class Effect : std::uint8_t { sure, possible, none };

  struct Target {
    std::string name;
    std::optional<std::string> index;
  };

  [[noreturn]] void fail(const std::string& why) const {
    throw ArithmeticFailure{"'" + text_ + "' " + why};
  }

  char here(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void skip() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  /// An operator that none of the characters `unless` follows.
  bool take(std::string_view sign, std::string_view unless = "") {
    skip();
    if (text_.compare(at_, sign.size(), sign) != 0) return false;
    const char next = here(sign.size());
    if (next != '\0' && unless.find(next) != std::string_view::npos) return false;
    at_ += sign.size();
    return true;
  }

  class Deeper {
   public:
    explicit Deeper(Arithmetic& of) : of_(of) {
      if (of_.store_.open >= kMostOpen) of_.fail("is nested too deeply");
      ++of_.store_.open;
    }
    ~Deeper() { --of_.store_.open; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Arithmetic& of_;
  };

  ShellNumber list() {
    ShellNumber last = assignment();
    while (take(",")) last = assignment();
    return last;
  }

  std::optional<Target> target() {
    skip();
    if (!is_name(here()) || std::isdigit(static_cast<unsigned char>(here())) != 0) return {};
    Target out;
    for (; is_name(here()); ++at_) out.name += here();
    if (here() != '[') return out;
    int open = 0;
    const std::size_t begin = at_ + 1;
    for (; at_ < text_.size(); ++at_) {
      open += here() == '[' ? 1 : here() == ']' ? -1 : 0;
      if (open == 0) break;
    }
    if (open != 0) fail("is no arithmetic");
    out.index = text_.substr(begin, at_++ - begin);
    return out;
  }

  ShellNumber assignment() {
    Deeper deeper(*this);
    const std::size_t before = at_;
    const auto to = target();
    if (to) {
      if (take("=", "=")) return store(*to, assignment());
      for (const char* sign : {"<<", ">>", "+", "-", "*", "/", "%", "&", "|", "^"}) {
        if (!take(std::string(sign) + "=")) continue;
        const ShellNumber right = assignment();
        return store(*to, operated(value_of(*to), sign, right));
      }
    }
    at_ = before;
    return choice();
  }

  ShellNumber store(const Target& to, ShellNumber number) {
    if (effect_ == Effect::none) return number;
    if (effect_ == Effect::possible) number.value.reset();
    store_.write_variable(to.name, to.index, number);
    return number;
  }

  template <class Part>
  ShellNumber under(Effect effect, Part part) {
    const Effect before = effect_;
    if (effect_ == Effect::sure || effect == Effect::none) effect_ = effect;
    ShellNumber out = part();
    effect_ = before;
    return out;
  }

  static Effect effect_where(const ShellNumber& condition, bool holds) {
    if (!condition.value) return Effect::possible;
    return (*condition.value != 0) == holds ? Effect::sure : Effect::none;
  }

  ShellNumber choice() {
    const ShellNumber condition = binary(0);
    if (!take("?")) return condition;
    const ShellNumber a = under(effect_where(condition, true), [&] { return list(); });
    if (!take(":")) fail("has no ':' of '?'");
    const ShellNumber b = under(effect_where(condition, false), [&] { return assignment(); });
    if (condition.value) return *condition.value != 0 ? a : b;
    return unknown({&condition, &a, &b});
  }

  static ShellNumber unknown(std::initializer_list<const ShellNumber*> of) {
    ShellNumber out;
    for (const ShellNumber* number : of) add_names(out.names, number->names);
    return out;
  }

  ShellNumber logical(bool with_or) {
    ShellNumber left = binary(with_or ? 1 : 2);
    while (take(with_or ? "||" : "&&")) {
      const ShellNumber right =
          under(effect_where(left, !with_or), [&] { return binary(with_or ? 1 : 2); });
      const bool decides = left.value && (*left.value != 0) == with_or;
      const bool right_decides = right.value && (*right.value != 0) == with_or;
      if (decides || right_decides)
        left = {with_or ? 1 : 0, {}};
      else if (left.value && right.value)
        left = {with_or ? 0 : 1, {}};
      else
        left = unknown({&left, &right});
    }
    return left;
  }

  /// The operator of that level that comes next; empty: none.
  std::string taken_sign(int level) {
    struct Sign {
      int level;
      const char *sign, *unless;
    };
    static constexpr Sign kSigns[] = {
        {2, "|", "|="}, {3, "^", "="},  {4, "&", "&="}, {5, "==", ""},
        {5, "!=", ""},  {6, "<=", ""},  {6, ">=", ""},  {6, "<", "<"},
        {6, ">", ">"},  {7, "<<", "="}, {7, ">>", "="}, {8, "+", "="},
        {8, "-", "="},  {9, "*", "*="}, {9, "/", "="},  {9, "%", "="}};
    for (const Sign& sign : kSigns)
      if (sign.level == level && take(sign.sign, sign.unless)) return sign.sign;
    return "";
  }

  ShellNumber binary(int level) {
    if (level < 2) return logical(level == 0);
    if (level == 10) return power();
    ShellNumber left = binary(level + 1);
    for (std::string sign = taken_sign(level); !sign.empty(); sign = taken_sign(level))
      left = operated(left, sign, binary(level + 1));
    return left;
  }

  ShellNumber power() {
    Deeper deeper(*this);
    const ShellNumber base = unary();
    if (!take("**")) return base;
    return operated(base, "**", power());
  }

  ShellNumber operated(const ShellNumber& a, const std::string& sign, const ShellNumber& b) const {
    if (!a.value || !b.value) return unknown({&a, &b});
    const Wide x = *a.value, y = *b.value;
    const auto ux = static_cast<std::uint64_t>(x), uy = static_cast<std::uint64_t>(y);
    if (sign == "+") return {wrapped(ux + uy), {}};
    if (sign == "-") return {wrapped(ux - uy), {}};
    if (sign == "*") return {wrapped(ux * uy), {}};
    if (sign == "/" || sign == "%") return divided(x, sign == "/", y);
    if (sign == "**") return raised(x, y);
    if (sign == "<<" || sign == ">>") return shifted(x, sign == "<<", y);
    if (sign == "&") return {x & y, {}};
    if (sign == "|") return {x | y, {}};
    if (sign == "^") return {x ^ y, {}};
    const bool holds = sign == "=="   ? x == y
                       : sign == "!=" ? x != y
                       : sign == "<=" ? x <= y
                       : sign == ">=" ? x >= y
                       : sign == "<"  ? x < y
                                      : x > y;
    return {holds ? 1 : 0, {}};
  }

  ShellNumber divided(Wide x, bool quotient, Wide y) const {
    if (y == 0 && effect_ == Effect::sure) fail("divides by 0");
    if (y == 0 || (x == std::numeric_limits<Wide>::min() && y == -1)) return {};
    return {quotient ? x / y : x % y, {}};
  }

  ShellNumber raised(Wide x, Wide y) const {
    if (y < 0 && effect_ == Effect::sure) fail("has a negative exponent");
    if (y < 0) return {};
    std::uint64_t out = 1, base = static_cast<std::uint64_t>(x);
    for (; y > 0; y >>= 1, base *= base)
      if ((y & 1) != 0) out *= base;
    return {wrapped(out), {}};
  }

  static ShellNumber shifted(Wide x, bool left, Wide y) {
    if (y < 0 || y > 63) return {};
    return {left ? wrapped(static_cast<std::uint64_t>(x) << y) : x >> y, {}};
  }

  ShellNumber unary() {
    Deeper deeper(*this);
    skip();
    for (const char* sign : {"++", "--"}) {
      const std::size_t before = at_;
      if (!take(sign)) continue;
      if (const auto to = target())
        return store(*to, operated(value_of(*to), std::string(1, sign[0]), {1, {}}));
      at_ = before;
    }
    if (take("!", "=")) {
      const ShellNumber of = unary();
      return of.value ? ShellNumber{*of.value == 0 ? 1 : 0, {}} : of;
    }
    if (take("~")) {
      const ShellNumber of = unary();
      return of.value ? ShellNumber{~*of.value, {}} : of;
    }
    if (take("+")) return unary();
    if (take("-")) return operated({0, {}}, "-", unary());
    return primary();
  }

  ShellNumber primary() {
    skip();
    if (take("(")) {
      const ShellNumber inner = list();
      if (!take(")")) fail("has a ( that is not closed");
      return inner;
    }
    if (here() == '\x01') return placeholder();
    if (std::isdigit(static_cast<unsigned char>(here())) != 0) return constant();
    const auto of = target();
    if (!of) fail("is no arithmetic");
    const ShellNumber value = value_of(*of);
    for (const char* sign : {"++", "--"}) {
      if (!take(sign)) continue;
      store(*of, operated(value, std::string(1, sign[0]), {1, {}}));
      break;
    }
    return value;
  }

  ShellNumber placeholder() {
    const std::size_t end = text_.find('\x02', at_);
    if (end == std::string::npos) fail("is no arithmetic");
    const auto number =
        parse_number<std::size_t>(std::string_view(text_).substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    if (!number || is_name(here()) || (at_ > text_.size())) return {};
    return {{}, store_.unknown_piece(*number).names};
  }

  ShellNumber constant() {
    std::string digits;
    int base = 10;
    if (here() == '0' && (here(1) == 'x' || here(1) == 'X')) {
      base = 16;
      at_ += 2;
    } else if (here() == '0') {
      base = 8;
    }
    for (; is_name(here()) || here() == '@'; ++at_) digits += here();
    if (here() == '#' && base != 16) {
      base = parse_number<int>(digits).value_or(0);
      if (base < 2 || base > 64) fail("has no such base");
      digits.clear();
      for (++at_; is_name(here()) || here() == '@'; ++at_) digits += here();
      if (digits.empty()) fail("is no arithmetic");
    }
    if (here() == '\x01') return {};
    std::uint64_t value = 0;
    for (const char c : digits) {
      const int digit = digit_of(c, base);
      if (digit >= base) fail("has a digit that is none of its base");
      value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit);
    }
    if (digits.size() > 12 && (digits.size() > 18 || base > 10)) return {};
    return {wrapped(value), {}};
  }

  static int digit_of(char c, int base) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + (base <= 36 ? 10 : 36);
    return c == '@' ? 62 : 63;
  }

  ShellNumber value_of(const Target& of) {
    const ShellText text = store_.read_variable(of.name, of.index);
    if (!text.known()) return {{}, text.names()};
    if (depth_ > 20) fail("names itself");
    const std::string shown = text.shown();
    return Arithmetic(shown, store_, depth_ + 1).value();
  }

  const std::string text_;
  ShellStore& store_;
  std::size_t at_ = 0;
  int depth_;
  Effect effect_ = Effect::sure;
};

// ---- tests

struct TestFailure {};

std::int64_t whole_of_test(const ShellText& text) {
  std::string shown = text.shown();
  while (!shown.empty() && is_blank(shown.back())) shown.pop_back();
  std::size_t begin = 0;
  while (begin < shown.size() && is_blank(shown[begin])) ++begin;
  const bool plus = begin < shown.size() && shown[begin] == '+';
  const auto value =
      parse_number<std::int64_t>(std::string_view(shown).substr(begin + (plus ? 1 : 0)));
  if (!value) throw TestFailure();
  return *value;
}

ShellVerdict compared_numbers(const ShellText& a, const std::string& sign, const ShellText& b) {
  if (!a.known() || !b.known()) {
    ShellVerdict out{Truth::unknown, a.names()};
    add_names(out.names, b.names());
    return out;
  }
  const std::int64_t x = whole_of_test(a), y = whole_of_test(b);
  const bool holds = sign == "-eq"   ? x == y
                     : sign == "-ne" ? x != y
                     : sign == "-lt" ? x < y
                     : sign == "-le" ? x <= y
                     : sign == "-gt" ? x > y
                                     : x >= y;
  return {truth_of(holds), {}};
}

bool compares_numbers(const std::string& sign) {
  constexpr std::array kSigns{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
  return std::ranges::find(kSigns, sign) != kSigns.end();
}

class Test {
 public:
  Test(std::span<const ShellText> words, const std::function<Truth(const std::string&)>& is_set)
      : words_(words), is_set_(is_set) {}

  ShellVerdict verdict(std::span<const ShellText> w) const {
    switch (w.size()) {
      case 0: return {};
      case 1: return tested_text("-n", w[0], is_set_);
      case 2: return of_two(w);
      case 3: return of_three(w);
      case 4:
        if (is(w[0], "!")) return inverted(verdict(w.subspan(1)));
        if (is(w[0], "(") && is(w[3], ")")) return verdict(w.subspan(1, 2));
        return expression(w);
      default: return expression(w);
    }
  }

 private:
  static bool is(const ShellText& word, std::string_view text) {
    return word.known() && word.shown() == text;
  }
  static ShellVerdict inverted(ShellVerdict verdict) {
    verdict.truth = negated(verdict.truth);
    return verdict;
  }
  static ShellVerdict untold(std::span<const ShellText> words) {
    ShellVerdict out{Truth::unknown, {}};
    for (const ShellText& word : words) add_names(out.names, word.names());
    return out;
  }

  ShellVerdict of_two(std::span<const ShellText> w) const {
    if (!w[0].known()) return untold(w);
    if (is(w[0], "!")) return inverted(verdict(w.subspan(1)));
    if (!is_unary_test(w[0].shown())) throw TestFailure();
    return tested_text(w[0].shown(), w[1], is_set_);
  }

  ShellVerdict of_three(std::span<const ShellText> w) const {
    if (!w[1].known()) return untold(w);
    const std::string sign = w[1].shown();
    if (is_binary_test(sign)) return binary(w[0], sign, w[2]);
    if (sign == "-a" || sign == "-o") {
      const ShellVerdict a = verdict(w.subspan(0, 1)), b = verdict(w.subspan(2));
      return sign == "-a" ? both_hold(a, b) : either_holds(a, b);
    }
    if (is(w[0], "!")) return inverted(verdict(w.subspan(1)));
    if (is(w[0], "(") && is(w[2], ")")) return verdict(w.subspan(1, 1));
    throw TestFailure();
  }

  static ShellVerdict binary(const ShellText& a, const std::string& sign, const ShellText& b) {
    return compares_numbers(sign) ? compared_numbers(a, sign, b) : compared_texts(a, sign, b);
  }

  /// Of more words: comparisons with -a, which binds closer, and -o.
  ShellVerdict expression(std::span<const ShellText> w) const {
    std::size_t at = 0;
    ShellVerdict out = conjunction(w, at);
    while (at < w.size() && is(w[at], "-o")) out = either_holds(out, conjunction(w, ++at));
    return at == w.size() ? out : untold(w);
  }

  ShellVerdict conjunction(std::span<const ShellText> w, std::size_t& at) const {
    ShellVerdict out = one(w, at);
    while (at < w.size() && is(w[at], "-a")) out = both_hold(out, one(w, ++at));
    return out;
  }

  ShellVerdict one(std::span<const ShellText> w, std::size_t& at) const {
    if (at >= w.size()) throw TestFailure();
    if (is(w[at], "!")) return inverted(one(w, ++at));
    if (at + 2 < w.size() && w[at + 1].known() && is_binary_test(w[at + 1].shown())) {
      at += 3;
      return binary(w[at - 3], w[at - 2].shown(), w[at - 1]);
    }
    if (at + 1 < w.size() && w[at].known() && is_unary_test(w[at].shown())) {
      at += 2;
      return tested_text(w[at - 2].shown(), w[at - 1], is_set_);
    }
    at = w.size() + 1;  // parentheses and the like
    return untold(w);
  }

  std::span<const ShellText> words_;
  const std::function<Truth(const std::string&)>& is_set_;
};

}  // namespace

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

std::optional<bool> matches_pattern(std::string_view text, std::string_view pattern) {
  if (is_extended(pattern) || !is_ascii(text)) return {};
  std::size_t at = 0, p = 0, star = std::string_view::npos, behind = 0;
  while (at < text.size()) {
    Match match = Match::no;
    std::size_t next = p;
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      behind = at;
      continue;
    }
    if (p < pattern.size()) match = match_of_one(pattern, next, text[at]);
    if (match == Match::unknown) return {};
    if (match == Match::yes) {
      p = next;
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

ShellNumber arithmetic_value(const std::string& expression, ShellStore& store) {
  return Arithmetic(expression, store, 0).value();
}

bool is_unary_test(const std::string& word) {
  return word.size() == 2 && word[0] == '-' &&
         std::string_view("abcdefghknoprstuvwxzGLNORS").find(word[1]) != std::string_view::npos;
}

bool is_binary_test(const std::string& word) {
  constexpr std::array kSigns{"=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"};
  return compares_numbers(word) || std::ranges::find(kSigns, word) != kSigns.end();
}

ShellVerdict compared_texts(const ShellText& a, const std::string& sign, const ShellText& b) {
  const bool equality = sign == "=" || sign == "==" || sign == "!=";
  const auto blank = [](const ShellText& text) { return text.empty() || text.absent(); };
  if (equality && blank(a) && blank(b))
    return {truth_of(sign != "!="), {}};  // "$A" = "" asks whether it is set
  ShellVerdict out{Truth::unknown, a.names()};
  add_names(out.names, b.names());
  if (!a.known() || !b.known()) return out;
  if (equality) return {truth_of((a.shown() == b.shown()) == (sign != "!=")), {}};
  return out;
}

ShellVerdict tested_text(const std::string& sign, const ShellText& a,
                         const std::function<Truth(const std::string&)>& is_set) {
  if (sign == "-n" || sign == "-z") {
    const bool some_known = std::ranges::any_of(a.pieces, &ShellPiece::known);
    if (!some_known && !a.empty() && !a.absent()) return {Truth::unknown, a.names()};
    return {truth_of(some_known == (sign == "-n")), {}};
  }
  if (sign == "-v" && a.known()) {
    const Truth set = is_set(a.shown());
    return {set, set == Truth::unknown ? ShellNames{a.shown()} : ShellNames{}};
  }
  return {Truth::unknown, {}};  // files, which are not looked at
}

ShellVerdict truth_of_test(std::span<const ShellText> words,
                           const std::function<Truth(const std::string&)>& is_set) {
  try {
    return Test(words, is_set).verdict(words);
  } catch (const TestFailure&) {
    return {};
  }
}

}  // namespace penstock
