// YAML text as a tree that remembers where everything stood, so that errors can point at it.
//
// The only user of yaml-cpp, which forgets file names, accepts duplicate keys and follows cyclic
// anchors: here duplicates, cycles, binary input and absurd nesting are diagnosed.
#pragma once

#include "base/error.hpp"

#include <memory>
#include <string>
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
  int line = 0, column = 0;  ///< 1-based; 0: unknown
  std::vector<Value> items;
  std::vector<Entry> entries;

  /// The entry of a map, or null.
  const Value* find(const std::string& key) const;
  Diagnostic diagnostic(const std::string& message) const;
};

struct Value::Entry {
  Value key;  // a scalar
  Value value;
};

/// Parses YAML (or JSON). `origin` names it in errors. Throws InputError with everything wrong.
Value parse_document(const std::string& text, const std::string& origin);

/// Parses a file. Throws SystemError when it cannot be read.
Value load_document(const std::string& path);

}  // namespace penstock
