// SPDX-License-Identifier: Apache-2.0
#include "cli/running.hpp"

#include "traces/chrome_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace penstock {

std::vector<Override> overrides_of(const Arguments& arguments) {
  std::vector<Override> overrides;
  for (const std::string& text : arguments.values("set")) {
    overrides.push_back(parse_override(text));
    if (const auto by = arguments.meant_by.find(text); by != arguments.meant_by.end())
      overrides.back().option = by->second;
  }
  return overrides;
}

void require_file(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0)
    throw InputError(path, std::string("cannot be read: ") + std::strerror(errno));
}

EngineChoice engine_of(const Arguments& arguments, EngineChoice usual) {
  const auto* const named = std::ranges::find(kEngineNames, arguments.value("engine", ""));
  return named == std::end(kEngineNames) ? usual : EngineChoice(named - kEngineNames);
}

void write_trace(const Simulation& s, const std::string& path, TimeWindow window) {
  write_chrome_trace({s.view(),
                      s.memory(),
                      [&](const Op& op) { return s.weight_version(op); },
                      {{"scenario", s.scenario.name},
                       {"schedule", s.program.schedule},
                       {"transfers", std::string(to_string(s.program.transfers))},
                       {"engine", s.engine},
                       {"penstock", PENSTOCK_VERSION}},
                      "",
                      true,
                      window},
                     path);
}

}  // namespace penstock
