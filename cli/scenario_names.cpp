// SPDX-License-Identifier: Apache-2.0
#include "cli/scenario_names.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "scenarios/document.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kEndings = {".yaml", ".yml", ".json",
                                                      ".gz",   ".txt", ".csv"};

bool looks_like_file(const std::string& name) {
  return name.find('/') != std::string::npos ||
         std::ranges::any_of(kEndings, [&](auto ending) { return name.ends_with(ending); });
}

bool is_there(const std::string& name) {
  std::error_code ignored;
  return fs::exists(name, ignored);
}

/// As it is shipped, whatever the case it was typed in; empty: none is called so.
std::string shipped_as(const std::string& folder, const std::string& name) {
  for (const std::string& shipped : shipped_names(folder))
    if (folded(shipped) == folded(name)) return shipped;
  return "";
}

/// For who types what stands in the documentation where the sources are not.
void require_unless_shipped(const std::string& file) {
  const std::string shipped = shipped_as("scenarios", fs::path(file).stem().string());
  if (is_there(file) || shipped.empty()) return;
  throw InputError(file,
                   fmt::format("cannot be read: No such file or directory; did you mean '{}', "
                               "which is shipped?",
                               shipped));
}

InputError unknown(const std::string& name, const std::string& what, bool models) {
  std::vector<std::string> known;
  if (models) known = shipped_names("models");
  std::ranges::copy(shipped_names("scenarios"), std::back_inserter(known));
  const std::string file = name + ".yaml";
  const std::string hint =
      is_there(file) ? fmt::format("; did you mean '{}'?", file) : did_you_mean(name, known);
  return {what, fmt::format("unknown {}scenario '{}'{} ({}`penstock list scenarios` show{} all; a "
                            "file needs its ending)",
                            models ? "model or " : "", printable(name), hint,
                            models ? "`penstock list models` and " : "", models ? "" : "s")};
}

/// "-", of commands that read it.
std::string standard_input(const std::string& what) {
  for (const char* reader : {"simulate", "compare", "sweep", "plan"})
    if (what == fmt::format("penstock {}", reader)) return "-";
  throw InputError(what,
                   "takes no scenario from standard input ('-'), as simulate, compare, sweep and "
                   "plan do; write it to a file");
}

std::string file_of(const std::string& name, const std::string& what, bool models) {
  if (name == "-") return standard_input(what);
  if (models && name.find('{') != std::string::npos) return name;  // a model by its shape
  if (looks_like_file(name)) {
    require_unless_shipped(name);
    return name;
  }
  std::error_code ignored;
  const bool folder = fs::is_directory(name, ignored);
  if (is_there(name) && !folder) return name;
  const std::string shipped = shipped_as("scenarios", name);
  if (!shipped.empty()) return shipped_file("scenarios", shipped);
  if (folder || (models && !shipped_as("models", name).empty())) return name;
  throw unknown(name, what, models);
}

}  // namespace

std::string shipped_file(const std::string& folder, const std::string& name) {
  return (fs::path(data_folder()) / folder / (name + ".yaml")).string();
}

void name_scenario_files(const CommandSpec& command, Arguments& arguments) {
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    const std::string_view kind = argument_kind(command, i);
    if (kind != "scenario" && kind != "model") continue;
    std::string& name = arguments.positional[i];
    name = file_of(name, fmt::format("penstock {}", command.name), kind == "model");
  }
}

}  // namespace penstock
