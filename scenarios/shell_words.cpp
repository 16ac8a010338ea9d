#include "scenarios/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace penstock {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

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
  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Number sum() {
    Number left = product();
    while (left) {
      const bool plus = take('+');
      if (!plus && !take('-')) break;
      const Number right = product();
      left = right ? bounded(plus ? *left + *right : *left - *right) : std::nullopt;
    }
    return left;
  }
  Number product() {
    Number left = number();
    while (left) {
      const bool times = take('*');
      if (!times && !take('/')) break;
      const Number right = number();
      if (!right || (!times && *right == 0)) return std::nullopt;
      left = times ? bounded(*left, *right) : *left / *right;
    }
    return left;
  }
  Number number() {
    if (++depth_ > 100) return std::nullopt;
    if (take('(')) {
      const Number inner = sum();
      return take(')') ? inner : std::nullopt;
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

struct Word {
  std::string text;
  int line = 0;
  bool first = false;  ///< of a command
};

class Script {
 public:
  explicit Script(std::string_view text) : text_(text) {}

  std::vector<Word> words() {
    while (at_ < text_.size()) next();
    return std::move(words_);
  }

 private:
  static constexpr std::size_t kLongest = 65'536;  // of a word with its variables, about
  static constexpr int kDeepest = 20;              // of defaults within defaults

  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char after() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }

  void next() {
    const char c = here();
    if (c == '\n') {
      ++line_, ++at_;
      first_ = first_ || open_ == 0;  // in an array lines end nothing
    } else if (is_blank(c) || std::string_view("();|&<>{}").find(c) != std::string_view::npos) {
      open_ = std::max(0, open_ + (c == '(' ? 1 : c == ')' ? -1 : 0));
      first_ = first_ || c == ';' || c == '|' || c == '&';
      ++at_;
    } else if (c == '\\' && (after() == '\n' || after() == '\r')) {
      at_ += after() == '\r' && text_.substr(at_ + 2).starts_with('\n') ? 3 : 2;
      ++line_;
    } else if (c == '#') {
      comment();
    } else {
      word();
    }
  }

  void comment() {
    constexpr std::string_view kBatch = "#SBATCH";
    if (text_.substr(at_).starts_with(kBatch)) {
      at_ += kBatch.size();
      return;
    }
    while (at_ < text_.size() && here() != '\n') ++at_;
  }

  void word() {
    const int line = line_;
    std::string out;
    std::size_t name_end = 0;  // of an assignment
    while (at_ < text_.size() && out.size() < kLongest) {
      const char c = here();
      if (c == '\\' && after() == '\n') break;
      if (is_blank(c) || std::string_view("();|&<>").find(c) != std::string_view::npos) break;
      if (c == '=' && name_end == 0 && !out.empty() && std::ranges::all_of(out, is_name) &&
          std::isdigit(static_cast<unsigned char>(out[0])) == 0)
        name_end = out.size();
      append(out);
    }
    if (name_end > 0) return assign(out.substr(0, name_end), out.substr(name_end + 1), line);
    push(out, line);
  }

  /// What stands here of a word: a quoted part, a variable, a character.
  void append(std::string& out) {
    const char c = here();
    if (c == '\'') {
      for (++at_; at_ < text_.size() && here() != '\''; ++at_) out += plain();
      ++at_;
    } else if (c == '"') {
      for (++at_; at_ < text_.size() && here() != '"' && out.size() < kLongest;) {
        if (here() == '$') {
          variable(out);
        } else {
          if (here() == '\\' && after() != '\0') ++at_;
          out += plain();
          ++at_;
        }
      }
      ++at_;
    } else if (c == '$') {
      variable(out);
    } else {
      if (c == '\\' && after() != '\0') ++at_;
      out += plain();
      ++at_;
    }
  }

  char plain() {
    if (here() == '\n') ++line_;
    return here() == '\n' ? ' ' : here();
  }

  /// $NAME, ${NAME}, ${NAME:-otherwise}, ${NAME[@]}, $((...)), $(...).
  void variable(std::string& out) {
    ++at_;
    if (here() == '(') return parenthesis(out);
    const bool braces = here() == '{';
    if (braces) ++at_;
    std::string name;
    for (; is_name(here()); ++at_) name += here();
    std::string otherwise;
    if (braces) {
      const std::size_t begin = at_;
      for (int open = 1; at_ < text_.size() && here() != '\n'; ++at_) {
        open += here() == '{' ? 1 : here() == '}' ? -1 : 0;
        if (open == 0) break;
      }
      otherwise = std::string(text_.substr(begin, at_ - begin));
      if (here() == '}') ++at_;
    }
    if (otherwise.starts_with("[")) return;  // an array, whose words were there before
    const auto known = values_.find(name);
    if (known != values_.end()) {
      if (!holds_options(known->second) && out.size() < kLongest) out += known->second;
      return;
    }
    const bool with_colon = otherwise.starts_with(":-") || otherwise.starts_with(":=");
    if ((with_colon || otherwise.starts_with("-")) && depth_ < kDeepest) {
      Script inner(otherwise);
      inner.at_ = with_colon ? 2 : 1;
      inner.values_ = values_;
      inner.depth_ = depth_ + 1;
      while (inner.at_ < otherwise.size() && out.size() < kLongest) inner.append(out);
      return;
    }
    out += name.empty() ? "$" : "$" + name;
  }

  void parenthesis(std::string& out) {
    const std::size_t begin = at_;
    int depth = 0;
    std::string inner;
    do {
      if (here() == '(') ++depth;
      if (here() == ')') --depth;
      if (here() == '$' && (is_name(after()) || after() == '{')) {
        variable(inner);
        continue;
      }
      inner += plain();
      ++at_;
    } while (at_ < text_.size() && depth > 0 && inner.size() < kLongest);
    if (inner.starts_with("((") && inner.ends_with("))")) {
      std::string sum;
      for (std::size_t i = 2; i + 2 < inner.size();) sum += named(inner, i);
      if (const auto value = Arithmetic(sum).value()) {
        out += std::to_string(*value);
        return;
      }
    }
    out += text_.substr(begin - 1, at_ - begin + 1);
  }

  /// In arithmetic names need no '$'.
  std::string named(const std::string& text, std::size_t& i) const {
    if (!is_name(text[i]) || std::isdigit(static_cast<unsigned char>(text[i])) != 0)
      return std::string(1, text[i++]);
    std::string name;
    for (; i < text.size() && is_name(text[i]); ++i) name += text[i];
    const auto known = values_.find(name);
    return known == values_.end() ? name : known->second;
  }

  static bool holds_options(const std::string& text) {
    return text.starts_with("--") || text.find(" --") != std::string::npos;
  }

  void assign(const std::string& name, const std::string& value, int line) {
    if (holds_options(value)) push(value, line);
    values_[name] = value;
  }

  /// Quoted options are words, too.
  void push(const std::string& text, int line) {
    if (!holds_options(text)) {
      if (!text.empty()) words_.push_back({text, line, std::exchange(first_, false)});
      return;
    }
    std::string one;
    for (const char c : text + " ") {
      if (!is_blank(c)) {
        one += c;
      } else if (!one.empty()) {
        words_.push_back({std::exchange(one, ""), line, std::exchange(first_, false)});
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  int open_ = 0;       // parentheses
  bool first_ = true;  // is the next word a command's first?
  std::map<std::string, std::string> values_;
  std::vector<Word> words_;
};

/// "-5" and "-" are values.
bool is_option(const std::string& word) { return word.starts_with("--") && word.size() > 2; }

}  // namespace

std::vector<ScriptOption> script_options(std::string_view text) {
  std::vector<ScriptOption> out;
  int line_of_last = 0;
  for (Word& word : Script(text).words()) {
    if (is_option(word.text)) {
      const std::size_t equals = word.text.find('=');
      ScriptOption option{
          word.text.substr(2, equals == std::string::npos ? equals : equals - 2), {}, word.line};
      std::ranges::replace(option.name, '_', '-');
      if (equals != std::string::npos) option.values.push_back(word.text.substr(equals + 1));
      out.push_back(std::move(option));
      line_of_last = word.line;
    } else if (!out.empty() && word.line <= line_of_last + 1 &&
               (!word.first || out.back().values.empty())) {
      out.back().values.push_back(std::move(word.text));
      line_of_last = word.line;
    }
  }
  return out;
}

}  // namespace penstock
