#include "scenarios/shell_values.hpp"

#include "base/numbers.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <span>

namespace penstock {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Sums and products of whole numbers; none where it is anything else.
class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}
  std::optional<std::int64_t> value() {
    const auto all = sum();
    skip();
    return at_ == text_.size() ? all : std::nullopt;
  }

 private:
  using Number = std::optional<std::int64_t>;
  static constexpr std::int64_t kMost = 1'000'000'000'000;

  void skip() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  bool take_char(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Number sum() {
    Number left = product();
    while (left) {
      const bool plus = take_char('+');
      if (!plus && !take_char('-')) break;
      const Number right = product();
      left = right ? bounded(plus ? *left + *right : *left - *right) : std::nullopt;
    }
    return left;
  }
  Number product() {
    Number left = number();
    while (left) {
      const char sign = take_char('*') ? '*' : take_char('/') ? '/' : take_char('%') ? '%' : '\0';
      if (sign == '\0') break;
      const Number right = number();
      if (!right || (sign != '*' && *right == 0)) return std::nullopt;
      left = sign == '*'   ? bounded(*left, *right)
             : sign == '/' ? Number(*left / *right)
                           : Number(*left % *right);
    }
    return left;
  }
  Number number() {
    if (++depth_ > 100) return std::nullopt;
    if (take_char('(')) {
      const Number inner = sum();
      return take_char(')') ? inner : std::nullopt;
    }
    skip();
    std::int64_t value = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_)
      value = std::min(kMost, value * 10 + (text_[at_] - '0'));
    return at_ > begin ? Number(value) : std::nullopt;
  }
  static Number bounded(std::int64_t value) {
    return value >= -kMost && value <= kMost ? Number(value) : std::nullopt;
  }
  static Number bounded(std::int64_t a, std::int64_t b) {
    if (a != 0 && std::abs(b) > kMost / std::abs(a)) return std::nullopt;
    return a * b;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

Truth truth_of(bool value) { return value ? Truth::yes : Truth::no; }

Truth compared(const std::string& a, const std::string& sign, const std::string& b) {
  const bool pattern = b.find_first_of("*?") != b.npos;
  if (sign == "=" || sign == "==") return pattern ? Truth::unknown : truth_of(a == b);
  if (sign == "!=") return pattern ? Truth::unknown : truth_of(a != b);
  const auto left = parse_number<std::int64_t>(a), right = parse_number<std::int64_t>(b);
  if (!left || !right) return Truth::unknown;
  if (sign == "-eq") return truth_of(*left == *right);
  if (sign == "-ne") return truth_of(*left != *right);
  if (sign == "-lt") return truth_of(*left < *right);
  if (sign == "-le") return truth_of(*left <= *right);
  if (sign == "-gt") return truth_of(*left > *right);
  return sign == "-ge" ? truth_of(*left >= *right) : Truth::unknown;
}

Truth truth_of_words(std::span<const std::string> words) {
  if (words.empty()) return Truth::no;
  if (words.size() == 1) return truth_of(!words[0].empty());
  if (words.size() == 2 && words[0] == "-n") return truth_of(!words[1].empty());
  if (words.size() == 2 && words[0] == "-z") return truth_of(words[1].empty());
  return words.size() == 3 ? compared(words[0], words[1], words[2]) : Truth::unknown;
}

}  // namespace

std::optional<std::int64_t> arithmetic_value(std::string_view text) {
  return Arithmetic(text).value();
}

Truth negated(Truth truth) {
  return truth == Truth::yes ? Truth::no : truth == Truth::no ? Truth::yes : Truth::unknown;
}

Truth truth_of_test(const std::vector<std::string>& words) {
  const auto untold = [](const std::string& w) { return w.find_first_of("$`") != w.npos; };
  if (std::ranges::any_of(words, untold)) return Truth::unknown;
  std::span<const std::string> rest(words);
  bool holds = true;
  for (; rest.size() > 1 && rest[0] == "!"; rest = rest.subspan(1)) holds = !holds;
  return holds ? truth_of_words(rest) : negated(truth_of_words(rest));
}

std::vector<std::string> variables_in(std::string_view value) {
  std::vector<std::string> names;
  bool arithmetic = false;  // where names need no '$'
  for (std::size_t i = 0; i < value.size();) {
    if (value.substr(i).starts_with("$((")) arithmetic = true;
    const bool marked = i > 0 && value[i - 1] == '$' && is_name(value[i]);
    const bool begins = marked || (arithmetic && is_letter(value[i]));
    std::size_t end = i;
    while (end < value.size() && is_name(value[end])) ++end;
    if (begins && std::ranges::find(names, value.substr(i, end - i)) == names.end())
      names.emplace_back(value.substr(i, end - i));
    i = std::max(end, i + 1);
  }
  return names;
}

}  // namespace penstock
