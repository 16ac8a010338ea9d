// SPDX-License-Identifier: Apache-2.0
#include "scenarios/library.hpp"

#include "base/folder.hpp"
#include "base/module_path.hpp"
#include "base/suggest.hpp"
#include "scenarios/foreign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int kLongestChain = 8;  // of `base`

bool looks_like_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml") ||
         name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".csv");
}

bool is_profile(const Value& document) {
  return std::ranges::any_of(document.entries, [](const Value::Entry& entry) {
    return (entry.key.text == "model" || entry.key.text == "cluster") &&
           entry.value.kind == Value::Kind::map;
  });
}

/// A name as `{base: NAME}`, a bandwidth as `{bandwidth: ...}`.
Value spelled_out(const Value& scalar, const std::string& key) {
  Value map = scalar;
  map.kind = Value::Kind::map;
  Value name = scalar;
  name.text = key;
  map.entries.push_back({std::move(name), scalar});
  return map;
}

/// Of the installation that this program is a part of, wherever that was moved; else the sources
/// that it was built from, while they are there.
std::string folder_by_program() {
  std::error_code ignored;
  const fs::path installed = program_path().parent_path().parent_path() / "share" / "penstock";
  const fs::path source = PENSTOCK_DATA_FOLDER;
  if (fs::is_directory(installed / "models", ignored)) return installed.string();
  return (fs::is_directory(source / "models", ignored) ? source : installed).string();
}

/// Gives a model whose length of sequences is replaced the rows that its table of positions had
/// before.
void keep_position_rows(const Value& base, const Value& replaced, Value& model) {
  const auto is_length = [](const Value::Entry& entry) {
    return find_key("model", entry.key.text) == find_key("model", "seq_length");
  };
  const auto old = std::ranges::find_if(base.entries, is_length);
  if (old == base.entries.end() || std::ranges::none_of(replaced.entries, is_length) ||
      model.find("position_rows") != nullptr)
    return;
  Value::Entry rows = *old;
  rows.key.text = "position_rows";
  model.entries.push_back(std::move(rows));
}

}  // namespace

std::string data_folder() {
  if (const char* home = std::getenv("PENSTOCK_HOME")) return home;
  static const std::string kFolder = folder_by_program();
  return kFolder;
}

std::vector<std::string> shipped_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in((fs::path(data_folder()) / folder).string()))
    if (name.ends_with(".yaml")) names.push_back(name.substr(0, name.size() - 5));
  std::ranges::sort(names);
  return names;
}

Library::Library(std::string folder, Documents& documents, Diagnostics& diagnostics)
    : folder_(std::move(folder)), read_(documents), diagnostics_(diagnostics) {}

fs::path Library::own_file(const Value& name) const {
  const fs::path path(name.text);
  if (path.is_absolute()) return path;
  if (!name.from_flag()) return fs::path(name.source->name).parent_path() / path;
  return read_.exists(path.string()) ? path : fs::path(folder_) / path;
}

bool Library::is_there(const fs::path& path, const Value& name, const std::string& kind) {
  const bool folder = read_.is_folder(path.string());
  if (!folder && read_.exists(path.string())) return true;
  const std::string shown = printable(path.string());
  diagnostics_.add_error(name, folder
                                   ? fmt::format("'{}' is a directory, not a {} file", shown, kind)
                                   : fmt::format("the {} file '{}' does not exist{}", kind, shown,
                                                 read_.suggestion(path.string())));
  return false;
}

std::optional<fs::path> Library::file(const Value& name, const std::string& kind) {
  const fs::path path = own_file(name);
  return is_there(path, name, kind) ? std::optional(path) : std::nullopt;
}

const Value* Library::find(const Value& name, const std::string& kind,
                           const std::string& shipped_folder) {
  fs::path path;
  if (looks_like_path(name.text)) {
    path = own_file(name);
    if (!is_there(path, name, kind)) return nullptr;
    const bool layers = path.extension() == ".txt" || path.extension() == ".csv";
    if (kind == "model" && layers) return keep(spelled_out(name, "profile"));
  } else {
    path = fs::path(data_folder()) / shipped_folder / (lower_case(name.text) + ".yaml");
    if (!read_.exists(path.string())) {
      diagnostics_.add_error(
          name,
          fmt::format("unknown {} '{}'{} (`penstock list {}s` shows all; a file needs its ending)",
                      kind, printable(name.text),
                      did_you_mean(name.text, shipped_names(shipped_folder)), kind));
      return nullptr;
    }
  }
  return read(path, name, kind);
}

const Value* Library::read(const fs::path& path, const Value& name, const std::string& kind) {
  try {
    const Value* document = &read_.load(path.string());
    if (document->kind != Value::Kind::map) {
      diagnostics_.add_error(*document, fmt::format("expected a map with the keys of a {}", kind));
      return nullptr;
    }
    if (kind == "model" && path.extension() == ".json") {
      Value adopted = *document;
      adopt_foreign_model(adopted, diagnostics_, notes_);
      document = keep(std::move(adopted));
    }
    return is_profile(*document) ? section_of_profile(*document, name, kind) : document;
  } catch (const InputError& error) {
    for (const Diagnostic& d : error.diagnostics()) diagnostics_.add_error(d);
    return nullptr;
  }
}

const Value* Library::section_of_profile(const Value& document, const Value& name,
                                         const std::string& kind) {
  const std::vector<std::string> known{"machine", "model", "cluster"};
  for (const Value::Entry& entry : document.entries) {
    if (std::ranges::find(known, entry.key.text) == known.end()) {
      diagnostics_.add_error(
          entry.key,
          fmt::format("unknown key '{}' in a profile, which has {}{}", printable(entry.key.text),
                      fmt::join(known, ", "), did_you_mean(entry.key.text, known)));
    }
  }
  const Value* section = document.find(kind);
  if (section != nullptr && section->kind == Value::Kind::map) return section;
  diagnostics_.add_error(name,
                         fmt::format("the profile '{}' has no '{}'", printable(name.text), kind));
  return nullptr;
}

const Value* Library::keep(Value document) {
  documents_.push_back(std::make_unique<Value>(std::move(document)));
  return documents_.back().get();
}

const Value* Library::resolve(const Value& value, const std::string& kind,
                              const std::string& shipped_folder, int depth) {
  if (depth > kLongestChain) {
    diagnostics_.add_error(value, "the chain of 'base' is too long, or goes in a circle");
    return nullptr;
  }
  if (value.kind == Value::Kind::scalar && !value.text.empty()) {
    const Value* found = find(value, kind, shipped_folder);
    return found == nullptr ? nullptr : resolve(*found, kind, shipped_folder, depth);
  }
  if (value.kind != Value::Kind::map) return nullptr;
  const Value* base_name = value.find("base");
  if (base_name == nullptr || base_name->kind != Value::Kind::scalar) return &value;
  const Value* base = resolve(*base_name, kind, shipped_folder, depth + 1);
  if (base == nullptr) {
    // What stands beside it may be wrong, too: all of it is said at once.
    Value own = value;
    std::erase_if(own.entries, [](const Value::Entry& e) { return e.key.text == "base"; });
    const Section judged(own, kind, diagnostics_);
    return nullptr;
  }
  Value merged = *base;
  merged.source = value.source;
  merged.line = value.line;
  merged.column = value.column;
  for (const Value::Entry& entry : value.entries) {
    if (entry.key.text != "base") replace_entry(merged, entry, kind);
  }
  if (kind == "model") keep_position_rows(*base, value, merged);
  return keep(std::move(merged));
}

void replace_entry(Value& map, const Value::Entry& entry, const std::string& kind) {
  using T = KeyRow::Type;
  const KeyRow* row = find_key(kind, entry.key.text);
  const auto old = std::ranges::find_if(map.entries, [&](const Value::Entry& other) {
    return other.key.text == entry.key.text ||
           (row != nullptr && row == find_key(kind, other.key.text));
  });
  if (old == map.entries.end()) return map.entries.push_back(entry);
  const T type = row == nullptr ? T::text : row->type;
  const bool new_map = entry.value.kind == Value::Kind::map;
  const bool merges = type == T::section || type == T::rates || type == T::link ||
                      type == T::choice_or_section ||
                      (type == T::name_or_section && entry.value.find("base") == nullptr);
  if (merges && new_map && old->value.kind == Value::Kind::scalar)
    old->value = spelled_out(old->value, type == T::link ? "bandwidth" : "base");
  const bool both = old->value.kind == Value::Kind::map && new_map;
  if (merges && both) {
    const std::string section = type == T::link                ? "link"
                                : type == T::rates             ? ""
                                : type == T::choice_or_section ? std::string(row->key)
                                                               : std::string(row->choices);
    for (const Value::Entry& inner : entry.value.entries) replace_entry(old->value, inner, section);
  } else if (type == T::link && old->value.kind == Value::Kind::map &&
             entry.value.kind == Value::Kind::scalar) {
    Value::Entry bandwidth = entry;
    bandwidth.key.text = "bandwidth";
    replace_entry(old->value, bandwidth, "link");
  } else {
    *old = entry;
  }
}

}  // namespace penstock
