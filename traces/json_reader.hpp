// Reading JSON that somebody else may have written: every problem of a document is collected with
// its place ("runs[0].ops[3].end_s"), and all are thrown at once.
#pragma once

#include "base/error.hpp"
#include "base/json.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// The text of a value; what is not UTF-8 is replaced.
std::string dumped(const Json& value);

/// A value as an error shows it: its text, or only its type when that is long.
std::string seen(const Json& value);

/// With the line and column of a byte (from 1) of the text, from which on it is not JSON.
InputError not_json(const std::string& text, std::size_t byte, const std::string& origin);

/// Throws InputError with line and column when the text is not JSON.
Json parse_json(const std::string& text, const std::string& origin);

/// Collects what is wrong, by the place in the document.
class JsonProblems {
 public:
  explicit JsonProblems(std::string origin) : origin_(std::move(origin)) {}

  void add(const std::string& place, const std::string& message);
  void throw_if_any();

 private:
  void put(const std::string& message) { found_.push_back({{origin_, 0, 0}, message, "", 1, 0}); }

  std::string origin_;
  std::vector<Diagnostic> found_;
  std::size_t count_ = 0;
};

/// One JSON object, read key by key; `finish` reports the keys nobody asked for.
class JsonReader {
 public:
  JsonReader(const Json& object, std::string place, JsonProblems& problems)
      : object_(object), place_(std::move(place)), problems_(problems) {
    if (!object.is_object()) wrong("", "must be an object", object);
  }

  bool has(const char* key) const { return object_.is_object() && object_.contains(key); }
  std::string text(const char* key, bool required = true);
  double number(const char* key);
  bool boolean(const char* key);
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most);
  /// Is there a value that is not null?
  bool given(const char* key);
  /// The value; null (and a problem, when it is required) where there is none.
  const Json* find(const char* key, bool required);
  /// Calls `each(element, place)`.
  template <class Each>
  void list(const char* key, Each&& each) {
    const Json* value = find(key, true);
    if (value == nullptr) return;
    if (!value->is_array()) return wrong(key, "must be a list", *value);
    std::size_t i = 0;
    for (const Json& element : *value) each(element, fmt::format("{}[{}]", at(key), i++));
  }
  /// Calls `each(key, value)` for an object of any keys.
  template <class Each>
  void map(const char* key, Each&& each) {
    const Json* value = find(key, true);
    if (value == nullptr) return;
    if (!value->is_object()) return wrong(key, "must be an object", *value);
    for (const auto& [name, inner] : value->items()) each(name, inner);
  }
  JsonReader inside(const char* key);
  void wrong(const char* key, const std::string& message, const Json& value) {
    problems_.add(at(key), message + ", got " + seen(value));
  }
  void problem(const std::string& message) { problems_.add(place_, message); }
  /// Reports keys that are not part of the format.
  void finish();

 private:
  std::string at(const char* key) const;

  const Json& object_;
  std::string place_;
  JsonProblems& problems_;
  std::vector<std::string> asked_;
};

}  // namespace penstock
