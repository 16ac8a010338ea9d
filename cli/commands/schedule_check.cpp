// SPDX-License-Identifier: Apache-2.0
// penstock schedule check FILE.csv
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"
#include "schedules/formats/torch_reader.hpp"
#include "schedules/schedule_json.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

std::string table_text(const Json& r) {
  const std::uint32_t chunks = r["chunks"].get<std::uint32_t>();
  const std::uint32_t stages = r["stages"].get<std::uint32_t>();
  std::string text = fmt::format(
      "{}: runs to its end\n{} on {}, {}{}, {} backward, {}\n"
      "with F = I = W = 1 and free transfers it takes {:g}\n\n",
      r["file"].get<std::string>(), counted(stages, "stage"),
      counted(r["devices"].get<std::int64_t>(), "device"),
      counted(r["microbatches"].get<std::int64_t>(), "microbatch"),
      r["mirrored"].get<bool>() ? ", half of them the other way"
      : chunks > 1              ? fmt::format(", {} chunks a device", chunks)
                                : "",
      r["backward"].get<std::string>(),
      r["communicates"].get<bool>() ? "sends and receives as given" : "compute only",
      r["makespan"].get<double>());
  TextTable table({"device", "stages", "ops", "sends", "empty cells", "time", "peak activations"});
  for (const Json& d : r["rows"]) {
    table.add_row({d["device"].dump(),
                   fmt::format("{}", fmt::join(d["stages"].get<std::vector<int>>(), ",")),
                   d["ops"].dump(), d["sends"].dump(), d["empty_cells"].dump(),
                   fmt::format("{:g}", d["stage_time"].get<double>()),
                   fmt::format("{:g}", d["peak_activations"].get<double>())});
  }
  text += table.render();
  for (const Json& warning : r["warnings"]) text += "note: " + warning.get<std::string>() + "\n";
  return text;
}

std::string csv_text(const Json& r) {
  std::vector<CsvRow> rows;
  for (const Json& line : r["ok"].get<bool>() ? r["rows"] : r["errors"])
    rows.push_back(csv_row(line));
  return to_csv(rows);
}

}  // namespace

int run_schedule_check(const Arguments& arguments) {
  const std::string& file = arguments.positional[0];
  require_file(file);
  const std::string format = arguments.value("format", "table");
  Json result;
  try {
    result = check_json(read_torch_csv(read_file(file), file), file);
  } catch (const InputError& error) {
    if (format == "table") throw;
    result = check_json(error, file);
  }
  put_result(arguments, format == "table"  ? table_text(result)
                        : format == "json" ? result.dump(2) + "\n"
                                           : csv_text(result));
  return result["ok"].get<bool>() ? exit_ok : exit_usage;
}

}  // namespace penstock
