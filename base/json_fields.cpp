#include "base/json_fields.hpp"

namespace penstock {

const Json& member(const Json& json, const char* key) {
  if (!json.is_object()) throw Unsound(fmt::format("an object with '{}' is expected", key));
  const Json* found = json.find(key);
  if (found == nullptr) throw Unsound(fmt::format("'{}' is missing", key));
  return *found;
}

const Json& list(const Json& json, const char* key) {
  const Json& found = member(json, key);
  if (!found.is_array()) wrong_field(key, "a list", found);
  return found;
}

void wrong_field(const char* key, const std::string& must, const Json& seen) {
  std::string text = seen.dump();
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  throw Unsound(fmt::format("'{}' must be {}, got {}", key, must, text));
}

void take(const char* key, const Json& json, bool& value) {
  if (!json.is_boolean()) wrong_field(key, "true or false", json);
  value = json.get<bool>();
}

void take(const char* key, const Json& json, std::string& value) {
  if (!json.is_string()) wrong_field(key, "a text", json);
  value = json.get<std::string>();
}

void FieldReader::operator()(const char* key, double& value) const {
  const Json& given = member(json, key);
  const std::string_view name = key;
  value = std::numeric_limits<double>::infinity();
  if (given.is_null() && name == "bytes_per_s") return;
  const bool time = name.ends_with("_s") && !name.ends_with("_per_s");
  const double largest = time ? kLongestField_s : most;
  if (given.is_number()) value = given.get<double>();
  if (!(value >= least && value <= largest))
    wrong_field(key, fmt::format("a number from {:g} to {:g}", least, largest), given);
}

}  // namespace penstock
