// Fields of files that may come from anywhere, as JSON: nothing in them is taken on trust. Numbers
// are in ranges in which no sum or product of a reader overflows, texts are texts, names are known.
//
// A structure lists its fields once, for both directions: template <class T, class Visit> void
// each(T& value, Visit&& visit) { visit("name", value.name); ... }, with FieldWriter and
// FieldReader.
#pragma once

#include "base/json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// What is wrong with a file, without its name.
class Unsound : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::int64_t kLargestField = std::int64_t{1} << 44;  // bytes
inline constexpr double kLongestField_s = 1e9;

/// Throw Unsound: not an object, no such key, not a list.
const Json& member(const Json& json, const char* key);
const Json& list(const Json& json, const char* key);

/// "'key' must be MUST, got ...".
[[noreturn]] void wrong_field(const char* key, const std::string& must, const Json& seen);

// The value as it is written, or Unsound: JSON's own conversions let -1 and 1e300 through.

void take(const char* key, const Json& json, bool& value);
void take(const char* key, const Json& json, std::string& value);
/// 0 or more.
template <std::integral T>
void take(const char* key, const Json& json, T& value) {
  const auto largest = sizeof(T) < 8 || std::is_unsigned_v<T>
                           ? static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                           : static_cast<std::uint64_t>(kLargestField);
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > largest)
    wrong_field(key, fmt::format("an integer from 0 to {}", largest), json);
  value = json.get<T>();
}
template <class T>
void take(const char* key, const Json& json, std::vector<T>& values) {
  if (!json.is_array()) wrong_field(key, "a list", json);
  values.clear();
  for (const Json& v : json) {
    T value{};  // vector<bool> has no references
    take(key, v, value);
    values.push_back(std::move(value));
  }
}

template <class T>
void take(const char* key, const Json& json, std::vector<std::vector<T>>& lists) {
  if (!json.is_array()) wrong_field(key, "a list of lists", json);
  lists.clear();
  for (const Json& one : json) {
    if (!one.is_array()) wrong_field(key, "a list of lists", one);
    take(key, one, lists.emplace_back());
  }
}

template <class T>
T value_of(const Json& json, const char* key) {
  T value{};
  take(key, member(json, key), value);
  return value;
}

/// The enumerator that stands at the name's place.
template <class Enum, class Names>
Enum named(const Json& given, const Names& names, const char* key) {
  const auto text = given.is_string() ? given.get<std::string>() : "";
  const auto found = std::ranges::find(names, text, [](const auto& n) { return std::string(n); });
  if (found == std::end(names))
    wrong_field(key, fmt::format("one of {}", fmt::join(names, ", ")), given);
  return static_cast<Enum>(found - std::begin(names));
}

template <class Enum, class Names>
Enum enum_of(const Json& json, const Names& names, const char* key) {
  return named<Enum>(member(json, key), names, key);
}

/// An unlimited number is null: JSON has no infinity.
struct FieldWriter {
  Json& json;
  template <class T>
  void operator()(const char* key, const T& value) const {
    json[key] = value;
  }
  void operator()(const char* key, double value) const {
    json[key] = std::isfinite(value) ? Json(value) : Json(nullptr);
  }
};

struct FieldReader {
  const Json& json;
  double least = 0, most = 1e30;  // of a number that is no time
  template <class T>
  void operator()(const char* key, T& value) const {
    take(key, member(json, key), value);
  }
  /// Names that end in _s are seconds, up to kLongestField_s; `bytes_per_s` may be null, unlimited.
  void operator()(const char* key, double& value) const;
};

}  // namespace penstock
