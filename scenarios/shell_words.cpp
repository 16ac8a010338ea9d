#include "scenarios/shell_words.hpp"

#include "scenarios/shell_values.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

namespace penstock {
namespace {

bool is_option(std::string_view word) {  // "-5" and "-" are values
  return word.starts_with("--") && word.size() > 2;
}

/// Where a word stands in its command: later in it, or first, on a line or behind a separator.
enum class Start : std::uint8_t { inside, line, separator };

struct Word {
  std::string text;  ///< empty: what was before ends here
  int line = 0;
  Start start = Start::inside;
  std::string condition;
};

struct Condition {
  Truth truth = Truth::yes;
  std::string text;  ///< where it is unknown
};

/// No longer than what is shown.
std::string with_sign(const std::string& a, const char* sign, const std::string& b) {
  constexpr std::size_t kShown = 200;
  return a.size() > kShown ? a : a + sign + b;
}

Condition both(const Condition& a, const Condition& b) {
  if (a.truth == Truth::no || b.truth == Truth::no) return {Truth::no, ""};
  if (a.truth == Truth::yes) return b;
  if (b.truth == Truth::yes || a.text == b.text) return a;
  return {Truth::unknown, with_sign(a.text, " && ", b.text)};
}

Condition either(const Condition& a, const Condition& b) {
  if (a.truth == Truth::yes || b.truth == Truth::yes) return {};
  if (a.truth == Truth::no) return b;
  return b.truth == Truth::no ? a : Condition{Truth::unknown, with_sign(a.text, " || ", b.text)};
}

struct Block {
  enum class Kind : std::uint8_t { branches, cases, group };  ///< if ... fi, case ... esac, { ... }
  Kind kind = Kind::branches;
  Condition now{};       ///< of the branch that is read
  bool decided = false;  ///< an earlier branch was taken
};

class Script {
 public:
  explicit Script(std::string_view text, const ShellVariables& defined = {})
      : text_(text), values_(defined), defined_(defined) {}

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
      if (open_ == 0) end_command(Start::line);  // in an array lines end nothing
    } else if (c == ';' || c == '|' || c == '&') {
      separator();
    } else if (c == '<' || c == '>') {
      redirection();
    } else if (c == '{' || c == '}') {
      brace(c);
    } else if (is_blank(c) || c == '(' || c == ')') {
      open_ = std::max(0, open_ + (c == '(' ? 1 : c == ')' ? -1 : 0));
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

  void separator() {
    const char c = here();
    const bool twice = after() == c;
    const std::size_t begin = at_;
    at_ += twice ? 2 : 1;
    if (test_ && !test_.plain)
      return test_.words.emplace_back(text_.substr(begin, at_ - begin)), void();
    if (test_) end_test(begin);
    if (c == ';' || (c == '&' && !twice)) return end_command(Start::separator);
    first_ = Start::separator;
    if (!twice) return;  // a pipe
    barrier();
    next_is_or_ = c == '|';
    const Truth so_far = result_.truth;
    if (next_is_or_ && so_far == Truth::unknown && !chained_)
      guard_ = {Truth::unknown, "! " + result_.text};
    else
      guard_ = next_is_or_ ? Condition{so_far == Truth::no ? Truth::yes : Truth::no, ""} : result_;
    chained_ = chained_ || (!next_is_or_ && so_far == Truth::unknown);
  }

  /// What comes next is no longer of this list of commands.
  void end_command(Start start) {
    if (test_) end_test(at_ - 1);
    first_ = start;
    if (asking_) return;  // `if A; then`: what A was is still to be looked at
    guard_ = result_ = {};
    chained_ = next_is_or_ = negate_ = false;
  }

  /// `> file`, `2>&1`: no word of a command.
  void redirection() {
    if (test_) test_.words.emplace_back(1, here());
    while (here() == '<' || here() == '>' || here() == '&') ++at_;
    redirected_ = !test_;
  }

  void barrier() { words_.push_back({"", line_, Start::separator, ""}); }

  void comment() {
    constexpr std::string_view kBatch = "#SBATCH";
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    if (text_.substr(at_).starts_with(kBatch))
      batch_options(std::string(text_.substr(at_ + kBatch.size(), end - at_ - kBatch.size())));
    at_ = end;
  }

  /// Of a line `#SBATCH --nodes=4 -N4 --gres=gpu:8`.
  void batch_options(std::string line) {
    line = line.substr(0, line.find('#'));
    std::ranges::replace(line, '=', ' ');
    std::string name;
    std::size_t at = 0;
    while ((at = line.find_first_not_of(" \t\r", at)) != line.npos) {
      const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
      std::string one = line.substr(at, end - at);
      at = end;
      if (one.starts_with("-N")) {
        if (one.size() > 2) line.insert(at, " " + one.substr(2));
        one = "--nodes";
      }
      words_.push_back({one, line_, is_option(one) ? Start::separator : Start::inside, ""});
      if (one.starts_with('-')) {
        name = one;
      } else {
        give_batch_variable(name, one);
      }
    }
    barrier();
  }

  /// What Slurm tells its jobs of their options.
  void give_batch_variable(const std::string& option, std::string value) {
    if (option == "--gres" || option == "--gpus-per-node") {
      value = value.substr(value.rfind(':') + 1);
      give("SLURM_GPUS_ON_NODE", value);
      give("SLURM_GPUS_PER_NODE", value);
      if (option == "--gres") {
        words_.push_back({"--gpus-per-node", line_, Start::separator, ""});
        words_.push_back({value, line_, Start::inside, ""});
      }
    } else if (option == "--nodes") {
      for (const char* name : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) give(name, value);
    } else if (option == "--ntasks-per-node") {
      give("SLURM_NTASKS_PER_NODE", value);
    } else if (option == "--ntasks") {
      for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS"}) give(name, value);
    }
  }

  void give(const std::string& name, const std::string& value) {
    if (!defined_.contains(name)) values_[name] = value;
  }

  void word() {
    const int line = line_;
    const std::size_t begin = at_;
    std::string out;
    std::size_t name_end = 0;  // of an assignment
    of_word_.clear();
    while (at_ < text_.size() && out.size() < kLongest) {
      const char c = here();
      if (c == '\\' && after() == '\n') break;
      if (is_blank(c) || std::string_view("();|&<>").find(c) != std::string_view::npos) break;
      if (c == '=' && name_end == 0 && !out.empty() && std::ranges::all_of(out, is_name) &&
          std::isdigit(static_cast<unsigned char>(out[0])) == 0)
        name_end = out.size();
      append(out);
    }
    const std::string_view raw = text_.substr(begin, at_ - begin);
    if (test_) return word_of_test(raw, std::move(out));
    if (std::exchange(redirected_, false)) return;
    if ((here() == '>' || here() == '<') && std::ranges::all_of(raw, is_name) && raw.size() == 1)
      return;  // 2>&1
    if (first_ != Start::inside && (keyword(raw, begin) || pattern())) return;
    if (name_end > 0) return assign(out.substr(0, name_end), out.substr(name_end + 1), line);
    if (asking_) {
      const Condition told{Truth::unknown, std::string(raw)};
      result_ = next_is_or_ ? either(result_, told) : both(result_, told);
      first_ = Start::inside;
      return;
    }
    push(out, line, std::exchange(first_, Start::inside));
  }

  // ---- conditions

  /// Words between `[` and `]`, or behind `test`.
  struct Test {
    bool open = false, plain = false;
    std::size_t begin = 0;
    std::vector<std::string> words;
    explicit operator bool() const { return open; }
  };

  void word_of_test(std::string_view raw, std::string out) {
    if (!test_.plain && (raw == "]" || raw == "]]")) return end_test(at_);
    test_.words.push_back(std::move(out));
  }

  void end_test(std::size_t end) {
    Condition found{truth_of_test(test_.words), source(test_.begin, end)};
    if (std::exchange(negate_, false)) found.truth = negated(found.truth);
    if (found.truth != Truth::unknown) found.text.clear();
    result_ = next_is_or_ ? either(result_, found) : both(result_, found);
    test_ = {};
    first_ = Start::inside;
  }

  /// In one line.
  std::string source(std::size_t begin, std::size_t end) const {
    std::string out;
    for (const char c : text_.substr(begin, end - begin))
      if (!is_blank(c) || (!out.empty() && out.back() != ' ')) out += is_blank(c) ? ' ' : c;
    while (out.ends_with(' ') || out.ends_with(';')) out.pop_back();
    return out;
  }

  bool keyword(std::string_view raw, std::size_t begin) {
    if (raw == "[" || raw == "[[" || raw == "test") {
      test_ = {true, raw == "test", begin, {}};
    } else if (raw == "if") {
      open_block({});
      ask();
    } else if (raw == "elif" && !blocks_.empty()) {
      blocks_.back().now = {};
      ask();
    } else if (raw == "then" && asking_) {
      take_branch(result_.truth == Truth::unknown
                      ? Condition{Truth::unknown, source(asked_from_, begin)}
                      : result_);
    } else if (raw == "else" && !blocks_.empty()) {
      take_branch({});
    } else if ((raw == "fi" || raw == "esac") && !blocks_.empty()) {
      blocks_.pop_back();
      asking_ = false;
    } else if (raw == "case") {
      const std::size_t line_end = std::min(text_.find('\n', at_), text_.size());
      const std::size_t in = text_.find(" in", at_);
      at_ = in < line_end ? in + 3 : line_end;
      open_block({Block::Kind::cases, {Truth::unknown, source(begin, at_)}});
      first_ = Start::separator;
    } else if (raw == "!") {
      negate_ = !negate_;
    } else if (raw != "do" && raw != "done" && raw != "while" && raw != "until" && raw != "fi" &&
               raw != "then" && raw != "else" && raw != "esac") {
      return false;
    }
    barrier();
    return true;
  }

  void open_block(Block block) {
    constexpr std::size_t kMostOpen = 50;
    if (blocks_.size() < kMostOpen) blocks_.push_back(std::move(block));
  }

  void ask() {
    asking_ = true;
    asked_from_ = at_;
    result_ = guard_ = {};
    chained_ = next_is_or_ = false;
  }

  /// The first branch that is not known to be passed over is the one.
  void take_branch(Condition condition) {
    asking_ = false;
    end_command(Start::separator);
    Block& block = blocks_.back();
    block.now = block.decided ? Condition{Truth::no, ""} : std::move(condition);
    block.decided = block.decided || block.now.truth != Truth::no;
  }

  /// `one|two)` of a `case`.
  bool pattern() {
    if (blocks_.empty() || blocks_.back().kind != Block::Kind::cases) return false;
    if (here() != ')' && (here() != '|' || after() == '|')) return false;
    if (here() == ')') open_ = std::max(0, open_ - 1);
    ++at_;
    first_ = Start::separator;
    return true;
  }

  /// `[ A ] && { ...; }`
  void brace(char c) {
    const bool closes = !blocks_.empty() && blocks_.back().kind == Block::Kind::group;
    if (c == '{' && first_ != Start::inside && (is_blank(after()) || after() == '\0'))
      open_block({Block::Kind::group, guard_});
    else if (c == '}' && closes)
      blocks_.pop_back();
    ++at_;
  }

  Condition here_under() const {
    Condition all = guard_;
    for (const Block& block : blocks_) all = both(block.now, all);
    return all;
  }

  // ---- words

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
    if (here() == '@' || here() == '*') {  // what a caller adds
      ++at_;
      return;
    }
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
    if (name.empty() && otherwise.find_first_of("@*") == 0) return;
    const auto known = values_.find(name);
    if (known != values_.end()) {
      note_condition_of(name);
      if ((test_ || !holds_options(known->second)) && out.size() < kLongest) out += known->second;
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
      const auto value = arithmetic_value(sum);
      out += value ? std::to_string(*value) : "$((" + sum + "))";
      return;
    }
    out += text_.substr(begin - 1, at_ - begin + 1);
  }

  /// In arithmetic names need no '$'.
  std::string named(const std::string& text, std::size_t& i) {
    if (!is_name(text[i]) || std::isdigit(static_cast<unsigned char>(text[i])) != 0)
      return std::string(1, text[i++]);
    std::string name;
    for (; i < text.size() && is_name(text[i]); ++i) name += text[i];
    const auto known = values_.find(name);
    if (known == values_.end()) return name;
    note_condition_of(name);
    return known->second;
  }

  static bool holds_options(const std::string& text) {
    return text.starts_with("--") || text.find(" --") != std::string::npos;
  }

  void note_condition_of(const std::string& name) {
    if (const auto at = conditions_.find(name); at != conditions_.end()) of_word_ = at->second;
  }

  void assign(const std::string& name, const std::string& value, int line) {
    if (value.empty() && here() == '(') first_ = Start::inside;  // an array
    const Condition under = here_under();
    if (under.truth == Truth::no) return;
    if (holds_options(value)) push(value, line, Start::inside);
    if (defined_.contains(name)) return;
    const std::size_t called = value.find("$(");
    const bool output =
        (called != value.npos && value.substr(called, 3) != "$((") || value.find('`') != value.npos;
    if (output) {  // of a command: what it is called is all there is
      values_.erase(name);
      return;
    }
    values_[name] = value;
    const std::string condition = under.truth == Truth::unknown ? under.text : of_word_;
    if (condition.empty())
      conditions_.erase(name);
    else
      conditions_[name] = condition;
  }

  /// Quoted options are words, too.
  void push(const std::string& text, int line, Start start) {
    const Condition under = here_under();
    if (start != Start::inside) command_ = text;
    if (under.truth == Truth::no || text.empty()) return;
    const std::string condition = under.truth == Truth::unknown ? under.text : of_word_;
    if (start == Start::inside && command_ == "srun" && text.starts_with("-N")) {
      words_.push_back({"--nodes", line, start, condition});
      if (text.size() > 2) words_.push_back({text.substr(2), line, start, condition});
      return;
    }
    if (!holds_options(text)) {
      words_.push_back({text, line, start, condition});
      return;
    }
    std::string one;
    for (const char c : text + " ") {
      if (!is_blank(c)) {
        one += c;
      } else if (!one.empty()) {
        words_.push_back(
            {std::exchange(one, ""), line, std::exchange(start, Start::inside), condition});
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  int open_ = 0;               // parentheses
  Start first_ = Start::line;  // of the next word
  bool redirected_ = false;    // the next word is a file's name
  std::string command_;        // that is read
  ShellVariables values_, defined_;
  ShellVariables conditions_;  // under which variables have their values
  std::string of_word_;        // that of a variable in it
  std::vector<Word> words_;

  std::vector<Block> blocks_;
  Test test_;
  bool asking_ = false;  // between `if` and `then`
  std::size_t asked_from_ = 0;
  // Of a list such as `[ A ] && B || C`:
  Condition result_, guard_;  // what it came to so far, and when the next command runs
  bool chained_ = false;      // a command ran under an unknown condition
  bool next_is_or_ = false, negate_ = false;
};

}  // namespace

std::vector<ScriptOption> script_options(std::string_view text, const ShellVariables& defined) {
  std::vector<ScriptOption> out;
  int line_of_last = 0;
  bool open = false, first_of_line = false;
  for (Word& word : Script(text, defined).words()) {
    if (is_option(word.text)) {
      const std::size_t equals = word.text.find('=');
      ScriptOption option{word.text.substr(2, equals == std::string::npos ? equals : equals - 2),
                          {},
                          word.line,
                          std::move(word.condition)};
      std::ranges::replace(option.name, '_', '-');
      if (equals != std::string::npos) option.values.push_back(word.text.substr(equals + 1));
      out.push_back(std::move(option));
      line_of_last = word.line;
      open = true;
      first_of_line = word.start == Start::line;
      continue;
    }
    const bool a_word_a_line =
        word.start == Start::line && first_of_line && open && out.back().values.empty();
    open = open && !word.text.empty() && word.line <= line_of_last + 1 &&
           (word.start == Start::inside || a_word_a_line);
    if (!open) continue;
    if (out.back().condition.empty()) out.back().condition = std::move(word.condition);
    out.back().values.push_back(std::move(word.text));
    line_of_last = word.line;
  }
  return out;
}

}  // namespace penstock
