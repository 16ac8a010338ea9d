// SPDX-License-Identifier: Apache-2.0
// What a browser has not: processes, modules that are loaded, folders to be removed. The rooms ask
// for it by the same names; here the answer is that there is none.
#include "base/child_process.hpp"
#include "base/error.hpp"
#include "base/folder.hpp"
#include "base/last_words.hpp"
#include "sim/engine.hpp"

#include <algorithm>
#include <filesystem>

namespace penstock {

ChildResult run_in_child(const std::string& what, const std::function<std::string()>&, double) {
  throw SystemError("there are no processes in a browser for " + what);
}
std::string how_it_ended(int) { return "unknown"; }

std::string why_no_simgrid() { return "SimGrid does not run in a browser"; }
Timeline simulate_simgrid(const SimulationInput&, const SimgridOptions&, SimgridCounts*) {
  throw SystemError(why_no_simgrid());
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace penstock
