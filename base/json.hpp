// SPDX-License-Identifier: Apache-2.0
// JSON as a value: null, booleans, numbers, texts, lists, and objects whose keys keep their order.
//
// The library that reads and writes it (nlohmann's) is a template that costs a second and a half in
// every file that includes it and more in those that use it. So it stays in json.cpp, which alone
// parses and prints; here is an ordinary class. Names and meanings are the library's: braces around
// pairs that begin with a text make an object, other braces a list.
#pragma once

#include "base/one_of.hpp"

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {

/// A text that is no JSON (`byte` is its 1-based place in the text), or a value that is not what
/// was asked for (`byte` is 0).
struct JsonError : std::runtime_error {
  explicit JsonError(const std::string& what, std::size_t byte_ = 0)
      : std::runtime_error(what), byte(byte_) {}
  std::size_t byte;
};

class Json {
 public:
  struct Member;
  struct Part;
  using List = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() noexcept;
  Json(std::nullptr_t) noexcept;
  template <std::same_as<bool> T>
  Json(T value) noexcept;
  template <std::signed_integral T>
  Json(T value) noexcept;
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  Json(T value) noexcept;
  template <std::floating_point T>
  Json(T value) noexcept;
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  Json(List list);
  template <class T>
    requires(!std::same_as<T, Json>)
  Json(const std::vector<T>& list);
  template <class T>
  Json(const std::set<T>& list);
  template <class T, std::size_t N>
  Json(const std::array<T, N>& list);
  template <class T>
  Json(const std::map<std::string, T>& object);
  Json(std::initializer_list<Part> parts);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  static Json array(std::initializer_list<Part> elements = {});
  static Json object();
  /// Throws JsonError, also where an object has a key twice.
  static Json parse(std::string_view text);
  /// Nothing when the text is no JSON; of two values of a key the last.
  static std::unique_ptr<Json> parse_if(std::string_view text);
  /// On one line, or with that many spaces per level. What is not UTF-8 in a text is replaced; a
  /// number that is none (NaN, infinite) is null.
  std::string dump(int indent = -1) const;

  bool is_null() const { return value_.index() == 0; }
  bool is_boolean() const { return value_.index() == 1; }
  bool is_number_integer() const { return value_.index() == 2 || value_.index() == 3; }
  /// Not negative.
  bool is_number_unsigned() const;
  bool is_number_float() const { return value_.index() == 4; }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_string() const { return value_.index() == 5; }
  bool is_array() const { return value_.index() == 6; }
  bool is_object() const { return value_.index() == 7; }
  bool is_structured() const { return is_array() || is_object(); }
  const char* type_name() const;

  /// The value as a number, text, bool, vector or map of such. Throws JsonError if it is another.
  template <class T>
  T get() const;

  /// Of a list or an object; 0 for null, else 1.
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  void push_back(Json value);
  Json& emplace_back(Json value);
  const Json& front() const { return at(0); }
  Json& back();

  /// Throws JsonError where there is none.
  const Json& at(std::size_t i) const;
  const Json& at(std::string_view key) const;
  /// Of an object, or of null, which becomes one; the member is made where there is none.
  Json& operator[](std::string_view key);
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }
  const Json& operator[](std::string_view key) const { return at(key); }
  const Json& operator[](const char* key) const { return at(std::string_view(key)); }
  template <std::integral I>
  Json& operator[](I i) {
    return const_cast<Json&>(at(static_cast<std::size_t>(i)));
  }
  template <std::integral I>
  const Json& operator[](I i) const {
    return at(static_cast<std::size_t>(i));
  }
  /// Null if this is no object or has no such key.
  const Json* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  template <class T>
  T value(std::string_view key, T otherwise) const;
  std::string value(std::string_view key, const char* otherwise) const;
  void erase(std::string_view key);
  /// Takes over the members of another object.
  void update(const Json& object);

  /// The elements of a list; none of null. Throws JsonError for anything else.
  List::const_iterator begin() const { return list().begin(); }
  List::const_iterator end() const { return list().end(); }
  List::iterator begin() { return const_cast<List&>(list()).begin(); }
  List::iterator end() { return const_cast<List&>(list()).end(); }
  /// The members of an object, as [key, value]; none of null. Throws JsonError for anything else.
  const Object& items() const;
  Object& items() { return const_cast<Object&>(std::as_const(*this).items()); }

  /// Numbers are equal by their value, objects whatever the order of their keys.
  friend bool operator==(const Json& a, const Json& b);

 private:
  const List& list() const;
  /// JsonError when it is no whole number from `least` to `most`.
  std::int64_t integer(std::int64_t least, std::uint64_t most) const;
  double number() const;
  bool boolean() const;
  const std::string& text() const;
  [[noreturn]] void is_no(const char* wanted) const;

  OneOf<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, List, Object>
      value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

/// What stands between braces: a value that can be moved out of them.
struct Json::Part {
  template <class T>
    requires(std::constructible_from<Json, T> && !std::same_as<std::remove_cvref_t<T>, Part>)
  Part(T&& part) : value(std::forward<T>(part)) {}
  Part(std::initializer_list<Part> parts) : value(parts) {}
  mutable Json value;
};

template <std::same_as<bool> T>
Json::Json(T value) noexcept : value_(value) {}

template <std::signed_integral T>
Json::Json(T value) noexcept : value_(static_cast<std::int64_t>(value)) {}

template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>)
Json::Json(T value) noexcept : value_(static_cast<std::uint64_t>(value)) {}

template <std::floating_point T>
Json::Json(T value) noexcept : value_(static_cast<double>(value)) {}

template <class T>
  requires(!std::same_as<T, Json>)
Json::Json(const std::vector<T>& list) : Json(List(list.begin(), list.end())) {}

template <class T>
Json::Json(const std::set<T>& list) : Json(List(list.begin(), list.end())) {}

template <class T, std::size_t N>
Json::Json(const std::array<T, N>& list) : Json(List(list.begin(), list.end())) {}

template <class T>
Json::Json(const std::map<std::string, T>& object) : Json(Json::object()) {
  for (const auto& [key, value] : object) items().push_back({key, value});
}

namespace json_detail {
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_map = false;
template <class T>
inline constexpr bool is_map<std::map<std::string, T>> = true;
}  // namespace json_detail

template <class T>
T Json::get() const {
  if constexpr (std::same_as<T, bool>) {
    return boolean();
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(integer(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(number());
  } else if constexpr (std::same_as<T, std::string>) {
    return text();
  } else if constexpr (json_detail::is_vector<T>) {
    T values;
    for (const Json& element : list()) values.push_back(element.get<typename T::value_type>());
    return values;
  } else if constexpr (json_detail::is_map<T>) {
    T values;
    for (const auto& [key, value] : items())
      values.emplace(key, value.template get<typename T::mapped_type>());
    return values;
  } else {
    static_assert(std::same_as<T, Json>, "Json holds numbers, texts, bools and vectors of them");
    return *this;
  }
}

template <class T>
T Json::value(std::string_view key, T otherwise) const {
  const Json* found = is_object() ? find(key) : &at(key);
  return found == nullptr ? otherwise : found->get<T>();
}

}  // namespace penstock
