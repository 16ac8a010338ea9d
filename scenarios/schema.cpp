// SPDX-License-Identifier: Apache-2.0
// The JSON Schema of a scenario, made from the table of keys.
#include "base/json.hpp"
#include "scenarios/keys.hpp"

namespace penstock {
namespace {

Json quantity(Dimension dimension) {
  const Json text = {{"type", "string"}, {"pattern", pattern(dimension)}};
  if (dimension == Dimension::number || dimension == Dimension::fraction) {
    const int most = dimension == Dimension::fraction ? 1 : 1'000'000;
    return {{"anyOf", {{{"type", "number"}, {"minimum", 0}, {"maximum", most}}, text}}};
  }
  const bool may_be_zero = dimension == Dimension::time || dimension == Dimension::bytes;
  if (!may_be_zero) return text;
  return {{"anyOf", {text, {{"const", 0}}}}};
}

Json reference(std::string_view section) {
  return {{"$ref", "#/definitions/" + std::string(section)}};
}

Json list_of(const Json& item) { return {{"type", "array"}, {"items", item}, {"minItems", 1}}; }

Json type_of(const KeyRow& row) {
  using T = KeyRow::Type;
  const Json word = {{"type", "string"}};
  switch (row.type) {
    case T::text: return {{"type", {"string", "number"}}};
    case T::boolean: return {{"type", "boolean"}};
    case T::integer: return {{"type", "integer"}, {"minimum", row.minimum}};
    case T::counts: {
      const Json count = {{"type", "integer"}, {"minimum", row.minimum}};
      return {{"anyOf", {count, list_of(count)}}};
    }
    case T::quantity: return quantity(row.dimension);
    case T::quantity_per_stage:
      return {{"anyOf", {quantity(row.dimension), list_of(quantity(row.dimension))}}};
    case T::choice: return {{"enum", split_choices(row.choices)}};
    case T::choice_or_section:
      return {{"anyOf", {{{"enum", split_choices(row.choices)}}, reference(row.key)}}};
    case T::choice_per_stage: {
      const Json word_of = {{"enum", split_choices(row.choices)}};
      return {{"anyOf", {word_of, list_of(word_of)}}};
    }
    case T::choice_sets: {
      const Json word_of = {{"enum", split_choices(row.choices)}};
      return {{"anyOf", {word_of, list_of(word_of), list_of(list_of(word_of))}}};
    }
    case T::split:
    case T::gpus:
      return {{"anyOf",
               {{{"enum", split_choices(row.choices)}},
                list_of({{"type", "integer"}, {"minimum", row.minimum}})}}};
    case T::numbers: return list_of({{"type", "number"}, {"minimum", 0}});
    case T::link: return {{"anyOf", {quantity(Dimension::bandwidth), reference("link")}}};
    case T::section: return reference(row.choices);
    case T::section_list: return list_of(reference(row.choices));
    case T::name_or_section: return {{"anyOf", {word, reference(row.choices)}}};
    case T::curve: return list_of({{"type", "array"}, {"minItems", 2}, {"maxItems", 2}});
    case T::pair:
      return {{"type", "array"},
              {"items", {{"type", {"string", "integer"}}}},
              {"minItems", 2},
              {"maxItems", 2}};
    case T::rates:
      return {{"type", "object"},
              {"propertyNames", {{"enum", split_choices(row.choices)}}},
              {"additionalProperties", quantity(row.dimension)}};
  }
  return {};
}

Json section_schema(std::string_view section) {
  Json properties = Json::object();
  for (const KeyRow& row : key_table()) {
    if (row.section != section) continue;
    Json type = type_of(row);
    type["description"] = row.help;
    properties[std::string(row.key)] = type;
    for (const std::string& alias : split_choices(row.aliases)) properties[alias] = type;
  }
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
}

}  // namespace

std::string json_schema() {
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "penstock scenario"}};
  schema.update(section_schema("scenario"));
  schema["required"] = {"model", "schedule"};
  Json definitions = Json::object();
  for (const KeyRow& row : key_table()) {
    if (row.section != "scenario" && !definitions.contains(std::string(row.section))) {
      definitions[std::string(row.section)] = section_schema(row.section);
    }
  }
  schema["definitions"] = definitions;
  return schema.dump(2) + "\n";
}

}  // namespace penstock
