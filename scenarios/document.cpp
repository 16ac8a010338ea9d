// SPDX-License-Identifier: Apache-2.0
#include "scenarios/document.hpp"

#include "base/folder.hpp"
#include "base/output_file.hpp"
#include "base/say.hpp"
#include "base/suggest.hpp"
#include "base/table.hpp"

#include <cctype>
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

namespace penstock {
namespace {

constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxNodes = 300'000;
constexpr std::size_t kMaxBytes = std::size_t{2} << 20;
constexpr std::size_t kMaxDiagnostics = 50;
constexpr std::size_t kContext = 400;  // bytes of a line kept on each side of an error

std::shared_ptr<const Source> make_source(std::string_view text, const std::string& origin) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  auto source = std::make_shared<Source>();
  source->name = origin;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    source->lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return source;
}

/// A diagnostic at a byte of a line, with the part of the line around it.
Diagnostic at(const Source& source, int line, int byte_column, const std::string& message,
              int length = 1) {
  Diagnostic d{{source.name, line, byte_column}, message, {}, length};
  const auto index = static_cast<std::size_t>(line - 1);
  if (line <= 0 || index >= source.lines.size()) return d;
  const std::string& text = source.lines[index];
  const std::size_t byte = std::min(static_cast<std::size_t>(byte_column - 1), text.size());
  d.where.column = static_cast<int>(display_width(text.substr(0, byte))) + 1;
  std::size_t from = byte > kContext ? byte - kContext : 0;
  while (from > 0 && is_continuation(text[from])) --from;
  std::size_t to = std::min(byte + kContext, text.size());
  while (to < text.size() && is_continuation(text[to])) ++to;
  d.source_line = text.substr(from, to - from);
  d.source_offset = static_cast<int>(display_width(text.substr(0, from)));
  return d;
}

/// Refuses what is not text, and what is nested so deep that the parser would need quadratic time
/// to give up, before the parser sees it.
class TextCheck {
 public:
  explicit TextCheck(const Source& source) : source_(source) {}

  void run() {
    for (line_ = 1; line_ <= static_cast<int>(source_.lines.size()); ++line_) check_line();
  }

 private:
  void check_line() {
    const std::string& line = source_.lines[static_cast<std::size_t>(line_ - 1)];
    bool comment = false;
    for (std::size_t i = 0; i < line.size();) {
      const std::size_t length = utf8_length(std::string_view(line).substr(i));
      const auto byte = static_cast<unsigned char>(line[i]);
      if (length == 0) refuse(i, fmt::format("is not a text file in UTF-8 (byte 0x{:02x})", byte));
      if ((byte < 0x20 && byte != '\t') || byte == 0x7f)
        refuse(i, fmt::format("is not a text file (byte 0x{:02x})", byte));
      comment = comment || (byte == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t'));
      if (!comment) count_bracket(line[i], i);
      i += length;
    }
  }

  void count_bracket(char c, std::size_t i) {
    if (c == '[' || c == '{') ++depth_;
    if (c == ']' || c == '}') depth_ = std::max(0, depth_ - 1);
    if (depth_ > 4 * static_cast<int>(kMaxDepth))
      refuse(i, fmt::format("is nested more than {} deep", kMaxDepth));
  }

  [[noreturn]] void refuse(std::size_t byte, const std::string& why) const {
    const int column = static_cast<int>(byte) + 1;
    throw InputError({{{source_.name, line_, column}, why, {}, 1}});
  }

  const Source& source_;
  int line_ = 0;
  int depth_ = 0;
};

/// Says where the part of a file that is read ends.
[[noreturn]] void refuse_size(const Source& source, std::string_view part) {
  const int line = static_cast<int>(std::ranges::count(part, '\n')) + 1;
  const bool begins = part.ends_with('\n');
  const int column =
      begins ? 1 : static_cast<int>(source.lines[static_cast<std::size_t>(line - 1)].size()) + 1;
  throw InputError({at(source, line, column,
                       fmt::format("is larger than {} MB, which end here", kMaxBytes >> 20))});
}

/// Makes the tree from the parser's events; throws InputError where it must stop at once.
class Reader : public YAML::EventHandler {
 public:
  explicit Reader(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

  bool empty() const { return root_.kind == Value::Kind::null && diagnostics_.empty(); }
  Value take_root() {
    check_closing_quote();
    if (!diagnostics_.empty()) throw InputError(diagnostics_);
    return std::move(root_);
  }

  /// What the parser says about the text, in words for people who do not know YAML's grammar.
  [[noreturn]] void explain(const YAML::Exception& error) const {
    std::vector<Diagnostic> all = diagnostics_;
    const bool known = !error.mark.is_null();
    all.push_back(
        in_words(error.msg, known ? error.mark.line + 1 : 0, known ? error.mark.column + 1 : 0));
    throw InputError(std::move(all));
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      stop(leaf(mark, Value::Kind::null), "a second YAML document starts here; give one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    place(leaf(mark, Value::Kind::null), anchor, 1);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    const Value here = leaf(mark, Value::Kind::scalar);
    if (found == anchors_.end()) stop(here, "this alias stands inside of what it refers to");
    count(here, found->second.second);
    place(found->second.first, 0, found->second.second);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    Value value = leaf(mark, Value::Kind::scalar);
    value.text = text;
    value.length = std::max(1, static_cast<int>(std::min<std::size_t>(display_width(text), 999)));
    if (const std::string shown = without_controls(text); shown != text)  // "\e" in quotes
      stop(value, fmt::format("'{}' holds a control character", shown));
    if (tag == "!") {
      value.length += 2;
      last_quoted_ = {value.line, value.column};
    }
    place(std::move(value), anchor, 1);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(leaf(mark, Value::Kind::list), anchor, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(leaf(mark, Value::Kind::map), anchor, style);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Value value;
    YAML::anchor_t anchor;
    std::size_t nodes_before;
    bool flow;                             // in brackets
    std::optional<Value> key = {};         // waits for its value
    std::map<std::string, int> seen = {};  // keys and their lines
  };

  Value leaf(const YAML::Mark& mark, Value::Kind kind) {
    Value value;
    value.kind = kind;
    value.source = source_;
    value.line = mark.line + 1;
    value.column = mark.column + 1;
    count(value, 1);
    return value;
  }

  void count(const Value& where, std::size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes)
      stop(where, fmt::format("with this the file holds more than {} values", kMaxNodes));
  }

  void open(Value value, YAML::anchor_t anchor, YAML::EmitterStyle::value style) {
    if (open_.size() >= kMaxDepth)
      stop(value, fmt::format("is nested more than {} deep", kMaxDepth));
    open_.push_back({std::move(value), anchor, nodes_ - 1, style == YAML::EmitterStyle::Flow});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    const std::size_t size = nodes_ - done.nodes_before;
    place(std::move(done.value), done.anchor, size);
  }

  void place(Value value, YAML::anchor_t anchor, std::size_t size) {
    if (anchor != 0) {
      count(value, size);  // the copy costs memory, too
      anchors_[anchor] = {value, size};
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.kind == Value::Kind::list) {
      open_.back().value.items.push_back(std::move(value));
    } else if (!open_.back().key) {
      open_.back().key = std::move(value);
    } else {
      add_entry(open_.back(), std::move(value));
    }
  }

  void add_entry(Open& map, Value value) {
    Value key = std::move(*map.key);
    map.key.reset();
    const std::string problem = wrong_key(map, key);
    if (!problem.empty()) return complain(key, problem);
    if (value.kind == Value::Kind::null) {  // the parser sees nothing where the next thing stands
      value.line = key.line;
      value.column = key.column;
      value.length = key.length;
    }
    map.value.entries.push_back({std::move(key), std::move(value)});
  }

  static std::string wrong_key(Open& map, const Value& key) {
    if (key.kind == Value::Kind::null) return "a key is missing before this ':'";
    if (key.kind == Value::Kind::list) return "a key must be a word, not a list";
    if (key.kind == Value::Kind::map) return "a key must be a word, not a map";
    if (key.text == "<<")
      return "merge keys ('<<') are not supported; use 'base: NAME' to start from a model, cluster "
             "or device";
    const auto [it, first] = map.seen.try_emplace(key.text, key.line);
    if (first) return "";
    return fmt::format("'{}' is already given in line {}", printable(key.text), it->second);
  }

  void complain(const Value& where, const std::string& what) {
    diagnostics_.push_back(where.diagnostic(what));
    if (diagnostics_.size() >= kMaxDiagnostics) throw InputError(diagnostics_);
  }

  [[noreturn]] void stop(const Value& where, const std::string& why) {
    diagnostics_.push_back(where.diagnostic(why));
    throw InputError(diagnostics_);
  }

  /// The parser takes the end of the file for a closing quote; only the last quote can be open.
  void check_closing_quote() {
    const auto [first_line, column] = last_quoted_;
    if (first_line == 0) return;
    const auto& lines = source_->lines;
    auto line = static_cast<std::size_t>(first_line - 1);
    auto i = static_cast<std::size_t>(column - 1);
    const char quote = lines[line][i];
    if (quote != '"' && quote != '\'') return;  // a block scalar
    for (++i; line < lines.size(); ++line, i = 0) {
      for (; i < lines[line].size(); ++i) {
        if (lines[line][i] == quote) return;  // '' goes on, but is closed by what follows
        if (quote == '"' && lines[line][i] == '\\') ++i;
      }
    }
    diagnostics_.push_back(
        at(*source_, first_line, column, fmt::format("this {} is never closed", quote)));
  }

  const std::string& text_of(int line) const {
    static const std::string kNone;
    const auto index = static_cast<std::size_t>(line - 1);
    return line > 0 && index < source_->lines.size() ? source_->lines[index] : kNone;
  }

  /// The innermost bracket that is still open, as a diagnostic.
  Diagnostic unclosed_bracket() const {
    const Value& value = open_.back().value;
    const char* bracket = value.kind == Value::Kind::list ? "[" : "{";
    return at(*source_, value.line, value.column,
              fmt::format("this '{}' is never closed", bracket));
  }

  /// A ':' where none can be: the reason often stands before it.
  Diagnostic misplaced_colon(int line, int column) const {
    const std::string& text = text_of(line);
    const std::size_t tab = text.find('\t');
    if (tab < text.find_first_not_of(" \t"))
      return at(*source_, line, static_cast<int>(tab) + 1, "a tab cannot indent; use spaces");
    const std::string& above = text_of(line - 1);
    const std::size_t colon = above.find(':');
    const bool joined = colon != std::string::npos && colon + 1 < above.size() &&
                        above.find(": ") == std::string::npos && !above.ends_with(':');
    if (joined) {
      return at(*source_, line - 1, static_cast<int>(colon) + 1,
                "a space is missing after this ':'");
    }
    return at(*source_, line, column,
              "this ':' cannot stand here; check the indentation, and put text that contains ': ' "
              "in quotes");
  }

  Diagnostic in_words(const std::string& message, int line, int column) const {
    const auto here = [&](const std::string& text) { return at(*source_, line, column, text); };
    const std::string& text = text_of(line);
    const auto index = static_cast<std::size_t>(std::max(0, column - 1));
    const char c = index < text.size() ? text[index] : ' ';
    if (message.find("flow not found") != std::string::npos && !open_.empty())
      return unclosed_bracket();
    if (message == "illegal map value") return misplaced_colon(line, column);
    if (message == "illegal flow end") {
      if (open_.empty() || !open_.back().flow)
        return here(fmt::format("this '{}' closes nothing", c));
      return here(fmt::format("this '{}' does not close the '{}' of line {}", c,
                              c == '}' ? '[' : '{', open_.back().value.line));
    }
    if (message == "unknown token")
      return here(fmt::format("text cannot begin with '{}'; put it in quotes", c));
    if (message == "the referenced anchor is not defined")
      return here("this alias has no anchor ('&') above it");
    if (message.starts_with("end of "))
      return here("this does not fit what stands above; check the indentation");
    return here("is not valid YAML: " + message);
  }

  std::shared_ptr<const Source> source_;
  int documents_ = 0;
  std::size_t nodes_ = 0;
  Value root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, std::pair<Value, std::size_t>> anchors_;
  std::pair<int, int> last_quoted_ = {0, 0};
  std::vector<Diagnostic> diagnostics_;
};

}  // namespace

const Value* Value::find(const std::string& key) const {
  for (const Entry& entry : entries) {
    if (entry.key.text == key) return &entry.value;
  }
  return nullptr;
}

Diagnostic Value::diagnostic(const std::string& message) const {
  if (source == nullptr) return {{"input", 0, 0}, message, {}, 1};
  return at(*source, line, column, message, length);
}

std::string nearest_file(const std::string& file) {
  const std::filesystem::path path(file);
  std::vector<std::string> names;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  try {
    std::error_code ignored;
    for (const std::string& name : names_in(folder.string()))
      if (names.size() < 1000 && std::filesystem::is_regular_file(folder / name, ignored))
        names.push_back(name);
  } catch (const SystemError&) {
    return "";  // a hint less
  }
  return did_you_mean(path.filename().string(), names);
}

std::string printable(const std::string& text) {
  constexpr int kMaxCharacters = 60;
  std::string out;
  int characters = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (++characters > kMaxCharacters) return out + "…";
    const ShownCharacter c = shown_character(std::string_view(text).substr(i));
    out += text[i] == '\n'    ? "\\n"
           : text[i] == '\t'  ? "\\t"
           : c.escape.empty() ? text.substr(i, c.bytes)
                              : c.escape;
    i += c.bytes;
  }
  return out;
}

Value parse_document(const std::string& text, const std::string& origin) {
  std::size_t end = std::min(text.size(), kMaxBytes);
  for (int i = 0; i < 3 && end < text.size() && is_continuation(text[end]); ++i) --end;
  const auto source = make_source(std::string_view(text).substr(0, end), origin);
  TextCheck(*source).run();
  if (end < text.size()) refuse_size(*source, std::string_view(text).substr(0, end));
  Reader reader(source);
  std::istringstream in(text);
  try {
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(reader)) {
    }
  } catch (const YAML::Exception& error) {
    reader.explain(error);
  }
  if (reader.empty()) throw InputError(origin, "is empty");
  return reader.take_root();
}

namespace {

/// The machine's, or else the user's: the name of a file that is not there.
[[noreturn]] void refuse_file(const std::string& path, int error) {
  errno = error;
  for (const int of_machine : {EIO, ENOMEM, EMFILE, ENFILE})
    if (error == of_machine) throw SystemError::from_errno("read", path);
  throw InputError(path, fmt::format("cannot be read: {}{}", std::strerror(error),
                                     error == ENOENT ? nearest_file(path) : ""));
}

}  // namespace

std::string read_text(const std::string& path, std::size_t most) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr) refuse_file(path, errno);
  note_input(path);
  std::string text;
  char part[65536];
  errno = 0;
  while (text.size() < most) {
    const std::size_t got =
        std::fread(part, 1, std::min(sizeof part, most - text.size()), file.get());
    if (std::ferror(file.get()) != 0) refuse_file(path, errno);
    if (got == 0) break;
    text.append(part, got);
  }
  return text;
}

Value load_document(const std::string& path) {
  // One more, to tell that there is more; never all of it.
  return parse_document(read_text(path, kMaxBytes + 1), path);
}

namespace {

bool is_plain(const std::string& text) {
  const auto harmless = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::strchr("_./%*+ -", c) != nullptr;
  };
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) != 0 &&
         text.back() != ' ' && std::ranges::all_of(text, harmless);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

}  // namespace

Value to_value(std::string text) {
  Value value;
  value.kind = Value::Kind::scalar;
  value.length = static_cast<int>(text.size());
  value.text = std::move(text);
  return value;
}

std::string to_flow(const Value& value) {
  std::string out;
  switch (value.kind) {
    case Value::Kind::null: return "~";
    case Value::Kind::scalar: return is_plain(value.text) ? value.text : quoted(value.text);
    case Value::Kind::list:
      for (const Value& item : value.items) out += (out.empty() ? "" : ", ") + to_flow(item);
      return "[" + out + "]";
    case Value::Kind::map:
      for (const Value::Entry& e : value.entries)
        out += (out.empty() ? "" : ", ") + to_flow(e.key) + ": " + to_flow(e.value);
      return "{" + out + "}";
  }
  return out;
}

std::string to_yaml(const Value& document) {
  if (document.kind != Value::Kind::map) return to_flow(document) + "\n";
  std::string out;
  for (const Value::Entry& e : document.entries)
    out += to_flow(e.key) + ": " + to_flow(e.value) + "\n";
  return out;
}

}  // namespace penstock
