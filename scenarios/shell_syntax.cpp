// SPDX-License-Identifier: Apache-2.0
#include "scenarios/shell_syntax.hpp"

#include "scenarios/shell_values.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace penstock {
namespace {

constexpr int kDeepestNesting = 60;
constexpr int kMostInList = 200;  // commands with && and || between them

bool is_letter_of_name(char c) { return is_name(c) && (c < '0' || c > '9'); }

bool is_operator(char c) { return std::string_view("();|&<>").find(c) != std::string_view::npos; }

[[noreturn]] void refuse(const ShellSource& source, std::size_t at, const std::string& message) {
  throw ShellError{source.place(std::min(at, source.text.size())), message};
}

char char_at(const std::string& text, std::size_t at) { return at < text.size() ? text[at] : '\0'; }

std::size_t end_of_single_quotes(const ShellSource& source, std::size_t at) {
  const std::size_t end = source.text.find('\'', at + 1);
  if (end == std::string::npos) refuse(source, at, "the quote ' is not closed");
  return end + 1;
}

std::size_t end_of_ansi_quotes(const ShellSource& source, std::size_t at) {
  for (std::size_t i = at + 1; i < source.text.size(); ++i) {
    if (source.text[i] == '\\')
      ++i;
    else if (source.text[i] == '\'')
      return i + 1;
  }
  refuse(source, at, "the quote $' is not closed");
}

/// How deeply quotes, braces and parentheses lie in one another, of one reading.
class Nesting {
 public:
  Nesting(const ShellSource& source, std::size_t at) {
    if (++depth_ > kDeepestNesting) {
      --depth_;
      refuse(source, at, "is nested too deeply");
    }
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  static thread_local int depth_;
};
thread_local int Nesting::depth_ = 0;

class ScriptReader {
 public:
  ScriptReader(const ShellSource& source, std::size_t begin, std::size_t end, bool lines)
      : source_(source), text_(source.text), at_(begin), end_(end), lines_(lines) {}

  ShellTree script() {
    ShellTree all = sequence({});
    if (at_ < end_) fail(at_, "is not expected here");
    return all;
  }

 private:
  using Kind = ShellNode::Kind;
  using Node = std::shared_ptr<ShellNode>;

  char here(std::size_t ahead = 0) const { return at_ + ahead < end_ ? text_[at_ + ahead] : '\0'; }
  bool ended() const { return at_ >= end_; }

  [[noreturn]] void fail(std::size_t at, const std::string& message) const {
    std::size_t stop = at;
    while (stop < end_ && stop < at + 20 && !is_blank(text_[stop])) ++stop;
    const std::string word = text_.substr(at, std::max(stop, at + 1) - at);
    refuse(source_, at,
           at >= end_
               ? "the script ends where more is needed: " + message
               : "'" + (word == "\n" ? std::string("the line's end") : word) + "' " + message);
  }

  Node start(Kind kind) const {
    auto node = std::make_shared<ShellNode>();
    node->kind = kind;
    node->all = {&source_, at_, at_};
    return node;
  }

  Node finish(Node node) const {
    node->all.end = at_;
    while (node->all.end > node->all.begin && is_blank(text_[node->all.end - 1])) --node->all.end;
    return node;
  }

  // ---- blanks and lines

  void skip_blanks() {
    while (!ended()) {
      const char c = here();
      if (c == '\\' && here(1) == '\n')
        at_ += 2;
      else if (c == '\n' ? !lines_ : is_blank(c))
        ++at_;
      else if (c == '#')
        at_ = std::min(text_.find('\n', at_), end_);
      else
        return;
    }
  }

  void take_line_end() {
    ++at_;
    for (const auto& [node, index] : std::exchange(documents_, {}))
      read_document(node->redirections[index]);
  }

  void skip_lines() {
    for (skip_blanks(); here() == '\n'; skip_blanks()) take_line_end();
  }

  /// The lines of `<<`, up to the one that is its delimiter.
  void read_document(ShellRedirection& document) {
    std::string delimiter;
    for (const char c : document.word.text()) {
      if (c == '\'' || c == '"' || c == '\\')
        document.literal = true;
      else
        delimiter += c;
    }
    document.word = {&source_, at_, at_};
    while (!ended()) {
      const std::size_t line_end = std::min(text_.find('\n', at_), end_);
      std::size_t begin = at_;
      while (document.strips && begin < line_end && text_[begin] == '\t') ++begin;
      document.word.end = at_;
      at_ = std::min(line_end + 1, end_);
      if (text_.compare(begin, line_end - begin, delimiter) == 0) return;
    }
    document.word.end = end_;
  }

  // ---- words

  ShellWord word() {
    Nesting nesting(source_, at_);
    const std::size_t begin = at_;
    while (!ended()) {
      const char c = here();
      if ((c == '<' || c == '>') && here(1) == '(') {
        at_ = closing_parenthesis(source_, at_ + 2) + 1;
        continue;
      }
      const bool pattern = c == '(' && at_ > begin &&
                           std::string_view("?*+@!").find(text_[at_ - 1]) != std::string_view::npos;
      if (is_blank(c) || (is_operator(c) && !pattern)) break;
      skip_of_word(pattern);
    }
    at_ = std::min(at_, end_);
    return {&source_, begin, at_};
  }

  void skip_of_word(bool pattern) {
    const char c = here();
    if (pattern)
      at_ = closing_parenthesis(source_, at_ + 1) + 1;
    else if (c == '\\')
      at_ += 2;
    else if (c == '\'' || c == '"' || c == '`')
      at_ = end_of_quotes(source_, at_);
    else if (c == '$')
      at_ = end_of_dollar(source_, at_, false);
    else
      ++at_;
  }

  /// The word that begins here, where it is plain.
  std::string_view plain_word() const {
    std::size_t stop = at_;
    while (stop < end_ && !is_blank(text_[stop]) && !is_operator(text_[stop])) ++stop;
    return std::string_view(text_).substr(at_, stop - at_);
  }

  bool take_keyword(std::string_view keyword) {
    if (plain_word() != keyword) return false;
    at_ += keyword.size();
    return true;
  }

  void need_keyword(std::string_view keyword, const std::string& of) {
    skip_lines();
    if (!take_keyword(keyword))
      fail(at_, "stands where '" + std::string(keyword) + "' of '" + of + "' is expected");
  }

  // ---- lists of commands

  bool is_one_of(std::initializer_list<std::string_view> ends) const {
    if (here() == ')') return true;
    if (here() == ';' && here(1) == ';') return true;
    if (here() == ';' && here(1) == '&') return true;
    return std::ranges::find(ends, plain_word()) != ends.end();
  }

  Node sequence(std::initializer_list<std::string_view> ends) {
    Nesting nesting(source_, at_);
    skip_lines();
    Node all = start(Kind::sequence);
    for (skip_lines(); !ended() && !is_one_of(ends); skip_lines()) {
      Node one = and_or();
      skip_blanks();
      if (here() == '&' && here(1) != '&') {
        ++at_;
        Node background = start(Kind::background);
        background->all = one->all;
        background->children.push_back(std::move(one));
        one = background;
      } else if (here() == ';' && here(1) != ';' && here(1) != '&') {
        ++at_;
      } else if (here() != '\n' && !ended() && !is_one_of(ends)) {
        fail(at_, "is not expected here");
      }
      all->children.push_back(std::move(one));
    }
    return finish(all);
  }

  Node body(std::initializer_list<std::string_view> ends, const std::string& of) {
    Node all = sequence(ends);
    if (all->children.empty()) fail(at_, "stands where a command of '" + of + "' is expected");
    return all;
  }

  Node and_or() {
    int count = 0;
    Node left = pipeline();
    for (skip_blanks(); (here() == '&' || here() == '|') && here(1) == here(); skip_blanks()) {
      Node both = start(here() == '&' ? Kind::and_list : Kind::or_list);
      both->all.begin = left->all.begin;
      if (++count > kMostInList) fail(at_, "follows too many others");
      at_ += 2;
      skip_lines();
      both->children = {left, pipeline()};
      left = finish(both);
    }
    return left;
  }

  Node pipeline() {
    Node all = start(Kind::pipeline);
    bool negated = false;
    for (;; skip_blanks()) {
      if (take_keyword("!"))
        negated = !negated;
      else if (!take_keyword("time") && !(plain_word() == "-p" && take_keyword("-p")))
        break;
    }
    all->children.push_back(command());
    for (skip_blanks(); here() == '|' && here(1) != '|'; skip_blanks()) {
      at_ += here(1) == '&' ? 2 : 1;
      skip_lines();
      all->children.push_back(command());
    }
    all->negated = negated;
    return finish(all);
  }

  Node command() {
    Nesting nesting(source_, at_);
    const std::string_view first = plain_word();
    if (here() == '(' && here(1) == '(' && is_arithmetic_command())
      return with_redirections(arithmetic());
    if (here() == '(') return with_redirections(in_parentheses());
    if (first == "{") return with_redirections(in_braces());
    if (first == "if") return with_redirections(branches());
    if (first == "case") return with_redirections(cases());
    if (first == "for" || first == "select") return with_redirections(loop());
    if (first == "while" || first == "until") return with_redirections(repeat());
    if (first == "[[") return with_redirections(conditional());
    if (first == "function") return function_with_keyword();
    for (const char* keyword : {"then", "else", "elif", "fi", "do", "done", "esac", "}"})
      if (first == keyword) fail(at_, "is not expected here");
    return simple();
  }

  Node with_redirections(Node node) {
    finish(node);
    for (skip_blanks(); take_redirection(node); skip_blanks()) {
    }
    return node;
  }

  // ---- compound commands

  bool is_arithmetic_command() const {
    try {
      return is_arithmetic(source_, at_, closing_parenthesis(source_, at_ + 1));
    } catch (const ShellError&) {
      return false;
    }
  }

  Node arithmetic() {
    Node node = start(Kind::arithmetic);
    const std::size_t close = closing_parenthesis(source_, at_ + 1);
    node->words.push_back({&source_, at_ + 2, close - 1});
    at_ = close + 1;
    return node;
  }

  Node in_parentheses() {
    Node node = start(Kind::subshell);
    ++at_;
    node->children.push_back(body({}, "("));
    if (here() != ')') fail(at_, "stands where ')' is expected");
    ++at_;
    return node;
  }

  Node in_braces() {
    Node node = start(Kind::group);
    ++at_;
    node->children.push_back(body({"}"}, "{"));
    need_keyword("}", "{");
    return node;
  }

  Node branches() {
    Node node = start(Kind::branches);
    at_ += 2;
    node->children.push_back(body({"then"}, "if"));
    need_keyword("then", "if");
    node->children.push_back(body({"elif", "else", "fi"}, "then"));
    for (skip_lines(); take_keyword("elif"); skip_lines()) {
      node->children.push_back(body({"then"}, "elif"));
      need_keyword("then", "elif");
      node->children.push_back(body({"elif", "else", "fi"}, "then"));
    }
    if (take_keyword("else")) node->children.push_back(body({"fi"}, "else"));
    need_keyword("fi", "if");
    return node;
  }

  Node cases() {
    Node node = start(Kind::cases);
    at_ += 4;
    skip_blanks();
    node->words.push_back(word());
    node->all.end = at_;
    const ShellWord shown = node->all;
    need_keyword("in", "case");
    for (skip_lines(); plain_word() != "esac"; skip_lines()) {
      if (ended()) fail(at_, "'esac' of 'case'");
      node->patterns.push_back({case_patterns()});
      node->children.push_back(sequence({"esac"}));
      if (here() != ';') continue;
      const bool next = here(1) == '&';
      const bool others = here(1) == ';' && here(2) == '&';
      node->falls = node->falls || next || others;
      at_ += others ? 3 : 2;
    }
    need_keyword("esac", "case");
    node->words.push_back(shown);
    return node;
  }

  std::vector<ShellWord> case_patterns() {
    std::vector<ShellWord> patterns;
    if (here() == '(') ++at_;
    for (;; ++at_) {
      skip_blanks();
      patterns.push_back(word());
      if (patterns.back().begin == at_) fail(at_, "stands where a pattern of 'case' is expected");
      skip_blanks();
      if (here() != '|') break;
    }
    if (here() != ')') fail(at_, "stands where ')' of a pattern is expected");
    ++at_;
    return patterns;
  }

  Node loop() {
    Node node = start(Kind::loop);
    node->asks = plain_word() == "select";
    at_ += plain_word().size();
    skip_blanks();
    if (here() == '(' && here(1) == '(') return counting(node);
    node->name = word().text();
    if (node->name.empty() || !std::ranges::all_of(node->name, is_name))
      fail(at_ - node->name.size(), "is no name of a variable");
    skip_lines();
    node->negated = !take_keyword("in");
    if (!node->negated) {
      for (skip_blanks(); !ended() && here() != ';' && here() != '\n'; skip_blanks()) {
        node->words.push_back(word());
        if (node->words.back().begin == at_) fail(at_, "is not expected here");
      }
    }
    if (here() == ';') ++at_;
    return body_of_loop(node, "for");
  }

  Node counting(Node node) {
    node->kind = Kind::counting;
    const std::size_t close = closing_parenthesis(source_, at_ + 1);
    std::size_t begin = at_ + 2;
    for (std::size_t i = begin; i <= close - 1; ++i) {
      if (i < close - 1 && text_[i] != ';') continue;
      node->words.push_back({&source_, begin, i});
      begin = i + 1;
    }
    if (node->words.size() != 3) fail(at_, "does not have the three parts of 'for (('");
    at_ = close + 1;
    skip_blanks();
    if (here() == ';') ++at_;
    return body_of_loop(node, "for");
  }

  Node repeat() {
    Node node = start(Kind::repeat);
    node->negated = plain_word() == "until";
    at_ += 5;
    node->children.push_back(body({"do"}, "while"));
    return body_of_loop(node, "while");
  }

  Node body_of_loop(Node node, const std::string& of) {
    need_keyword("do", of);
    node->children.push_back(body({"done"}, "do"));
    need_keyword("done", of);
    return node;
  }

  /// Words and operators between [[ and ]].
  Node conditional() {
    Node node = start(Kind::conditional);
    at_ += 2;
    bool regular = false;
    for (skip_lines(); !(plain_word() == "]]"); skip_lines()) {
      if (ended()) fail(at_, "']]' of '[['");
      const std::size_t begin = at_;
      const char c = here();
      if (regular) {
        skip_expression();
      } else if ((c == '&' || c == '|') && here(1) == c) {
        at_ += 2;
      } else if (is_operator(c)) {
        if (c == ';' || c == '&' || c == '|') fail(at_, "is not expected between [[ and ]]");
        ++at_;
      } else {
        word();
      }
      node->words.push_back({&source_, begin, at_});
      regular = node->words.back().text() == "=~";
    }
    at_ += 2;
    return node;
  }

  /// A regular expression: its parentheses belong to it.
  void skip_expression() {
    int open = 0;
    while (!ended()) {
      const char c = here();
      if (open == 0 && is_blank(c)) return;
      if (c == '(') ++open;
      if (c == ')') --open;
      skip_of_word(false);
    }
  }

  Node function_with_keyword() {
    at_ += 8;
    skip_blanks();
    Node node = start(Kind::function);
    node->name = word().text();
    skip_blanks();
    if (here() == '(') {
      ++at_;
      skip_blanks();
      if (here() != ')') fail(at_, "stands where ')' is expected");
      ++at_;
    }
    skip_lines();
    node->children.push_back(command());
    return finish(node);
  }

  // ---- simple commands

  Node simple() {
    Node node = start(Kind::simple);
    bool takes_assignments = true;
    for (skip_blanks(); !ended(); skip_blanks()) {
      if (here() == '\n' || take_redirection(node)) {
        if (here() == '\n') break;
        continue;
      }
      if (is_operator(here()) && !((here() == '<' || here() == '>') && here(1) == '(')) break;
      ShellArgument argument;
      if (takes_assignments) argument.assignment = assignment();
      if (!argument.assignment) {
        argument.word = word();
        const std::string text = argument.word.text();
        const bool first = node->arguments.empty() || node->arguments.back().assignment;
        if (first && node->arguments.empty() && is_function_next()) return function(node, text);
        constexpr std::string_view kDeclare[] = {"export", "declare", "local", "readonly",
                                                 "typeset"};
        if (first || !declares_)
          declares_ = std::ranges::find(kDeclare, text) != std::end(kDeclare);
        takes_assignments = declares_;
      }
      node->arguments.push_back(std::move(argument));
    }
    declares_ = false;
    if (node->arguments.empty() && node->redirections.empty()) fail(at_, "is not expected here");
    return finish(node);
  }

  bool is_function_next() {
    const std::size_t before = at_;
    skip_blanks();
    if (here() == '(') {
      ++at_;
      skip_blanks();
      if (here() == ')') {
        ++at_;
        return true;
      }
    }
    at_ = before;
    return false;
  }

  Node function(Node node, const std::string& name) {
    node->kind = Kind::function;
    node->name = name;
    skip_lines();
    node->children.push_back(command());
    return finish(node);
  }

  bool take_redirection(const Node& node) {
    std::size_t at = at_;
    if (here() == '{' && is_letter_of_name(here(1))) {  // {name}> file
      ++at;
      while (at < end_ && is_name(text_[at])) ++at;
      if (char_at(text_, at) != '}') return false;
      ++at;
    } else {
      while (at < end_ && text_[at] >= '0' && text_[at] <= '9') ++at;
    }
    if (at == at_ && here() == '&' && here(1) == '>') ++at;
    const char c = at < end_ ? text_[at] : '\0';
    if (c != '<' && c != '>') return false;
    if (char_at(text_, at + 1) == '(') return false;  // <(command)
    const bool from_here = at == at_ || (at == at_ + 1 && here() == '0');
    const bool standard = at == at_ || (at == at_ + 1 && here() == '1');
    at_ = at + 1;
    ShellRedirection redirection;
    if (c == '<' && from_here) redirection.kind = ShellRedirection::Kind::file;
    if (c == '>' && standard) redirection.kind = ShellRedirection::Kind::output;
    if (c == '<' && here() == '<') {
      redirection.kind =
          here(1) == '<' ? ShellRedirection::Kind::text : ShellRedirection::Kind::document;
      at_ += here(1) == '<' ? 2 : 1;
      if (redirection.kind == ShellRedirection::Kind::document && here() == '-') {
        redirection.strips = true;
        ++at_;
      }
    } else {
      while (here() == '>' || here() == '&' || here() == '|') {
        if (c == '<' || here() == '&') redirection.kind = ShellRedirection::Kind::other;
        redirection.adds = redirection.adds || here() == '>';
        ++at_;
      }
    }
    skip_blanks();
    redirection.word = word();
    if (redirection.word.begin == at_) fail(at_, "stands where a file's name is expected");
    node->redirections.push_back(redirection);
    if (redirection.kind == ShellRedirection::Kind::document)
      documents_.emplace_back(node, node->redirections.size() - 1);
    return true;
  }

  std::shared_ptr<const ShellAssignment> assignment() {
    const std::size_t begin = at_;
    std::size_t at = at_;
    if (!is_letter_of_name(here())) return nullptr;
    while (at < end_ && is_name(text_[at])) ++at;
    auto out = std::make_shared<ShellAssignment>();
    out->name = text_.substr(begin, at - begin);
    if (char_at(text_, at) == '[') {
      const std::size_t close = closing_bracket(at);
      if (close == std::string::npos) return nullptr;
      out->index = {&source_, at + 1, close};
      at = close + 1;
    }
    if (char_at(text_, at) == '+' && char_at(text_, at + 1) == '=') {
      out->adds = true;
      ++at;
    }
    if (at >= end_ || text_[at] != '=') return nullptr;
    at_ = at + 1;
    if (here() == '(') {
      out->is_array = true;
      elements(*out);
    } else {
      out->value = word();
    }
    return out;
  }

  std::size_t closing_bracket(std::size_t open) const {
    constexpr std::size_t kLongestIndex = 1'000;
    for (std::size_t at = open + 1; at < end_ && text_[at] != '\n';) {
      const char c = text_[at];
      if (at - open > kLongestIndex) refuse(source_, open, "the [ is not closed soon");
      if (c == ']') return at;
      if (c == '$')
        at = end_of_dollar(source_, at, false);
      else if (c == '"' || c == '\'')
        at = end_of_quotes(source_, at);
      else
        ++at;
    }
    return std::string::npos;
  }

  void elements(ShellAssignment& array) {
    const std::size_t open = at_++;
    for (skip_lines(); here() != ')'; skip_lines()) {
      if (ended()) refuse(source_, open, "the array's ( is not closed");
      if (is_operator(here()) && !((here() == '<' || here() == '>') && here(1) == '('))
        fail(at_, "is not expected in an array");
      ShellAssignment::Element element;
      if (here() == '[') {
        const std::size_t close = closing_bracket(at_);
        const std::size_t sign = close == std::string::npos ? 0 : close + 1;
        const bool adds = char_at(text_, sign) == '+' && char_at(text_, sign + 1) == '=';
        if (sign > 0 && (adds || char_at(text_, sign) == '=')) {
          element.index = {&source_, at_ + 1, close};
          element.adds = adds;
          at_ = sign + (adds ? 2 : 1);
        }
      }
      element.value = word();
      array.elements.push_back(element);
    }
    ++at_;
  }

  const ShellSource& source_;
  const std::string& text_;
  std::size_t at_, end_;
  bool lines_, declares_ = false;
  std::vector<std::pair<Node, std::size_t>> documents_;  // whose lines come next
};

}  // namespace

ShellTree read_shell(const ShellSource& source, bool lines_end_commands) {
  return ScriptReader(source, 0, source.text.size(), lines_end_commands).script();
}

ShellTree read_shell(const ShellWord& part) {
  return ScriptReader(*part.source, part.begin, part.end, true).script();
}

std::size_t end_of_quotes(const ShellSource& source, std::size_t at) {
  Nesting nesting(source, at);
  const std::string& text = source.text;
  const char quote = text[at];
  if (quote == '\'') return end_of_single_quotes(source, at);
  for (std::size_t i = at + 1; i < text.size();) {
    if (text[i] == quote) return i + 1;
    if (text[i] == '\\')
      i += 2;
    else if (quote == '"' && text[i] == '$')
      i = end_of_dollar(source, i, true);
    else if (quote == '"' && text[i] == '`')
      i = end_of_quotes(source, i);
    else
      ++i;
  }
  refuse(source, at, std::string("the quote ") + quote + " is not closed");
}

std::size_t end_of_dollar(const ShellSource& source, std::size_t at, bool quoted) {
  const std::string& text = source.text;
  const char next = char_at(text, at + 1);
  if (next == '(') return closing_parenthesis(source, at + 2) + 1;
  if (next == '{') return closing_brace(source, at + 2, quoted) + 1;
  if (next == '\'' && !quoted) return end_of_ansi_quotes(source, at + 1);
  if (next == '[') return std::min(text.find(']', at), text.size() - 1) + 1;
  if (is_letter_of_name(next)) {
    std::size_t end = at + 2;
    while (end < text.size() && is_name(text[end])) ++end;
    return end;
  }
  const bool special = is_name(next) || (next != '\0' && std::string_view("@*#?$!-").find(next) !=
                                                             std::string_view::npos);
  return at + (special ? 2 : 1);
}

std::size_t closing_brace(const ShellSource& source, std::size_t at, bool quoted) {
  Nesting nesting(source, at);
  const std::string& text = source.text;
  for (std::size_t i = at; i < text.size();) {
    const char c = text[i];
    if (c == '}') return i;
    if (c == '\\')
      i += 2;
    else if (c == '$')
      i = end_of_dollar(source, i, quoted);
    else if (c == '"' || c == '`' || (c == '\'' && !quoted))
      i = end_of_quotes(source, i);
    else
      ++i;
  }
  refuse(source, at, "the ${ is not closed");
}

std::size_t closing_parenthesis(const ShellSource& source, std::size_t at) {
  Nesting nesting(source, at);
  const std::string& text = source.text;
  int open = 1;
  const bool arithmetic = at < text.size() && text[at] == '(';
  for (std::size_t i = at; i < text.size();) {
    const char c = text[i];
    if (c == '(') ++open;
    if (c == ')' && --open == 0) return i;
    if (c == '\\')
      i += 2;
    else if (c == '$')
      i = end_of_dollar(source, i, false);
    else if (c == '"' || c == '`' || c == '\'')
      i = end_of_quotes(source, i);
    else if (c == '#' && !arithmetic && (i == at || is_blank(text[i - 1])))
      i = text.find('\n', i);
    else
      ++i;
  }
  refuse(source, at, "the ( is not closed");
}

bool is_arithmetic(const ShellSource& source, std::size_t open, std::size_t close) {
  const std::string& text = source.text;
  return close >= open + 3 && text[open + 1] == '(' && text[close - 1] == ')' &&
         closing_parenthesis(source, open + 2) == close - 1;
}

}  // namespace penstock
