// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include "base/json_depth.hpp"
#include "base/say.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

namespace penstock {
namespace {

/// Goes over a text and says how much of it the library's parser has taken.
class Taken {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Taken(const char* at, const char** taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  Taken& operator++() {
    *taken_ = ++at_;
    return *this;
  }
  friend bool operator==(const Taken& a, const Taken& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** taken_;
};

/// Builds a Json from what the library's parser finds. Unless told so, no object has a key twice:
/// whoever edits a file sees the one and we would use the other.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  enum class Twice : std::uint8_t { refused, taken };
  Builder(std::string_view text, Twice twice) : text_(text), taken_(text.data()), twice_(twice) {}

  bool parse() {
    const char* const end = text_.data() + text_.size();
    return nlohmann::json::sax_parse(Taken(taken_, &taken_), Taken(end, &taken_), this);
  }
  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (twice_ == Twice::refused && open_.back()->contains(name)) {
      byte_ = begin_of_string();
      why_ = fmt::format("the key '{}' is there twice", name);
      return false;
    }
    place_ = &(*open_.back())[name];
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception&) override {
    byte_ = byte;
    return false;
  }

  Json root;
  JsonError error() const { return JsonError(why_, byte_); }

 private:
  /// The place of the string whose closing quote was just taken.
  std::size_t begin_of_string() const {
    const auto is_escaped = [&](std::size_t i) {
      const std::size_t plain = i == 0 ? text_.npos : text_.find_last_not_of('\\', i - 1);
      return (i - (plain == text_.npos ? 0 : plain + 1)) % 2 == 1;
    };
    std::size_t begin = static_cast<std::size_t>(taken_ - text_.data()) - 1;
    do begin = text_.rfind('"', begin - 1);
    while (is_escaped(begin));
    return begin + 1;
  }
  // What is open is the last element of what holds it, so nothing moves while it is open.
  bool put(Json value) {
    Json& to = place_ != nullptr ? *place_ : open_.back()->emplace_back(nullptr);
    to = std::move(value);
    last_ = &to;
    place_ = nullptr;
    return true;
  }
  bool open(Json value) {
    put(std::move(value));
    open_.push_back(last_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Json*> open_;
  Json* place_ = &root;  // where the next value goes; null: behind the others of the open list
  Json* last_ = nullptr;
  std::string_view text_;
  const char* taken_;
  Twice twice_;
  std::size_t byte_ = 0;
  std::string why_ = "is not JSON from here on";
};

/// Appends a value as the library prints it.
class Printer {
 public:
  Printer(std::string& out, int indent) : out_(out), indent_(indent) {}

  void put(const Json& value) {
    if (value.is_object()) {
      put_all(value.items(), '{', '}', [&](const Json::Member& m) {
        put_text(m.key);
        out_ += indent_ < 0 ? ":" : ": ";
        put(m.value);
      });
    } else if (value.is_array()) {
      put_all(value, '[', ']', [&](const Json& element) { put(element); });
    } else if (value.is_string()) {
      put_text(value.get<std::string>());
    } else if (value.is_number()) {
      put_number(value);
    } else {
      out_ += value.is_null() ? "null" : value.get<bool>() ? "true" : "false";
    }
  }

 private:
  template <class Range, class F>
  void put_all(const Range& range, char begin, char end, F&& one) {
    out_ += begin;
    ++depth_;
    bool first = true;
    for (const auto& element : range) {
      if (!first) out_ += ',';
      first = false;
      new_line();
      one(element);
    }
    --depth_;
    if (!first) new_line();
    out_ += end;
  }
  void new_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(depth_ * indent_), ' ');
  }
  void put_number(const Json& value) {
    if (!value.is_number_integer()) {
      out_ += nlohmann::json(value.get<double>()).dump();
    } else if (value.is_number_unsigned()) {
      put_integer(value.get<std::uint64_t>());
    } else {
      put_integer(value.get<std::int64_t>());
    }
  }
  void put_integer(auto value) {
    char digits[24];
    out_.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
  }
  void put_text(const std::string& text) {
    const auto plain = [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; };
    if (std::ranges::all_of(text, plain))
      out_.append(1, '"').append(text).append(1, '"');
    else
      put_escaped(
          nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  /// The library leaves DEL, C1 and marks of direction as they are, which a terminal obeys.
  void put_escaped(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
      const ShownCharacter c = shown_character(text.substr(i));
      if (c.escape.empty())
        out_ += text.substr(i, c.bytes);
      else
        out_ += c.bytes == 1 ? "\\u00" + c.escape.substr(2) : c.escape;
      i += c.bytes;
    }
  }

  std::string& out_;
  int indent_;
  int depth_ = 0;
};

/// Returns where a text opens more brackets than may be nested, from 1; 0: nowhere.
std::size_t too_deep_at(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) return i + 1;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return 0;
}

constexpr const char* kTypeNames[] = {"null",   "boolean", "number", "number",
                                      "number", "string",  "array",  "object"};

bool equal_objects(const Json& a, const Json& b) {
  return a.size() == b.size() && std::ranges::all_of(a.items(), [&](const Json::Member& m) {
           const Json* other = b.find(m.key);
           return other != nullptr && m.value == *other;
         });
}

}  // namespace

Json::Json() noexcept = default;
Json::Json(std::nullptr_t) noexcept {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(List list) : value_(std::move(list)) {}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(std::initializer_list<Part> parts) {
  const bool pairs = std::ranges::all_of(parts, [](const Part& p) {
    return p.value.is_array() && p.value.size() == 2 && p.value[0].is_string();
  });
  *this = pairs ? object() : array(parts);
  if (!pairs) return;
  for (const Part& p : parts) {
    Json& key = p.value[0];
    (*this)[std::get<std::string>(key.value_)] = std::move(p.value[1]);
  }
}

Json Json::array(std::initializer_list<Part> elements) {
  List list;
  list.reserve(elements.size());
  for (const Part& p : elements) list.push_back(std::move(p.value));
  return list;
}

Json Json::object() {
  Json json;
  json.value_ = Object();
  return json;
}

void require_shallow_json(std::string_view text) {
  if (const std::size_t byte = too_deep_at(text); byte > 0)
    throw JsonError(fmt::format("is nested more than {} deep", kDeepestJson), byte);
}

Json Json::parse(std::string_view text) {
  require_shallow_json(text);
  Builder builder(text, Builder::Twice::refused);
  if (!builder.parse()) throw builder.error();
  return std::move(builder.root);
}

std::unique_ptr<Json> Json::parse_if(std::string_view text) {
  Builder builder(text, Builder::Twice::taken);
  if (too_deep_at(text) > 0 || !builder.parse()) return nullptr;
  return std::make_unique<Json>(std::move(builder.root));
}

std::string Json::dump(int indent) const {
  std::string out;
  Printer(out, indent).put(*this);
  return out;
}

bool Json::is_number_unsigned() const {
  const auto* value = std::get_if<std::int64_t>(&value_);
  return value != nullptr ? *value >= 0 : std::holds_alternative<std::uint64_t>(value_);
}

const char* Json::type_name() const { return kTypeNames[value_.index()]; }

std::size_t Json::size() const {
  if (is_object()) return items().size();
  if (is_array()) return list().size();
  return is_null() ? 0 : 1;
}

void Json::push_back(Json value) { emplace_back(std::move(value)); }

Json& Json::emplace_back(Json value) {
  if (is_null()) value_ = List();
  if (!is_array()) is_no("array");
  return std::get<List>(value_).emplace_back(std::move(value));
}

Json& Json::back() { return (*this)[size() - 1]; }

const Json& Json::at(std::size_t i) const {
  if (i >= list().size())
    throw JsonError(fmt::format("array index {} is out of range", static_cast<std::int64_t>(i)));
  return list()[i];
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) is_no("object");
  const Json* found = find(key);
  if (found == nullptr) throw JsonError(fmt::format("key '{}' not found", key));
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (!is_object()) is_no("object");
  const Json* found = find(key);
  if (found != nullptr) return const_cast<Json&>(*found);
  return items().emplace_back(Member{std::string(key), Json()}).value;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& m : items())
    if (m.key == key) return &m.value;
  return nullptr;
}

std::string Json::value(std::string_view key, const char* otherwise) const {
  return value(key, std::string(otherwise));
}

void Json::erase(std::string_view key) {
  std::erase_if(items(), [&](const Member& m) { return m.key == key; });
}

void Json::update(const Json& object) {
  for (const Member& m : object.items()) (*this)[m.key] = m.value;
}

const Json::List& Json::list() const {
  static const List kNone;
  if (is_null()) return kNone;
  if (!is_array()) is_no("array");
  return std::get<List>(value_);
}

const Json::Object& Json::items() const {
  static const Object kNone;
  if (is_null()) return kNone;
  if (!is_object()) is_no("object");
  return std::get<Object>(value_);
}

std::int64_t Json::integer(std::int64_t least, std::uint64_t most) const {
  constexpr double kTwoTo63 = 0x1p63;
  const auto whole = [&]() -> std::optional<std::int64_t> {
    if (const auto* value = std::get_if<std::uint64_t>(&value_))
      return *value <= most ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt;
    std::int64_t value = 0;
    if (const auto* integer = std::get_if<std::int64_t>(&value_)) {
      value = *integer;
    } else {
      const double real = number();
      if (!(real >= -kTwoTo63 && real < kTwoTo63) || real != std::trunc(real)) return std::nullopt;
      value = static_cast<std::int64_t>(real);
    }
    const bool fits = value >= least && (value < 0 || static_cast<std::uint64_t>(value) <= most);
    return fits ? std::optional(value) : std::nullopt;
  }();
  if (whole) return *whole;
  throw JsonError(fmt::format("{} is no whole number from {} to {}", dump(), least, most));
}

double Json::number() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  is_no("number");
}

bool Json::boolean() const {
  const auto* value = std::get_if<bool>(&value_);
  if (value == nullptr) is_no("boolean");
  return *value;
}

const std::string& Json::text() const {
  const auto* value = std::get_if<std::string>(&value_);
  if (value == nullptr) is_no("string");
  return *value;
}

void Json::is_no(const char* wanted) const {
  throw JsonError(fmt::format("type must be {}, but is {}", wanted, type_name()));
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number_integer() && b.is_number_integer())
    return a.is_number_unsigned() == b.is_number_unsigned() &&
           (a.is_number_unsigned() ? a.get<std::uint64_t>() == b.get<std::uint64_t>()
                                   : a.get<std::int64_t>() == b.get<std::int64_t>());
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.value_.index() != b.value_.index()) return false;
  if (a.is_object()) return equal_objects(a, b);
  if (a.is_array()) return std::ranges::equal(a.list(), b.list());
  if (a.is_string()) return a.text() == b.text();
  return a.is_null() || a.boolean() == b.boolean();
}

}  // namespace penstock
