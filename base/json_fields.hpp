// Fields of files that may come from anywhere, as JSON: nothing in them is taken on trust. Every
// field is there, no other is, numbers are in ranges in which no sum or product of a reader
// overflows, texts are texts, names are known; what is wrong is said with its place.
//
// A structure lists its fields once, for both directions, beside the structure or its file:
//   void each_field(Like<Sample> auto& s, auto&& visit) { visit("n", s.n); ... }
// and an enum its names: constexpr const auto& names_of(StageRole) { return kStageRoleNames; }
// What is written in another way has two functions, found as those are:
//   Json field_json(const T&);    void take_field(const char* key, const Json&, T&);
#pragma once

#include "base/json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
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

/// Of a number with a fraction. Those whose names end in _s are seconds, up to kLongestField_s.
struct FieldRange {
  double least = 0, most = 1e30;
  bool or_unlimited = false;  ///< null, because JSON has no infinity
};

/// Throws Unsound where it is no object or has no such key.
const Json& member(const Json& json, const char* key);

/// "'key' must be MUST, got ...".
[[noreturn]] void wrong_field(const char* key, const std::string& must, const Json& seen);

/// T or const T: a list of fields is read and written.
template <class T, class U>
concept Like = std::same_as<std::remove_const_t<T>, U>;

namespace json_fields_detail {

struct AnyVisitor {
  void operator()(const char* key, auto& value, FieldRange range = {}) const;
};

template <class T>
concept Described = requires(T& value) { each_field(value, AnyVisitor{}); };
template <class T>
concept Named = std::is_enum_v<T> && requires(T value) { names_of(value); };
template <class T>
concept Custom = requires(const T& value) { field_json(value); };
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;

// The value as it is written, or Unsound: JSON's own conversions let -1 and 1e300 through.
void take_plain(const char* key, const Json& json, bool& value);
void take_plain(const char* key, const Json& json, std::string& value);
void take_plain(const char* key, const Json& json, std::map<std::string, std::string>& texts);
void take_number(const char* key, const Json& json, double& value, const FieldRange& range);
/// Runs it; what it says is wrong gets the place in front.
template <class Run>
void at_place(const std::string& place, Run&& run) {
  try {
    run();
  } catch (const Unsound& error) {
    throw Unsound(place + ": " + error.what());
  }
}

}  // namespace json_fields_detail

template <class T>
Json to_field(const T& value);
template <class T>
void take(const char* key, const Json& json, T& value, const FieldRange& range = {});

class FieldWriter {
 public:
  explicit FieldWriter(Json& json) : json_(json) {}
  template <class T>
  void operator()(const char* key, const T& value, const FieldRange& = {}) const {
    json_[key] = to_field(value);
  }

 private:
  Json& json_;
};

class FieldReader {
 public:
  explicit FieldReader(const Json& json) : json_(json) {}
  template <class T>
  void operator()(const char* key, T& value, const FieldRange& range = {}) {
    known_.emplace_back(key);
    take(key, member(json_, key), value, range);
  }
  /// Throws Unsound when there are keys that nobody asked for.
  void finish() const;

 private:
  const Json& json_;
  std::vector<std::string_view> known_;
};

template <class T>
Json to_field(const T& value) {
  using namespace json_fields_detail;
  if constexpr (Custom<T>) {
    return field_json(value);
  } else if constexpr (Described<const T>) {
    Json json = Json::object();
    each_field(value, FieldWriter(json));
    return json;
  } else if constexpr (Named<T>) {
    return names_of(value)[static_cast<std::size_t>(value)];
  } else if constexpr (is_list<T>) {
    Json json = Json::array();
    for (const auto& item : value) json.push_back(to_field(item));
    return json;
  } else if constexpr (std::floating_point<T>) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  } else {
    return value;
  }
}

/// Reads what to_field wrote. Throws Unsound.
template <class T>
void take(const char* key, const Json& json, T& value, const FieldRange& range) {
  using namespace json_fields_detail;
  if constexpr (Custom<T>) {
    take_field(key, json, value);
  } else if constexpr (Described<T>) {
    at_place(key, [&] {
      FieldReader read(json);
      each_field(value, read);
      read.finish();
    });
  } else if constexpr (Named<T>) {
    const auto& names = names_of(value);
    const auto text = json.is_string() ? json.get<std::string>() : "";
    const auto found = std::ranges::find(names, text, [](const auto& n) { return std::string(n); });
    if (found == std::end(names))
      wrong_field(key, fmt::format("one of {}", fmt::join(names, ", ")), json);
    value = static_cast<T>(found - std::begin(names));
  } else if constexpr (is_list<T>) {
    if (!json.is_array()) wrong_field(key, "a list", json);
    value.clear();
    for (const Json& item : json) {
      typename T::value_type one{};  // vector<bool> has no references
      if constexpr (Described<typename T::value_type>)
        take(fmt::format("{}[{}]", key, value.size()).c_str(), item, one);
      else
        take(key, item, one, range);
      value.push_back(std::move(one));
    }
  } else if constexpr (std::floating_point<T>) {
    take_number(key, json, value, range);
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    const auto largest = sizeof(T) < 8 || std::is_unsigned_v<T>
                             ? static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                             : static_cast<std::uint64_t>(kLargestField);
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > largest)
      wrong_field(key, fmt::format("an integer from 0 to {}", largest), json);
    value = json.get<T>();
  } else {
    take_plain(key, json, value);
  }
}

/// A whole file: an object whose first field, `mark`, is the number of its version.
template <class T>
std::string text_of_fields(const T& value, const char* mark, int version) {
  Json json = {{mark, version}};
  each_field(value, FieldWriter(json));
  return json.dump(1) + "\n";
}

/// Throws Unsound. Precondition: the mark is there and right.
template <class T>
T from_fields(const Json& json, const char* mark) {
  T value;
  FieldReader read(json);
  int version = 0;
  read(mark, version);
  each_field(value, read);
  read.finish();
  return value;
}

}  // namespace penstock
