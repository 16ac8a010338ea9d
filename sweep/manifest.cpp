// SPDX-License-Identifier: Apache-2.0
#include "sweep/manifest.hpp"

#include "base/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

std::string name_of(const SweepAxis& axis) { return fmt::format("{}", fmt::join(axis.keys, "+")); }

/// "2, 4 … 64 (6 values)"
std::string values_of(const SweepAxis& axis) {
  std::vector<std::string> shown;
  for (std::size_t v = 0; v < axis.values.size() && v < 4; ++v)
    shown.push_back(fmt::format("{}", fmt::join(axis.values[v], " with ")));
  if (axis.values.size() <= 4) return fmt::format("{}", fmt::join(shown, ", "));
  return fmt::format("{} ... {} ({} values)", fmt::join(shown, ", "),
                     fmt::join(axis.values.back(), " with "), axis.values.size());
}

void compare_axes(const std::vector<SweepAxis>& then, const std::vector<SweepAxis>& now,
                  std::vector<std::string>& out) {
  std::vector<std::string> before, after;
  for (const SweepAxis& axis : then) before.push_back(name_of(axis));
  for (const SweepAxis& axis : now) after.push_back(name_of(axis));
  if (before != after) {
    out.push_back(fmt::format("its axes were {}, now they are {}", fmt::join(before, ", "),
                              fmt::join(after, ", ")));
    return;
  }
  for (std::size_t a = 0; a < now.size(); ++a) {
    if (then[a].values == now[a].values) continue;
    out.push_back(fmt::format("the axis {} was {}, now it is {}", name_of(now[a]),
                              values_of(then[a]), values_of(now[a])));
  }
}

constexpr const char* kManifestMark = "penstock_sweep";

using Files = std::vector<SweptFile>;

/// A file is what it says, wherever it lies.
void compare_files(const std::string& what, const Files& then, const Files& now,
                   std::vector<std::string>& out) {
  if (then.size() != now.size()) {
    out.push_back(fmt::format("it had {} {}s, now {}", then.size(), what, now.size()));
    return;
  }
  for (std::size_t f = 0; f < now.size(); ++f) {
    if (then[f].hash == now[f].hash) continue;
    out.push_back(
        then[f].file == now[f].file
            ? fmt::format("{} has been changed since", now[f].file)
            : fmt::format("its {} was {}, now it is {}", what, then[f].file, now[f].file));
  }
}

void compare_texts(const char* what, const std::string& then, const std::string& now,
                   std::vector<std::string>& out) {
  if (then == now) return;
  const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
  out.push_back(fmt::format("{} was {}, now it is {}", what, shown(then), shown(now)));
}

}  // namespace

void each_field(Like<SweptFile> auto& f, auto&& visit) { VISIT_FIELDS(visit, f, file, hash); }

void each_field(Like<SweepAxis> auto& a, auto&& visit) { VISIT_FIELDS(visit, a, keys, values); }

void each_field(Like<Manifest> auto& m, auto&& visit) {
  VISIT_FIELDS(visit, m, version, scenarios);
  visit("files", m.named);
  visit("set", m.changes);
  visit("axes", m.axes);
  visit("where", m.conditions);
  VISIT_FIELDS(visit, m, engine, shard, points);
}

std::string hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

Manifest manifest_of(const SweepRecipe& recipe, const Space& space, const std::string& version,
                     const std::string& shard) {
  Manifest m;
  m.version = version;
  for (const Documents::File& file : recipe.documents) {
    const bool scenario = m.scenarios.size() < space.files().size();  // they are read first
    (scenario ? m.scenarios : m.named).push_back({file.path, hash_of(file.text)});
  }
  m.changes = recipe.set;
  m.axes = space.axes();
  m.conditions = recipe.where;
  m.engine = recipe.engine;
  m.shard = shard;
  m.points = space.count();
  return m;
}

std::string to_json(const Manifest& manifest) {
  Json json = {{kManifestMark, 3}};
  each_field(manifest, FieldWriter(json));
  return json.dump() + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& origin) {
  try {
    return from_fields<Manifest>(parse_json(text, origin), origin, kManifestMark);
  } catch (const InputError& error) {
    throw InputError(origin, fmt::format("does not say what sweep its rows are of ({}); --force "
                                         "starts afresh",
                                         error.diagnostics().front().message));
  }
}

std::vector<std::string> differences(const Manifest& then, const Manifest& now) {
  std::vector<std::string> out;
  compare_files("scenario", then.scenarios, now.scenarios, out);
  compare_axes(then.axes, now.axes, out);
  // Which files are named follows from all of these.
  if (out.empty()) compare_files("file that is named", then.named, now.named, out);
  const auto joined = [](const auto& texts) { return fmt::format("{}", fmt::join(texts, " ")); };
  compare_texts("--set", joined(then.changes), joined(now.changes), out);
  compare_texts("--where", joined(then.conditions), joined(now.conditions), out);
  compare_texts("--engine", then.engine, now.engine, out);
  compare_texts("--shard", then.shard, now.shard, out);
  compare_texts("penstock", then.version, now.version, out);
  return out;
}

}  // namespace penstock
