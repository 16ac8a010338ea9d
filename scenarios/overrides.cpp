// SPDX-License-Identifier: Apache-2.0
#include "scenarios/overrides.hpp"

#include "base/suggest.hpp"
#include "scenarios/library.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

namespace penstock {
namespace {

using Path = std::vector<std::string>;

/// A place in a scenario: a row of the table of keys for each step down.
using Place = std::vector<const KeyRow*>;

std::string dotted(const Place& place) {
  std::string text;
  for (const KeyRow* row : place) text += (text.empty() ? "" : ".") + std::string(row->key);
  return text;
}

/// The section whose keys the map behind a key has; "" when there is none.
std::string section_behind(const KeyRow& row) {
  using T = KeyRow::Type;
  if (row.type == T::link) return "link";
  if (row.type == T::choice_or_section) return std::string(row.key);
  const bool has_section = row.type == T::section || row.type == T::name_or_section;
  return has_section ? std::string(row.choices) : "";
}

void collect(const std::string& section, Place& above, std::vector<Place>& out) {
  for (const KeyRow& row : key_table()) {
    if (row.section != section) continue;
    above.push_back(&row);
    out.push_back(above);
    collect(section_behind(row), above, out);
    above.pop_back();
  }
}

const std::vector<Place>& all_places() {
  static const std::vector<Place> kPlaces = [] {
    std::vector<Place> places;
    Place top;
    collect("scenario", top, places);
    return places;
  }();
  return kPlaces;
}

Path split_path(const std::string& key) {
  Path path;
  std::size_t from = 0;
  while (from <= key.size()) {
    const std::size_t dot = std::min(key.find('.', from), key.size());
    path.push_back(key.substr(from, dot - from));
    from = dot + 1;
  }
  return path;
}

bool is_called(const KeyRow& row, const std::string& name) {
  return row.key == name || place_of_choice(row.aliases, name);
}

/// Does a place end with these names?
bool ends_with(const Place& place, const Path& names) {
  if (names.size() > place.size()) return false;
  return std::equal(
      names.begin(), names.end(), place.end() - static_cast<std::ptrdiff_t>(names.size()),
      [](const std::string& name, const KeyRow* row) { return is_called(*row, name); });
}

/// The slots of a building block have the names of the model's times: by their full path alone.
bool is_reached(const Place& place, const Path& given) {
  return place.size() == 1 || place.front()->key != "schedule" || given.size() > 1;
}

/// What may have been meant, with dots where some were given.
std::vector<std::string> names_for(const Path& given) {
  std::vector<std::string> names;
  for (const Place& place : all_places()) {
    if (!is_reached(place, given)) continue;
    names.emplace_back(place.back()->key);
    if (given.size() > 1) names.push_back(dotted(place));
  }
  return names;
}

/// The full path of a key: as given when it begins at the top, else the only place that ends with
/// it; one near the top wins over one deeper down.
Path resolve(const std::string& key, std::string& problem) {
  const Path given = split_path(key);
  if (std::ranges::find(given, "") != given.end()) {
    problem = fmt::format("'{}' is not a key such as pipeline.stages", printable(key));
    return {};
  }
  if (find_key("scenario", given[0]) != nullptr) return given;
  std::vector<Place> matches;
  for (const Place& place : all_places()) {
    if (is_reached(place, given) && ends_with(place, given)) matches.push_back(place);
  }
  const auto shortest = std::ranges::min_element(matches, {}, &Place::size);
  const std::string instead = known_elsewhere(given.back());
  // Of a device's numbers, say, nobody thinks who gives the name of a feature alone.
  const bool meant = given.size() > 1 || instead.empty();
  if (shortest == matches.end() || (!meant && shortest->size() > 2)) {
    problem = fmt::format("unknown key '{}'{}", printable(key),
                          instead.empty() ? did_you_mean(key, names_for(given)) : instead);
    return {};
  }
  std::vector<std::string> same;
  for (const Place& place : matches) {
    if (place.size() == shortest->size()) same.push_back(dotted(place));
  }
  if (same.size() > 1)
    problem = fmt::format("'{}' could be any of {}", printable(key), fmt::join(same, ", "));
  return split_path(dotted(*shortest));
}

/// The value of a key in a map of section `kind`, under whichever of its names; null without.
const Value* find_in(const Value& map, const std::string& key, const std::string& kind) {
  const KeyRow* row = find_key(kind, key);
  for (const Value::Entry& entry : map.entries) {
    const bool same = row != nullptr && find_key(kind, entry.key.text) == row;
    if (same || entry.key.text == key) return &entry.value;
  }
  return nullptr;
}

Value* find_in(Value& map, const std::string& key, const std::string& kind) {
  return const_cast<Value*>(find_in(std::as_const(map), key, kind));
}

/// Sets the value at a path. Maps on the way are made from what stands there (`model: gpt-2.2b`
/// becomes {base: gpt-2.2b}); the value itself replaces what was there, but for a bandwidth alone,
/// which leaves the other keys of its link.
void set(Value& document, const Path& path, const Value& flag, Value value) {
  Value* at = &document;
  std::string kind = "scenario";
  Value key = flag;
  key.kind = Value::Kind::scalar;
  Value empty = flag;
  empty.kind = Value::Kind::map;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    key.text = path[i];
    replace_entry(*at, {key, empty}, kind);
    at = find_in(*at, path[i], kind);
    const KeyRow* row = find_key(kind, path[i]);
    kind = row == nullptr ? "" : section_behind(*row);
  }
  key.text = path.back();
  Value* old = find_in(*at, path.back(), kind);
  if (old == nullptr || value.kind == Value::Kind::scalar) {
    replace_entry(*at, {key, std::move(value)}, kind);
  } else {
    *old = std::move(value);
  }
}

/// Errors about the value show the flag, not a line of it.
void move_to(const std::shared_ptr<const Source>& source, Value& value) {
  value.source = source;
  value.line = value.column = 0;
  for (Value& item : value.items) move_to(source, item);
  for (Value::Entry& entry : value.entries) {
    move_to(source, entry.key);
    move_to(source, entry.value);
  }
}

/// Can YAML read this as nothing but this very word? Most values of a sweep are such, and its
/// parser takes longer than all the rest of reading a scenario.
bool is_plain_word(std::string_view text) {
  const auto plain = [](char c) {
    return ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z');
  };
  const auto inner = [&](char c) { return plain(c) || c == '_' || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= 40 && plain(text.front()) &&
         std::ranges::all_of(text, inner) && text != "null" && text != "Null" && text != "NULL";
}

/// `[1, 2, 3]`: nothing but such words between brackets, as most values of a plan's search are;
/// none: something else, or so long that the parser is to say whether it is too long.
std::optional<Value> plain_list(std::string_view text) {
  constexpr std::size_t kMost = 10'000;  // characters
  if (!text.starts_with('[') || !text.ends_with(']') || text.size() > kMost) return std::nullopt;
  Value list;
  list.kind = Value::Kind::list;
  text.remove_prefix(1);
  text.remove_suffix(1);
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    if (!is_plain_word(word)) return std::nullopt;
    list.items.push_back(to_value(word));
    if (comma == text.size()) return list;
    text.remove_prefix(comma + 1);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
}

/// Text is taken as it is (`--set name=a: b`), everything else as YAML.
Value parse_value(const std::string& text, const KeyRow* row, const std::string& origin) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return {};
  const bool quoted = text.starts_with('"') || text.starts_with('\'');
  const bool as_it_is = row != nullptr && row->type == KeyRow::Type::text && !quoted;
  if (as_it_is) {
    Value value;
    value.kind = Value::Kind::scalar;
    value.text = text;
    return value;
  }
  if (is_plain_word(text)) return to_value(text);
  if (auto list = plain_list(text)) return std::move(*list);
  return parse_document(text, origin);
}

/// May this text be in a list of such a key? `1,5 s` is no list: its first part has no unit.
bool is_list_item(const std::string& text, const KeyRow& row) {
  using T = KeyRow::Type;
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  std::string why;
  switch (row.type) {
    case T::split:
    case T::counts:
    case T::gpus: return digits;
    case T::numbers: return parse_quantity(text, Dimension::number, why).has_value();
    case T::choice_per_stage:
    case T::choice_sets: return place_of_choice(row.choices, text).has_value();
    case T::quantity_per_stage: return !digits && parse_quantity(text, row.dimension, why);
    default: return false;
  }
}

/// Is this text a list without its brackets?
bool is_bare_list(const std::string& text, const KeyRow& row) {
  if (text.find(',') == std::string::npos) return false;
  std::istringstream parts(text);
  parts.exceptions(std::ios::badbit);  // no memory is not the end of the text
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t first = part.find_first_not_of(' ');
    if (first == std::string::npos) return false;
    if (!is_list_item(part.substr(first, part.find_last_not_of(' ') - first + 1), row))
      return false;
  }
  return true;
}

Path resolved(const std::string& key, const std::string& origin) {
  std::string problem;
  Path path = resolve(key, problem);
  if (!problem.empty()) throw InputError(origin, problem);
  return path;
}

/// Sets a value that errors show as that of `origin`.
void place(Value& document, const Path& path, Value value, const std::string& origin) {
  Value flag;
  const auto source = std::make_shared<Source>(Source{origin, {}});
  move_to(source, value);
  move_to(source, flag);
  set(document, path, flag, std::move(value));
}

void apply(Value& document, const Override& change, const std::string& origin) {
  const Path path = resolved(change.key, origin);
  const KeyRow* row = key_row(path);
  if (row != nullptr && is_bare_list(change.value, *row)) {
    throw InputError(origin, fmt::format("a list needs brackets: {}=[{}]", printable(change.key),
                                         printable(change.value)));
  }
  place(document, path, parse_value(change.value, row, origin), origin);
}

}  // namespace

Override parse_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw InputError("--set " + printable(text),
                     "expected key=value, such as --set pipeline.stages=8");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::vector<std::string> key_path(const std::string& key, const std::string& origin) {
  Path path = resolved(key, origin);
  std::string section = "scenario";
  for (std::string& name : path) {
    const KeyRow* row = find_key(section, name);
    if (row == nullptr) {
      throw InputError(origin, fmt::format("'{}' has no key '{}'{}", section, printable(name),
                                           did_you_mean(name, keys_of(section))));
    }
    name = row->key;
    section = section_behind(*row);
    if (section.empty()) break;  // what is below is no key of the table
  }
  return path;
}

const KeyRow* key_row(const Path& path) {
  const KeyRow* row = nullptr;
  std::string section = "scenario";
  for (const std::string& key : path) {
    row = find_key(section, key);
    if (row == nullptr) return nullptr;
    section = section_behind(*row);
  }
  return row;
}

const Value* value_at(const Value& document, const Path& path) {
  const Value* at = &document;
  std::string kind = "scenario";
  for (const std::string& key : path) {
    at = find_in(*at, key, kind);
    if (at == nullptr) return nullptr;
    const KeyRow* row = find_key(kind, key);
    kind = row == nullptr ? "" : section_behind(*row);
  }
  return at;
}

void apply_overrides(Value& document, const std::vector<Override>& overrides,
                     Diagnostics& diagnostics) {
  for (const Override& change : overrides) {
    const std::string origin =
        change.option.empty()
            ? fmt::format("--set {}={}", printable(change.key), printable(change.value))
            : fmt::format("--{} {}", change.option, printable(change.value));
    try {
      apply(document, change, origin);
    } catch (const InputError& error) {
      for (Diagnostic d : error.diagnostics()) {
        d.where = Position{origin, 0, 0};
        d.source_line.clear();
        diagnostics.add_error(std::move(d));
      }
    }
  }
}

void apply_overrides(Value& document, const Settings& settings, Diagnostics&) {
  for (const Setting& setting : settings)
    place(document, split_path(setting.key), setting.value, "--set " + setting.key);
}

std::string Setting::text() const { return key + "=" + to_flow(value); }

}  // namespace penstock
