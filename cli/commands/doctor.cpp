// SPDX-License-Identifier: Apache-2.0
// penstock doctor: what this machine can run, and why not.
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "hw/executor_process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

namespace penstock {
namespace {

struct Finding {
  std::string what;
  bool works;
  std::string detail;
};

Finding simgrid() {
  const std::string problem = why_no_simgrid();
  return {"engine simgrid", problem.empty(), problem.empty() ? "SimGrid module loaded" : problem};
}

Finding data() {
  const auto models = shipped_names("models").size();
  return {"shipped models", models > 0,
          models > 0 ? fmt::format("{} models, {} devices, {} clusters", models,
                                   shipped_names("models/devices").size(),
                                   shipped_names("models/clusters").size())
                     : fmt::format("none found in '{}'; set PENSTOCK_HOME to penstock's folder",
                                   data_folder())};
}

/// What penstock-run says of a backend, or why it is not there.
Finding backend(const std::string& name) {
  const std::string what = "backend " + name;
  try {
    int status = 0;
    const std::string said = ask_executor({"--probe", "--backend", name}, status);
    const std::string_view prefix = "penstock-run: ";
    return {what, status == exit_ok, said.starts_with(prefix) ? said.substr(prefix.size()) : said};
  } catch (const SystemError& error) {
    return {what, false, error.what()};
  }
}

Finding machine() {
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  // A run needs about 8 + 32 + 8 bytes per op.
  return {"memory", true,
          fmt::format("{}, {} cores: runs of up to about {:.0f} million ops", format_bytes(memory),
                      std::thread::hardware_concurrency(), memory * 0.8 / 48 / 1e6)};
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  const std::vector<Finding> findings{{"engine exact", true, "built in"},
                                      simgrid(),
                                      data(),
                                      machine(),
                                      backend("host"),
                                      backend("cuda")};
  const std::string format = arguments.value("format", "table");
  if (format == "table") {
    using enum TextTable::Align;
    TextTable table({"what", "works", "detail"}, {left, left, left});
    for (const Finding& f : findings) table.add_row({f.what, f.works ? "yes" : "no", f.detail});
    print_text(table.render());
    return exit_ok;
  }
  std::vector<CsvRow> rows;
  Json list = Json::array();
  for (const Finding& f : findings) {
    list.push_back({{"what", f.what}, {"works", f.works}, {"detail", f.detail}});
    rows.push_back({{"what", f.what}, {"works", f.works}, {"detail", f.detail}});
  }
  fmt::print("{}", format == "json" ? list.dump(2) + "\n" : to_csv(rows));
  return exit_ok;
}

}  // namespace penstock
