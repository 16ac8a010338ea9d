// SPDX-License-Identifier: Apache-2.0
#include "models/layout_string.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// For a letter in the wrong case, and what people leave in a string.
std::string hint(char c) {
  switch (c) {
    case 'e': return "; did you mean 'E'?";
    case 'l': return "; did you mean 'L'?";
    case 'T': return "; did you mean 't'?";
    case 'M': return "; did you mean 'm'?";
    case ')': return "; nothing was opened";
    case ' ': return "; leave out blanks";
    default: return "";
  }
}

constexpr std::size_t kMost = 1'000'000;  // of characters after repeating
constexpr std::size_t kMostComplaints = 20;

struct Mark {
  char c;
  int column;
};
using Marks = std::vector<Mark>;

class LayoutParser {
 public:
  LayoutParser(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != ',') marks_.push_back({text[i], static_cast<int>(i) + 1});
    }
  }

  std::vector<StageLayers> parse() {
    while (at_ < marks_.size()) {
      if (marks_[at_].c == '(') {
        group();
      } else {
        item();
      }
    }
    check_order();
    if (!errors_.empty()) throw InputError(std::move(errors_));
    return stages();
  }

 private:
  void complain(int column, const std::string& message) {
    if (errors_.size() == kMostComplaints) return;  // each keeps the whole text
    errors_.push_back({{origin_, 1, column}, message, std::string(text_), 1, 0});
  }

  /// `*n` where it stands; 1 where there is none.
  std::size_t count() {
    if (at_ == marks_.size() || marks_[at_].c != '*') return 1;
    const int column = marks_[at_++].column;
    std::size_t n = 0;
    const std::size_t begin = at_;
    for (; at_ < marks_.size() && marks_[at_].c >= '0' && marks_[at_].c <= '9'; ++at_)
      n = std::min(n * 10 + static_cast<std::size_t>(marks_[at_].c - '0'), kMost + 1);
    if (at_ == begin) complain(column, "'*' must be followed by a number, as in t*3 or (t|)*3");
    return n;
  }

  void repeat(const Marks& part, std::size_t n, int column) {
    if (out_.size() + part.size() * n > kMost) {
      if (!too_long_) complain(column, fmt::format("the layout has more than {} layers", kMost));
      too_long_ = true;
      return;
    }
    for (std::size_t i = 0; i < n; ++i) out_.insert(out_.end(), part.begin(), part.end());
  }

  /// One character, repeated.
  void item() {
    const Mark mark = marks_[at_++];
    const bool known = std::string_view("EtmL|").find(mark.c) != std::string_view::npos;
    if (!known) {
      complain(mark.column, fmt::format("'{}' is none of E (embedding), t (layer), m (MTP), L "
                                        "(loss), '|', '(...)*n', 'x*n'{}",
                                        mark.c, hint(mark.c)));
      return;
    }
    repeat({mark}, count(), mark.column);
  }

  /// (...)*n
  void group() {
    const int column = marks_[at_++].column;
    const std::size_t begin = out_.size();
    bool closed = false;
    while (at_ < marks_.size() && !closed) {
      closed = marks_[at_].c == ')';
      if (closed) {
        ++at_;
      } else if (marks_[at_].c == '(') {
        complain(marks_[at_++].column, "parts in parentheses do not nest");
      } else {
        item();
      }
    }
    const Marks part(out_.begin() + static_cast<std::ptrdiff_t>(begin), out_.end());
    out_.resize(begin);
    if (!closed) return complain(column, "'(' is not closed");
    if (at_ == marks_.size() || marks_[at_].c != '*')
      return complain(column, "a part in parentheses needs a count, as in (t|)*3");
    const std::size_t n = count();
    if (part.empty()) return complain(column, "there is nothing in the parentheses");
    repeat(part, n, column);
  }

  void check_order() {
    const auto is = [](char c) { return [c](const Mark& m) { return m.c == c; }; };
    const auto check_one = [&](char c, const char* what) {
      const auto first = std::ranges::find_if(out_, is(c));
      if (first == out_.end()) return complain(1, fmt::format("there is no {} ('{}')", what, c));
      const auto second = std::find_if(first + 1, out_.end(), is(c));
      if (second != out_.end())
        complain(second->column, fmt::format("a second {} ('{}'); there is one", what, c));
    };
    if (!errors_.empty()) return;
    check_one('E', "embedding");
    check_one('L', "loss");
    if (!errors_.empty()) return;
    bool begun = false, ended = false, mtp = false;
    const Mark* behind = nullptr;
    for (const Mark& m : out_) {
      if (m.c == '|' && ended) behind = &m;
      if (m.c == '|' && !begun)
        return complain(m.column,
                        "the embedding ('E') must be in the first stage, as Megatron-LM has it");
      if (m.c == '|') continue;
      if (m.c == 'E' && begun) complain(m.column, "the embedding must come before all layers");
      if (ended) return complain(m.column, "nothing may come after the loss ('L')");
      if (m.c == 't' && mtp) return complain(m.column, "transformer layers ('t') come before 'm'");
      begun = true;
      mtp = mtp || m.c == 'm';
      ended = m.c == 'L';
    }
    if (behind != nullptr)
      complain(behind->column,
               "the loss ('L') must be in the last stage, as Megatron-LM has it; leave out the '|' "
               "behind it");
  }

  std::vector<StageLayers> stages() const {
    std::vector<StageLayers> out(1);
    for (const Mark& m : out_) {
      if (m.c == '|') out.emplace_back();
      if (m.c == 'E') out.back().embedding = true;
      if (m.c == 't') ++out.back().layers;
      if (m.c == 'm') ++out.back().mtp;
      if (m.c == 'L') out.back().head = true;
    }
    return out;
  }

  std::string_view text_;
  const std::string& origin_;
  Marks marks_;  // without commas
  Marks out_;    // nothing repeated any more
  std::size_t at_ = 0;
  bool too_long_ = false;
  std::vector<Diagnostic> errors_;
};

std::string repeated(char c, int n) {
  return n == 0 ? "" : n == 1 ? std::string(1, c) : fmt::format("{}*{}", c, n);
}

std::string to_text(const StageLayers& s) {
  return (s.embedding ? "E" : "") + repeated('t', s.layers) + repeated('m', s.mtp) +
         (s.head ? "L" : "");
}

}  // namespace

std::vector<StageLayers> parse_layout(std::string_view text, const std::string& origin) {
  return LayoutParser(text, origin).parse();
}

std::string to_layout(const std::vector<StageLayers>& stages) {
  std::string out;
  for (std::size_t i = 0; i + 1 < stages.size();) {
    std::size_t end = i + 1;
    while (end + 1 < stages.size() && stages[end] == stages[i]) ++end;
    const std::string one = to_text(stages[i]) + "|";
    const std::string grouped = fmt::format("({})*{},", one, end - i);
    std::string plain;
    for (std::size_t k = i; k < end && plain.size() <= grouped.size(); ++k) plain += one;
    out += plain.size() <= grouped.size() ? plain : grouped;
    i = end;
  }
  return stages.empty() ? out : out + to_text(stages.back());
}

std::vector<StageLayers> layout_of(const std::vector<int>& layers) {
  std::vector<StageLayers> out;
  for (const int n : layers) out.push_back({.layers = n});
  if (!out.empty()) out.front().embedding = out.back().head = true;
  return out;
}

}  // namespace penstock
