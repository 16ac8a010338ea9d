#include "sweep/manifest.hpp"

#include "base/error.hpp"
#include "base/json.hpp"

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

using Files = std::vector<std::pair<std::string, std::string>>;

/// A file is what it says, wherever it lies.
void compare_files(const std::string& what, const Files& then, const Files& now,
                   std::vector<std::string>& out) {
  if (then.size() != now.size()) {
    out.push_back(fmt::format("it had {} {}s, now {}", then.size(), what, now.size()));
    return;
  }
  for (std::size_t f = 0; f < now.size(); ++f) {
    if (then[f].second == now[f].second) continue;
    out.push_back(
        then[f].first == now[f].first
            ? fmt::format("{} has been changed since", now[f].first)
            : fmt::format("its {} was {}, now it is {}", what, then[f].first, now[f].first));
  }
}

void compare_texts(const char* what, const std::string& then, const std::string& now,
                   std::vector<std::string>& out) {
  if (then == now) return;
  const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
  out.push_back(fmt::format("{} was {}, now it is {}", what, shown(then), shown(now)));
}

Json json_of(const Files& files) {
  Json json = Json::array();
  for (const auto& [file, hash] : files) json.push_back({{"file", file}, {"hash", hash}});
  return json;
}

Files files_of(const Json& json) {
  Files files;
  for (const Json& f : json)
    files.emplace_back(f.at("file").get<std::string>(), f.at("hash").get<std::string>());
  return files;
}

}  // namespace

std::string hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string to_json(const Manifest& m) {
  Json axes = Json::array();
  for (const SweepAxis& axis : m.axes)
    axes.push_back({{"keys", axis.keys}, {"values", axis.values}});
  return Json{{"penstock_sweep", 3},
              {"version", m.version},
              {"scenarios", json_of(m.scenarios)},
              {"files", json_of(m.named)},
              {"set", m.changes},
              {"axes", axes},
              {"where", m.conditions},
              {"engine", m.engine},
              {"shard", m.shard},
              {"points", m.points}}
             .dump() +
         "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& origin) {
  try {
    const Json json = Json::parse(text);
    Manifest m;
    m.version = json.at("version").get<std::string>();
    m.scenarios = files_of(json.at("scenarios"));
    m.named = files_of(json.at("files"));
    m.changes = json.at("set").get<std::vector<std::string>>();
    for (const Json& a : json.at("axes"))
      m.axes.push_back({a.at("keys").get<std::vector<std::string>>(),
                        a.at("values").get<std::vector<std::vector<std::string>>>()});
    m.conditions = json.at("where").get<std::vector<std::string>>();
    m.engine = json.at("engine").get<std::string>();
    m.shard = json.at("shard").get<std::string>();
    m.points = json.at("points").get<std::uint64_t>();
    return m;
  } catch (const JsonError& error) {
    throw InputError(origin, fmt::format("does not say what sweep its rows are of ({}); --force "
                                         "starts afresh",
                                         error.what()));
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
