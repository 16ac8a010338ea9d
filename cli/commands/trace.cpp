// SPDX-License-Identifier: Apache-2.0
// penstock trace check
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"
#include "traces/trace_check.hpp"

#include <fmt/format.h>

namespace penstock {

int run_trace_check(const Arguments& arguments) {
  require_file(arguments.positional[0]);
  const TraceReport r = check_trace(arguments.positional[0]);
  const Json json = {{"file", arguments.positional[0]},
                     {"events", r.events},
                     {"slices", r.slices},
                     {"counters", r.counters},
                     {"flows", r.flows},
                     {"processes", r.processes},
                     {"lanes", r.lanes},
                     {"violations", r.violations},
                     {"first", r.first}};
  const std::string format = arguments.value("format", "table");
  if (format == "json") {
    fmt::print("{}\n", json.dump(2));
  } else if (format == "csv") {
    CsvRow row;
    for (const auto& [key, value] : json.items()) {
      if (!value.is_array()) row.emplace_back(key, value);
    }
    fmt::print("{}", to_csv({row}));
  } else {
    for (const std::string& violation : r.first) print_text(violation + "\n");
    if (r.violations > static_cast<std::int64_t>(r.first.size()))
      fmt::print("... and {} more\n", r.violations - static_cast<std::int64_t>(r.first.size()));
    print_text(fmt::format(
        "{}: {} events ({} slices on {} lanes of {} processes, {} counter samples, {} flow ends), "
        "{}\n",
        arguments.positional[0], format_count(r.events), format_count(r.slices), r.lanes,
        r.processes, format_count(r.counters), format_count(r.flows),
        r.violations == 0
            ? "no violations"
            : format_count(r.violations) + (r.violations == 1 ? " violation" : " violations")));
  }
  return r.violations == 0 ? exit_ok : exit_failed;
}

}  // namespace penstock
