// SPDX-License-Identifier: Apache-2.0
// How files of flags are read: keys as options, whatever their dashes, and the list that they make.
#pragma once

#include "base/suggest.hpp"
#include "base/text.hpp"
#include "scenarios/document.hpp"
#include "scenarios/flag_files.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace penstock {

/// Returns the letters and digits of a name, in lower case.
inline std::string letters_and_digits(const std::string& name) {
  std::string out;
  for (const char c : lower_case(name))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) out += c;
  return out;
}

/// Returns a key as an option: in lower case, with '-' for '_', without dashes before it.
inline std::string dashed(std::string text) {
  std::ranges::replace(text, '_', '-');
  text.erase(0, std::min(text.find_first_not_of('-'), text.size()));
  return lower_case(text);
}

inline bool says_yes(const Value* value) {
  return value != nullptr && value->kind == Value::Kind::scalar && is_true(value->text);
}

inline bool is_null(const Value& value) {
  return value.kind == Value::Kind::null || lower_case(value.text) == "null";
}

/// Returns the entry of a map by its name with any of '-' and '_'.
inline const Value* entry(const Value* map, std::string_view name) {
  if (map == nullptr || map->kind != Value::Kind::map) return nullptr;
  const auto at = std::ranges::find_if(
      map->entries, [&](const Value::Entry& e) { return dashed(e.key.text) == name; });
  return at == map->entries.end() ? nullptr : &at->value;
}

/// Collects options; the last of a name counts.
class OptionReader {
 public:
  explicit OptionReader(MegatronJob& job) : job_(job) {}

  void add_option(const std::string& name, const Value& value, std::string shown) {
    ScriptOption& option = add_named(name, value, std::move(shown));
    if (value.kind == Value::Kind::list)
      for (const Value& item : value.items) option.values.push_back(item.text);
    else if (value.kind == Value::Kind::scalar && lower_case(value.text) != "true")
      option.values.push_back(value.text);
    else if (value.kind == Value::Kind::null)
      option.values.emplace_back("null");
  }

  /// Adds an option that follows from a key.
  void add_option(const std::string& name, const std::string& value, const Value& from,
                  std::string shown) {
    ScriptOption& option = add_named(name, from, std::move(shown));
    if (!value.empty()) option.values.push_back(value);
  }

  bool has_option(std::string_view name) const {
    return std::ranges::find(job_.options, name, &ScriptOption::name) != job_.options.end();
  }

 private:
  ScriptOption& add_named(const std::string& name, const Value& at, std::string shown) {
    ScriptOption& option = job_.options.emplace_back();
    option.name = name;
    option.line = at.line;
    option.shown = std::move(shown);
    return option;
  }

  MegatronJob& job_;
};

}  // namespace penstock
