// SPDX-License-Identifier: Apache-2.0
#include <yaml-cpp/eventhandler.h>

#include <iterator>

namespace YAML {
namespace {

std::string utf8(unsigned code) {
  std::string out;
  if (code < 0x80) return {static_cast<char>(code)};
  if (code >= 0x800) {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
  } else {
    out += static_cast<char>(0xc0 | (code >> 6));
  }
  return out += static_cast<char>(0x80 | (code & 0x3f));
}

}  // namespace

class Parser::Text {
 public:
  Text(std::string_view text, EventHandler& to) : text_(text), to_(to) {}

  void run() {
    skip(true);
    to_.OnDocumentStart(mark());
    if (at_end()) {
      to_.OnNull(mark(), 0);
    } else if (text_[at_] == '{' || text_[at_] == '[') {
      value(false);
    } else {
      lines();
    }
    skip(true);
    if (!at_end()) fail("end of map not found");
    to_.OnDocumentEnd();
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char here() const { return at_end() ? '\0' : text_[at_]; }
  Mark mark() const {
    return {static_cast<int>(at_), line_, static_cast<int>(at_ - begin_of_line_)};
  }
  [[noreturn]] void fail(const char* why) const { throw Exception(mark(), why); }

  void step() {
    if (text_[at_++] != '\n') return;
    ++line_;
    begin_of_line_ = at_;
  }

  /// Blanks and comments, and what lies between lines where that is allowed.
  void skip(bool over_lines) {
    while (!at_end()) {
      const char c = text_[at_];
      if (c == '#' && (at_ == begin_of_line_ || text_[at_ - 1] == ' ' || text_[at_ - 1] == '\t')) {
        while (!at_end() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || (over_lines && c == '\n')) {
        step();
      } else {
        return;
      }
    }
  }

  /// A map, one `key: value` a line, which all begin in the first column; or a single scalar.
  void lines() {
    const Mark begin = mark();
    if (text_.find(':') == std::string_view::npos) return scalar(false);
    to_.OnMapStart(begin, "?", 0, EmitterStyle::Block);
    while (!at_end()) {
      if (at_ != begin_of_line_) fail("end of map not found");
      scalar(false);
      skip(false);
      if (here() != ':') fail("illegal map value");
      step();
      skip(false);
      if (here() == '\n' || at_end()) {
        to_.OnNull(mark(), 0);
      } else {
        value(false);
      }
      skip(false);
      if (!at_end() && here() != '\n') fail("end of map not found");
      skip(true);
    }
    to_.OnMapEnd();
  }

  void value(bool inside) {
    if (here() == '{') return map();
    if (here() == '[') return list();
    scalar(inside);
  }

  void map() {
    to_.OnMapStart(mark(), "?", 0, EmitterStyle::Flow);
    step();
    for (skip(true); here() != '}'; skip(true)) {
      if (at_end()) fail("end of map flow not found");
      scalar(true);
      skip(true);
      if (here() == ':') {
        step();
        skip(true);
      }
      here() == ',' || here() == '}' ? to_.OnNull(mark(), 0) : value(true);
      between('}', "end of map flow not found");
    }
    step();
    to_.OnMapEnd();
  }

  void list() {
    to_.OnSequenceStart(mark(), "?", 0, EmitterStyle::Flow);
    step();
    for (skip(true); here() != ']'; skip(true)) {
      if (at_end()) fail("end of sequence flow not found");
      value(true);
      between(']', "end of sequence flow not found");
    }
    step();
    to_.OnSequenceEnd();
  }

  void between(char end, const char* why) {
    skip(true);
    if (here() == ',') return step();
    if (here() != end) fail(why);
  }

  void scalar(bool inside) {
    const Mark begin = mark();
    if (here() == '"') return to_.OnScalar(begin, "!", 0, double_quoted());
    if (here() == '\'') return to_.OnScalar(begin, "!", 0, single_quoted());
    std::string text;
    while (!at_end() && !ends_plain(inside)) {
      text += text_[at_];
      step();
    }
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
      text.pop_back();
    if (text.empty()) fail("unknown token");
    text == "null" || text == "~" ? to_.OnNull(begin, 0) : to_.OnScalar(begin, "?", 0, text);
  }

  bool ends_plain(bool inside) const {
    const char c = text_[at_], next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\n';
    if (c == '\n') return true;
    if (c == ':')
      return next == ' ' || next == '\n' || next == '\r' ||
             (inside && (next == ',' || next == '}'));
    if (c == '#') return at_ > 0 && text_[at_ - 1] == ' ';
    return inside && (c == ',' || c == ']' || c == '}' || c == '[' || c == '{');
  }

  std::string single_quoted() {
    std::string text;
    for (step();; step()) {
      if (at_end()) fail("end of quote not found");
      if (here() == '\'') {
        step();
        if (here() != '\'') return text;
      }
      text += here();
    }
  }

  std::string double_quoted() {
    std::string text;
    for (step(); here() != '"';) {
      if (at_end()) fail("end of quote not found");
      if (here() == '\\') {
        step();
        text += escaped();
      } else {
        text += here();
        step();
      }
    }
    step();
    return text;
  }

  std::string escaped() {
    const char c = here();
    if (at_end()) fail("end of quote not found");
    step();
    switch (c) {
      case 'n': return "\n";
      case 't': return "\t";
      case 'r': return "\r";
      case 'b': return "\b";
      case 'f': return "\f";
      case 'u': return code();
      default: return {c};
    }
  }

  std::string code() {
    if (at_ + 4 > text_.size()) fail("unknown escape character: u");
    const std::string digits(text_.substr(at_, 4));
    at_ += 4;
    return utf8(static_cast<unsigned>(std::stoul(digits, nullptr, 16)));
  }

  std::string_view text_;
  EventHandler& to_;
  std::size_t at_ = 0, begin_of_line_ = 0;
  int line_ = 0;
};

Parser::Parser(std::istream& in)
    : text_(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()) {}

bool Parser::HandleNextDocument(EventHandler& handler) {
  if (done_) return false;
  done_ = true;
  Text(text_, handler).run();
  return true;
}

}  // namespace YAML
