#include "cli/output.hpp"
#include "traces/chrome_writer.hpp"

namespace penstock {

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
