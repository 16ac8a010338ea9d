// SPDX-License-Identifier: Apache-2.0
#include "base/json_fields.hpp"

#include "base/json_depth.hpp"
#include "base/say.hpp"

namespace penstock {
namespace {

/// A value as an error shows it: its text, or only its type when that is long.
std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 40;
  const std::string text = value.dump();
  return text.size() > kLongest ? std::string(value.type_name()) : text;
}

/// 1-based line and column of a byte of the text.
Position position_of(std::string_view text, std::size_t byte, const std::string& origin) {
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

InputError not_json(std::string_view text, const JsonError& error, const std::string& origin) {
  return InputError(
      std::vector<Diagnostic>{{position_of(text, error.byte, origin), error.what(), "", 1, 0}});
}

InputError not_json(std::string_view text, std::size_t byte, const std::string& origin) {
  return not_json(text, JsonError("is not JSON from here on", byte), origin);
}

Json parse_json(std::string_view text, const std::string& origin) {
  try {
    return Json::parse(text);
  } catch (const JsonError& error) {
    throw not_json(text, error, origin);
  }
}

void JsonProblems::put(const std::string& message) {
  found_.push_back({{origin_, 0, 0}, without_controls(message), "", 1, 0});
}

void JsonProblems::add_problem(const std::string& place, const std::string& message) {
  constexpr std::size_t kShown = 20;
  if (++count_ <= kShown) put(place.empty() ? message : place + ": " + message);
}

void JsonProblems::throw_if_any() {
  if (count_ == 0) return;
  if (count_ > found_.size()) put(fmt::format("and {} more", count_ - found_.size()));
  throw InputError(found_);
}

std::string Place::text() const {
  if (outer_ == nullptr) return {};
  const std::string outer = outer_->text();
  if (key_.empty()) return fmt::format("{}[{}]", outer, index_);
  constexpr std::size_t kLongest = 60;
  return fmt::format("{}{}{}", outer, outer.empty() ? "" : ".", key_.substr(0, kLongest));
}

void Place::wrong(const std::string& must, const Json& seen) const {
  problem(fmt::format("must be {}, got {}", must, shown(seen)));
}

FieldReader::FieldReader(const Place& at, const Json& json) : at_(at), json_(json) {
  if (!json.is_object()) at.wrong("an object", json);
}

const Json* FieldReader::find(const char* key, bool required) {
  known_.emplace_back(key);
  if (!json_.is_object()) return nullptr;
  const Json* found = json_.find(key);
  if (found == nullptr && required) at_.problem(fmt::format("'{}' is missing", key));
  return found;
}

void FieldReader::finish() const {
  if (!json_.is_object()) return;
  for (const auto& [key, value] : json_.items())
    if (std::ranges::find(known_, key) == known_.end())
      at_.problem(fmt::format("unknown key '{}'", key.substr(0, 60)));
}

namespace json_fields_detail {

void take_plain(const Place& at, const Json& json, bool& value) {
  if (!json.is_boolean()) return at.wrong("true or false", json);
  value = json.get<bool>();
}

void take_plain(const Place& at, const Json& json, std::string& value) {
  if (!json.is_string()) return at.wrong("a text", json);
  value = json.get<std::string>();
}

void take_number(const Place& at, const Json& json, double& value, const FieldRange& range) {
  value = std::numeric_limits<double>::infinity();
  if (json.is_null() && range.or_unlimited) return;
  const std::string_view name = at.key();
  const bool time = name.ends_with("_s") && !name.ends_with("_per_s");
  const double most = time ? kLongestField_s : range.most;
  if (json.is_number()) value = json.get<double>();
  if (!(value >= range.least && value <= most))
    at.wrong(fmt::format("a number from {:g} to {:g}", range.least, most), json);
}

std::size_t take_name(const Place& at, const Json& json, const std::vector<std::string>& names) {
  const std::string text = json.is_string() ? json.get<std::string>() : "";
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  at.wrong(fmt::format("one of {}", fmt::join(names, ", ")), json);
  return 0;
}

}  // namespace json_fields_detail

}  // namespace penstock
