// penstock schedule check FILE.csv
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/table.hpp"
#include "cli/running.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/exchange/torch_reader.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

std::string_view backward_of(const ImportedSchedule& s) {
  return !s.split_backward ? "full" : s.full_backward ? "full and split" : "split";
}

Json device_times_json(const ImportedSchedule& s, const Evaluation& times, int device) {
  const auto& row = s.table.rows[static_cast<std::size_t>(device)];
  const auto count = [&](bool (*wanted)(const Action&)) {
    return std::ranges::count_if(row, wanted);
  };
  return {{"device", device},
          {"stages", s.placement.stages_at(static_cast<std::uint32_t>(device))},
          {"ops", s.order.of(device).size()},
          {"sends", count([](const Action& a) { return is_send(a.kind); })},
          {"empty_cells", count([](const Action& a) { return a.kind == ActionKind::bubble; })},
          {"stage_time", times.stage_times[static_cast<std::size_t>(device)]},
          {"peak_activations", times.peaks[static_cast<std::size_t>(device)]}};
}

/// Times of equal stages, F = I = W = 1, and free transfers.
Json found(const ImportedSchedule& s, const std::string& file) {
  const Evaluation times =
      evaluate(s.order, s.placement, {.depth = s.depth, .microbatches_per_update = s.microbatches});
  Json devices = Json::array();
  for (int d = 0; d < s.order.devices(); ++d) devices.push_back(device_times_json(s, times, d));
  return {{"file", file},
          {"ok", true},
          {"devices", s.depth},
          {"stages", s.stages()},
          {"chunks", s.chunks},
          {"microbatches", s.microbatches},
          {"mirrored", s.placement.mirrored()},
          {"backward", backward_of(s)},
          {"communicates", s.communicates},
          {"makespan", times.makespan},
          {"rows", devices},
          {"warnings", s.warnings},
          {"errors", Json::array()}};
}

Json wrong(const InputError& error, const std::string& file) {
  Json errors = Json::array();
  for (const Diagnostic& d : error.diagnostics()) {
    errors.push_back({{"line", d.where.line}, {"column", d.where.column}, {"message", d.message}});
  }
  return {{"file", file}, {"ok", false}, {"warnings", Json::array()}, {"errors", errors}};
}

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
    table.add({d["device"].dump(),
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
    result = found(read_torch_csv(read_file(file), file), file);
  } catch (const InputError& error) {
    if (format == "table") throw;
    result = wrong(error, file);
  }
  put_result(arguments, format == "table"  ? table_text(result)
                        : format == "json" ? result.dump(2) + "\n"
                                           : csv_text(result));
  return result["ok"].get<bool>() ? exit_ok : exit_usage;
}

}  // namespace penstock
