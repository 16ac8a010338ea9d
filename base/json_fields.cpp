#include "base/json_fields.hpp"

namespace penstock {

const Json& member(const Json& json, const char* key) {
  if (!json.is_object()) throw Unsound(fmt::format("an object with '{}' is expected", key));
  const Json* found = json.find(key);
  if (found == nullptr) throw Unsound(fmt::format("'{}' is missing", key));
  return *found;
}

void wrong_field(const char* key, const std::string& must, const Json& seen) {
  std::string text = seen.dump();
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  throw Unsound(fmt::format("'{}' must be {}, got {}", key, must, text));
}

void FieldReader::finish() const {
  for (const auto& [key, value] : json_.items())
    if (std::ranges::find(known_, key) == known_.end())
      throw Unsound(fmt::format("unknown key '{}'", key.substr(0, 60)));
}

namespace json_fields_detail {

void take_plain(const char* key, const Json& json, bool& value) {
  if (!json.is_boolean()) wrong_field(key, "true or false", json);
  value = json.get<bool>();
}

void take_plain(const char* key, const Json& json, std::string& value) {
  if (!json.is_string()) wrong_field(key, "a text", json);
  value = json.get<std::string>();
}

void take_plain(const char* key, const Json& json, std::map<std::string, std::string>& texts) {
  if (!json.is_object()) wrong_field(key, "an object of texts", json);
  for (const auto& [name, text] : json.items()) take_plain(key, text, texts[name]);
}

void take_number(const char* key, const Json& json, double& value, const FieldRange& range) {
  value = std::numeric_limits<double>::infinity();
  if (json.is_null() && range.or_unlimited) return;
  const std::string_view name = key;
  const bool time = name.ends_with("_s") && !name.ends_with("_per_s");
  const double most = time ? kLongestField_s : range.most;
  if (json.is_number()) value = json.get<double>();
  if (!(value >= range.least && value <= most))
    wrong_field(key, fmt::format("a number from {:g} to {:g}", range.least, most), json);
}

}  // namespace json_fields_detail

}  // namespace penstock
