#include "traces/json_reader.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// 1-based line and column of a byte of the text.
Position position_of(const std::string& text, std::size_t byte, const std::string& origin) {
  Position at{origin, 1, 1};
  for (std::size_t i = 0; i + 1 < std::min(byte, text.size() + 1); ++i) {
    ++at.column;
    if (text[i] != '\n') continue;
    ++at.line;
    at.column = 1;
  }
  return at;
}

}  // namespace

std::string dumped(const Json& value) { return value.dump(); }

std::string seen(const Json& value) {
  std::string text = dumped(value);
  constexpr std::size_t kLongest = 40;
  return text.size() > kLongest ? std::string(value.type_name()) : text;
}

InputError not_json(const std::string& text, std::size_t byte, const std::string& origin) {
  return InputError(std::vector<Diagnostic>{
      {position_of(text, byte, origin), "is not JSON from here on", "", 1, 0}});
}

Json parse_json(const std::string& text, const std::string& origin) {
  try {
    return Json::parse(text);
  } catch (const JsonError& error) {
    throw not_json(text, error.byte, origin);
  }
}

void JsonProblems::add(const std::string& place, const std::string& message) {
  constexpr std::size_t kShown = 20;
  if (++count_ <= kShown) put(place.empty() ? message : place + ": " + message);
}

void JsonProblems::throw_if_any() {
  if (count_ == 0) return;
  if (count_ > found_.size()) put(fmt::format("and {} more", count_ - found_.size()));
  throw InputError(found_);
}

std::string JsonReader::text(const char* key, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr) return {};
  if (!value->is_string()) return wrong(key, "must be a text", *value), std::string();
  return value->get<std::string>();
}

double JsonReader::number(const char* key) {
  const Json* value = find(key, true);
  if (value == nullptr) return 0;
  if (!value->is_number()) return wrong(key, "must be a number", *value), 0;
  return value->get<double>();
}

bool JsonReader::boolean(const char* key) {
  const Json* value = find(key, true);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return wrong(key, "must be true or false", *value), false;
  return value->get<bool>();
}

std::int64_t JsonReader::integer(const char* key, std::int64_t least, std::int64_t most) {
  const Json* value = find(key, true);
  if (value == nullptr) return least;
  // An unsigned number beyond int64 would turn negative.
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX);
  const std::int64_t got = fits ? value->get<std::int64_t>() : least;
  if (!fits || got < least || got > most) {
    wrong(key, fmt::format("must be an integer from {} to {}", least, most), *value);
    return least;
  }
  return got;
}

bool JsonReader::given(const char* key) {
  const Json* value = find(key, false);
  return value != nullptr && !value->is_null();
}

const Json* JsonReader::find(const char* key, bool required) {
  asked_.emplace_back(key);
  if (!object_.is_object()) return nullptr;
  if (const Json* found = object_.find(key)) return found;
  if (required) problems_.add(place_, fmt::format("'{}' is missing", key));
  return nullptr;
}

JsonReader JsonReader::inside(const char* key) {
  static const Json kNothing = Json::object();
  const Json* value = find(key, true);
  return {value == nullptr ? kNothing : *value, at(key), problems_};
}

void JsonReader::finish() {
  if (!object_.is_object()) return;
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(asked_, key) == asked_.end())
      problems_.add(place_, fmt::format("unknown key '{}'", key));
  }
}

std::string JsonReader::at(const char* key) const {
  if (*key == '\0') return place_;
  return place_.empty() ? key : place_ + "." + key;
}

}  // namespace penstock
