#include "scenarios/overrides.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace penstock {
namespace {

using Path = std::vector<std::string>;

std::string dotted(const Path& path) { return fmt::format("{}", fmt::join(path, ".")); }

/// Every key a scenario can have, as paths, sections followed.
void collect(std::string_view section, Path prefix, std::vector<Path>& out) {
  for (const KeyRow& row : key_table()) {
    if (row.section != section) continue;
    prefix.emplace_back(row.key);
    out.push_back(prefix);
    const bool has_section =
        row.type == KeyRow::Type::section || row.type == KeyRow::Type::name_or_section;
    if (has_section) collect(row.choices, prefix, out);
    if (row.type == KeyRow::Type::link) collect("link", prefix, out);
    prefix.pop_back();
  }
}

const std::vector<Path>& all_paths() {
  static const std::vector<Path> kPaths = [] {
    std::vector<Path> paths;
    collect("scenario", {}, paths);
    return paths;
  }();
  return kPaths;
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

/// The full path of a key without dots: itself at the top, else the only leaf with that name.
Path resolve(const std::string& key, std::string& problem) {
  const Path given = split_path(key);
  if (given.size() > 1 || find_key("scenario", key) != nullptr) return given;
  std::vector<Path> matches;
  std::vector<std::string> names;
  for (const Path& path : all_paths()) {
    names.push_back(path.back());
    const std::string section = path.size() == 1 ? "scenario" : path.front();
    const KeyRow* row = find_key(section, key);
    const bool by_alias = path.size() == 2 && row != nullptr && row->key == path.back();
    if (path.back() == key || by_alias) matches.push_back(path);
  }
  // A key of the pipeline, the model or the cluster itself wins over one deeper down.
  const auto shortest = std::ranges::min_element(matches, {}, &Path::size);
  if (shortest == matches.end()) {
    problem = fmt::format("unknown key '{}'{}", key, did_you_mean(key, names));
    return {};
  }
  std::vector<std::string> same;
  for (const Path& path : matches) {
    if (path.size() == shortest->size()) same.push_back(dotted(path));
  }
  if (same.size() > 1) problem = fmt::format("'{}' could be any of {}", key, fmt::join(same, ", "));
  return *shortest;
}

/// The map at a place, made from what stands there: `model: gpt-2.2b` becomes {base: gpt-2.2b},
/// `inter: 25 Gbps` becomes {bandwidth: 25 Gbps}.
void make_map(Value& value, const std::string& key) {
  if (value.kind == Value::Kind::map) return;
  Value old = value;
  value.kind = Value::Kind::map;
  value.entries.clear();
  if (old.kind != Value::Kind::scalar) return;
  const bool is_link = key == "link" || key == "intra" || key == "inter";
  Value name = old;
  name.text = is_link ? "bandwidth" : "base";
  value.entries.push_back({std::move(name), std::move(old)});
}

void set(Value& document, const Path& path, const Value& key, Value value) {
  Value* at = &document;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool last = i + 1 == path.size();
    auto entry = std::ranges::find_if(at->entries,
                                      [&](const Value::Entry& e) { return e.key.text == path[i]; });
    if (entry == at->entries.end()) {
      Value name = key;
      name.text = path[i];
      Value empty = key;
      empty.kind = Value::Kind::map;
      at->entries.push_back({std::move(name), std::move(empty)});
      entry = at->entries.end() - 1;
    }
    at = &entry->value;
    if (last) {
      *at = std::move(value);
    } else {
      make_map(*at, path[i]);
    }
  }
}

/// A key may be given by its alias; the document may hold the other name.
void use_canonical_names(Path& path) {
  std::string section = "scenario";
  for (std::string& key : path) {
    const KeyRow* row = find_key(section, key);
    if (row == nullptr) return;
    key = row->key;
    section = row->type == KeyRow::Type::link ? "link" : std::string(row->choices);
  }
}

}  // namespace

Override parse_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw InputError("--set " + text, "expected key=value, such as --set pipeline.stages=8");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void apply_overrides(Value& document, const std::vector<Override>& overrides,
                     Diagnostics& diagnostics) {
  for (const Override& change : overrides) {
    const std::string origin = "--set " + change.key + "=" + change.value;
    try {
      const Value parsed = parse_document("{" + change.key + ": " + change.value + "}", origin);
      if (parsed.kind != Value::Kind::map || parsed.entries.size() != 1) {
        throw InputError(origin, "expected key=value, such as --set pipeline.stages=8");
      }
      std::string problem;
      Path path = resolve(change.key, problem);
      if (!problem.empty()) throw InputError(origin, problem);
      use_canonical_names(path);
      Value key = parsed.entries[0].key;
      Value value = parsed.entries[0].value;
      // Errors about the value show the flag, not a line of it.
      const auto source = std::make_shared<Source>(Source{origin, {}});
      for (Value* v : {&key, &value}) {
        v->source = source;
        v->line = v->column = 0;
      }
      for (Value& item : value.items) item.source = source;
      set(document, path, key, std::move(value));
    } catch (const InputError& error) {
      for (const Diagnostic& d : error.diagnostics()) {
        diagnostics.add(Diagnostic{{origin, 0, 0}, d.message, {}, 1});
      }
    }
  }
}

}  // namespace penstock
