#include "scenarios/document.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>

namespace penstock {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxNodes = 200'000;
constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

std::shared_ptr<const Source> make_source(const std::string& text, const std::string& origin) {
  auto source = std::make_shared<Source>();
  source->name = origin;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    source->lines.push_back(std::move(line));
  }
  return source;
}

Diagnostic at(const std::shared_ptr<const Source>& source, int line, int column,
              const std::string& message, int length = 1) {
  Diagnostic d{{source->name, line, column}, message, {}, length};
  const auto index = static_cast<std::size_t>(line - 1);
  if (line > 0 && index < source->lines.size()) d.source_line = source->lines[index];
  return d;
}

/// Refuses what is not text before the YAML parser sees it.
void refuse_binary(const std::string& text, const std::shared_ptr<const Source>& source) {
  int line = 1, column = 1;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') {
      throw InputError({{{source->name, line, column},
                         fmt::format("is not a text file (byte 0x{:02x})", byte),
                         {},
                         1}});
    }
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
}

/// Deep nesting costs the parser quadratic time before it gives up, so it is refused here.
void refuse_deep_flow(const std::string& text, const std::shared_ptr<const Source>& source) {
  int depth = 0, line = 1, column = 0;
  for (const char c : text) {
    ++column;
    if (c == '\n') {
      ++line;
      column = 0;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 4 * kMaxDepth) {
      throw InputError({{{source->name, line, column},
                         fmt::format("is nested more than {} deep", kMaxDepth),
                         {},
                         1}});
    }
  }
}

class Converter {
 public:
  explicit Converter(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

  Value convert(const YAML::Node& node, int depth) {
    Value value;
    value.source = source_;
    const YAML::Mark mark = node.Mark();
    value.line = mark.line + 1;
    value.column = mark.column + 1;
    if (depth > kMaxDepth)
      return refuse(value,
                    fmt::format("is nested more than {} deep (or refers to itself)", kMaxDepth));
    if (++nodes_ > kMaxNodes) return refuse(value, "expands to too many values");
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        value.kind = Value::Kind::scalar;
        value.text = node.Scalar();
        break;
      case YAML::NodeType::Sequence:
        value.kind = Value::Kind::list;
        for (const YAML::Node& item : node) {
          value.items.push_back(convert(item, depth + 1));
          if (stop_) break;
        }
        break;
      case YAML::NodeType::Map: convert_map(node, depth, value); break;
      default: break;
    }
    return value;
  }

  void finish() const {
    if (!diagnostics_.empty()) throw InputError(diagnostics_);
  }

 private:
  void convert_map(const YAML::Node& node, int depth, Value& value) {
    value.kind = Value::Kind::map;
    std::map<std::string, int> seen;
    for (const auto& entry : node) {
      Value key = convert(entry.first, depth + 1);
      if (stop_) return;
      if (key.kind != Value::Kind::scalar) {
        diagnostics_.push_back(key.diagnostic("a key must be a word"));
        continue;
      }
      const auto [it, first] = seen.try_emplace(key.text, key.line);
      if (!first) {
        diagnostics_.push_back(
            key.diagnostic(fmt::format("'{}' is already given in line {}", key.text, it->second)));
        continue;
      }
      value.entries.push_back({std::move(key), convert(entry.second, depth + 1)});
      if (stop_) return;
    }
  }

  Value refuse(const Value& value, const std::string& why) {
    if (!stop_) diagnostics_.push_back(value.diagnostic(why));
    stop_ = true;
    return value;
  }

  std::shared_ptr<const Source> source_;
  std::size_t nodes_ = 0;
  bool stop_ = false;
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
  const int length = kind == Kind::scalar ? static_cast<int>(text.size()) : 1;
  if (source == nullptr) return {{"input", 0, 0}, message, {}, 1};
  return at(source, line, column, message, std::max(1, length));
}

Value parse_document(const std::string& text, const std::string& origin) {
  const auto source = make_source(text, origin);
  if (text.size() > kMaxBytes) {
    throw InputError(origin, fmt::format("is {} MB large; a scenario has at most {} MB",
                                         text.size() >> 20, kMaxBytes >> 20));
  }
  refuse_binary(text, source);
  refuse_deep_flow(text, source);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty() || documents[0].IsNull()) throw InputError(origin, "is empty");
    if (documents.size() > 1)
      throw InputError(origin, "holds more than one YAML document ('---'); give one");
    Converter converter(source);
    Value value = converter.convert(documents[0], 0);
    converter.finish();
    return value;
  } catch (const YAML::Exception& error) {
    const bool known = !error.mark.is_null();
    throw InputError({at(source, known ? error.mark.line + 1 : 0, known ? error.mark.column + 1 : 0,
                         "is not valid YAML: " + error.msg)});
  }
}

Value load_document(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) errno = EISDIR;
  std::ifstream in(path, std::ios::binary);
  if (!in || S_ISDIR(info.st_mode))
    throw InputError(SystemError::from_errno("read", path).what(), "expected a YAML file");
  std::ostringstream text;
  text << in.rdbuf();
  return parse_document(text.str(), path);
}

}  // namespace penstock
