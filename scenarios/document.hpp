// SPDX-License-Identifier: Apache-2.0
// YAML text as a tree that remembers where everything stood, so that errors can point at it.
//
// The only user of yaml-cpp, whose own tree forgets file names, accepts duplicate keys and follows
// cyclic anchors. The tree here is made from the parser's events instead, so that duplicates,
// cycles, absurd nesting and expanding aliases are diagnosed where they stand, before they cost
// time or memory.
#pragma once

#include "base/error.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {

/// The text a document came from, for the carets of its errors.
struct Source {
  std::string name;
  std::vector<std::string> lines;
};

struct Value {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  std::string text;  ///< of a scalar
  std::shared_ptr<const Source> source;
  int line = 0, column = 0;  ///< 1-based, in bytes; 0: unknown
  int length = 1;            ///< characters to underline
  std::vector<Value> items;
  std::vector<Entry> entries;

  /// The entry of a map, or null.
  const Value* find(const std::string& key) const;
  Diagnostic diagnostic(const std::string& message) const;
  /// Was this given on the command line (`--set`) rather than in a file?
  bool from_flag() const { return source != nullptr && source->lines.empty(); }
};

struct Value::Entry {
  Value key;  // a scalar
  Value value;
};

/// Returns a scalar, or a list of them, as a document would say it that was given no place.
Value to_value(std::string text);
template <class T>
Value to_value(const T& value) {
  if constexpr (std::is_same_v<T, Value>)
    return value;
  else if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return to_value(std::string(std::string_view(value)));
  else if constexpr (std::is_same_v<T, bool>)
    return to_value(std::string(value ? "true" : "false"));
  else if constexpr (std::is_integral_v<T>)
    return to_value(std::to_string(value));
  else {
    Value list;
    list.kind = Value::Kind::list;
    for (const auto& item : value) list.items.push_back(to_value(item));
    return list;
  }
}

/// Parses YAML (or JSON). `origin` names it in errors. Throws InputError with everything wrong.
Value parse_document(const std::string& text, const std::string& origin);

/// A file's text, or at most so many bytes of it. Throws InputError when it cannot be read.
std::string read_text(const std::string& path, std::size_t most);

/// Parses a file. Throws InputError, also when it cannot be read.
Value load_document(const std::string& path);

/// The document as YAML again, without its comments: a line per entry of the top, flow style below.
std::string to_yaml(const Value& document);
/// A value within a line of it.
std::string to_flow(const Value& value);

/// "; did you mean 'x.yaml'?" for a file that is not there.
std::string nearest_file(const std::string& path);

/// Text of the user's for a message: at most 60 characters, nothing that a terminal would obey.
std::string printable(const std::string& text);

}  // namespace penstock
