// SPDX-License-Identifier: Apache-2.0
// Fields of files that may come from anywhere, as JSON: nothing in them is taken on trust. Every
// field is there, no other is, numbers are in ranges in which no sum or product of a reader
// overflows, texts are texts, names are known. All that is wrong is collected with its place
// ("runs[0].ops[3].end_s") and thrown at once.
//
// A structure lists its fields once, for both directions, beside the structure or its file:
//   void each_field(Like<Sample> auto& s, auto&& visit) { VISIT_FIELDS(visit, s, n, seconds); }
// A field with a range, or whose name in the file is another, is visited by itself:
//   visit("compute_s", s.seconds, {0, 1});
// and an enum its names: constexpr const auto& names_of(StageRole) { return kStageRoleNames; }
// What is written in another way has two functions, found as those are:
//   Json field_json(const T&);    void take_field(const Place&, const Json&, T&);
// An optional that has no value is null; one that is read may be missing, too.
#pragma once

#include "base/error.hpp"
#include "base/json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// VISIT_FIELDS(visit, s, a, b) calls visit("a", s.a) and visit("b", s.b), for at most 64 fields. A
// macro that is named within its own text is not expanded there; each VISIT_AGAIN expands it once
// more.
#define VISIT_PARENTHESES ()
#define VISIT_AGAIN(...) VISIT_AGAIN_4(VISIT_AGAIN_4(VISIT_AGAIN_4(VISIT_AGAIN_4(__VA_ARGS__))))
#define VISIT_AGAIN_4(...) VISIT_AGAIN_1(VISIT_AGAIN_1(VISIT_AGAIN_1(VISIT_AGAIN_1(__VA_ARGS__))))
#define VISIT_AGAIN_1(...) VISIT_ONCE(VISIT_ONCE(VISIT_ONCE(VISIT_ONCE(__VA_ARGS__))))
#define VISIT_ONCE(...) __VA_ARGS__
#define VISIT_NEXT(visit, of, field, ...) \
  visit(#field, of.field);                \
  __VA_OPT__(VISIT_NEXT_AGAIN VISIT_PARENTHESES(visit, of, __VA_ARGS__))
#define VISIT_NEXT_AGAIN() VISIT_NEXT
#define VISIT_FIELDS(visit, of, ...) VISIT_AGAIN(VISIT_NEXT(visit, of, __VA_ARGS__))

namespace penstock {

/// With the line and column of a byte (from 1) of the text, from which on it is not JSON.
InputError not_json(std::string_view text, std::size_t byte, const std::string& origin);

/// Throws InputError with line and column when the text is not JSON.
Json parse_json(std::string_view text, const std::string& origin);

/// What is wrong with a document.
class JsonProblems {
 public:
  explicit JsonProblems(std::string origin) : origin_(std::move(origin)) {}

  void add_problem(const std::string& place, const std::string& message);
  std::size_t count() const { return count_; }
  void throw_if_any();

 private:
  void put(const std::string& message);

  std::string origin_;
  std::vector<Diagnostic> found_;
  std::size_t count_ = 0;
};

/// A place in a document, within another one that outlives it; put into words only where something
/// is wrong.
class Place {
 public:
  explicit Place(JsonProblems& problems) : problems_(&problems) {}

  Place in(std::string_view key) const& { return {this, key, 0}; }
  Place at(std::size_t i) const& { return {this, {}, i}; }
  Place in(std::string_view key) const&& = delete;
  Place at(std::size_t i) const&& = delete;

  /// The key of the value, or of the list that it is in.
  std::string_view key() const { return key_.empty() && outer_ != nullptr ? outer_->key() : key_; }
  std::string text() const;
  void problem(const std::string& what) const { problems_->add_problem(text(), what); }
  /// "must be MUST, got ...".
  void wrong(const std::string& must, const Json& seen) const;
  /// In the whole document, so far.
  std::size_t problems() const { return problems_->count(); }

 private:
  Place(const Place* outer, std::string_view key, std::size_t index)
      : outer_(outer), key_(key), index_(index), problems_(outer->problems_) {}

  const Place* outer_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;
  JsonProblems* problems_;
};

inline constexpr std::int64_t kLargestField = std::int64_t{1} << 44;  // bytes
inline constexpr double kLongestField_s = 1e9;

/// Of a number. Those with a fraction whose names end in _s are seconds, up to kLongestField_s.
struct FieldRange {
  double least = 0, most = 1e30;
  bool or_unlimited = false;  ///< null, because JSON has no infinity
};

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
concept WrittenOtherwise = requires(const T& value) { field_json(value); };
template <class T>
concept ReadOtherwise =
    requires(const Place& at, const Json& json, T& value) { take_field(at, json, value); };
template <class T>
inline constexpr bool may_be_missing = false;
template <class T>
inline constexpr bool may_be_missing<std::optional<T>> = true;

// The value as it is written, or a problem: JSON's own conversions let -1 and 1e300 through.
void take_plain(const Place& at, const Json& json, bool& value);
void take_plain(const Place& at, const Json& json, std::string& value);
void take_number(const Place& at, const Json& json, double& value, const FieldRange& range);
/// The position of a text in names; 0 and a problem where it is none.
std::size_t take_name(const Place& at, const Json& json, const std::vector<std::string>& names);

}  // namespace json_fields_detail

template <class T>
Json to_field(const T& value);
template <class T>
void take_value(const Place& at, const Json& json, T& value, const FieldRange& range = {});

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
  FieldReader(const Place& at, const Json& json);

  template <class T>
  void operator()(const char* key, T& value, const FieldRange& range = {}) {
    if (const Json* found = find(key, !json_fields_detail::may_be_missing<T>))
      take_value(at_.in(key), *found, value, range);
  }
  /// Nothing, and a problem when it is required, where there is none.
  const Json* find(const char* key, bool required);
  /// Keys that nobody asked for are problems.
  void finish() const;

 private:
  const Place& at_;
  const Json& json_;
  std::vector<std::string_view> known_;
};

template <class T>
Json to_field(const T& value) {
  using namespace json_fields_detail;
  if constexpr (WrittenOtherwise<T>) {
    return field_json(value);
  } else if constexpr (Described<const T>) {
    Json json = Json::object();
    each_field(value, FieldWriter(json));
    return json;
  } else if constexpr (Named<T>) {
    return names_of(value)[static_cast<std::size_t>(value)];
  } else if constexpr (json_detail::is_vector<T>) {
    Json json = Json::array();
    for (const auto& item : value) json.push_back(to_field(item));
    return json;
  } else if constexpr (may_be_missing<T>) {
    return value ? to_field(*value) : Json(nullptr);
  } else if constexpr (std::floating_point<T>) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  } else {
    return value;
  }
}

/// Reads what to_field wrote. Where something is wrong the value may be anything.
template <class T>
void take_value(const Place& at, const Json& json, T& value, const FieldRange& range) {
  using namespace json_fields_detail;
  if constexpr (ReadOtherwise<T>) {
    take_field(at, json, value);
  } else if constexpr (Described<T>) {
    FieldReader read(at, json);
    each_field(value, read);
    read.finish();
  } else if constexpr (Named<T>) {
    const auto& names = names_of(value);
    value = static_cast<T>(take_name(at, json, {std::begin(names), std::end(names)}));
  } else if constexpr (json_detail::is_vector<T>) {
    if (!json.is_array()) return at.wrong("a list", json);
    value.clear();
    value.reserve(json.size());
    for (const Json& item : json) {
      typename T::value_type one{};  // vector<bool> has no references
      take_value(at.at(value.size()), item, one, range);
      value.push_back(std::move(one));
    }
  } else if constexpr (json_detail::is_map<T>) {
    if (!json.is_object()) return at.wrong("an object", json);
    value.clear();
    for (const auto& [key, item] : json.items()) take_value(at.in(key), item, value[key], range);
  } else if constexpr (may_be_missing<T>) {
    value.reset();
    if (!json.is_null()) take_value(at, json, value.emplace(), range);
  } else if constexpr (std::floating_point<T>) {
    take_number(at, json, value, range);
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    const auto largest = sizeof(T) < 8 || std::is_unsigned_v<T>
                             ? static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                             : static_cast<std::uint64_t>(kLargestField);
    const auto most = range.most < static_cast<double>(largest)
                          ? static_cast<std::uint64_t>(range.most)
                          : largest;
    const auto least = static_cast<std::uint64_t>(std::max(0.0, range.least));
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() < least ||
        json.get<std::uint64_t>() > most)
      return at.wrong(fmt::format("an integer from {} to {}", least, most), json);
    value = json.get<T>();
  } else {
    take_plain(at, json, value);
  }
}

/// A whole file: an object whose first field, `mark`, is the number of its version.
template <class T>
std::string text_of_fields(const T& value, const char* mark, int version) {
  Json json = {{mark, version}};
  each_field(value, FieldWriter(json));
  return json.dump(1) + "\n";
}

/// Throws InputError with all that is wrong. Precondition: the mark is there and right.
template <class T>
T from_fields(const Json& json, const std::string& origin, const char* mark) {
  JsonProblems problems(origin);
  const Place whole(problems);
  FieldReader read(whole, json);
  T value;
  int version = 0;
  read(mark, version);
  each_field(value, read);
  read.finish();
  problems.throw_if_any();
  return value;
}

}  // namespace penstock
