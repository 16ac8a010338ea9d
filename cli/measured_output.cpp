#include "cli/measured_output.hpp"

#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"
#include "cli/validation_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace penstock {
namespace {

std::string finish_text(const Json& f) {
  const auto count = [&](const char* key) { return f[key].get<std::size_t>(); };
  if (count("n") == 0) return "";
  const auto share = [](std::size_t part, std::size_t of) {
    return of == 0 ? std::string("-")
                   : format_percent(static_cast<double>(part) / static_cast<double>(of));
  };
  const std::size_t stopped = count("n") - count("finished");
  return fmt::format(
      "finished or not, by whether it fits the memory: {} of {} rows right ({}); {} of {} that "
      "finished said not to fit ({}), {} of {} that did not said to fit ({})\n",
      count("right"), count("n"), share(count("right"), count("n")), count("false_alarms"),
      count("finished"), share(count("false_alarms"), count("finished")), count("missed"), stopped,
      share(count("missed"), stopped));
}

std::string percent_text(const Json& value) {
  return value.is_null() ? "-" : fmt::format("{:.1f} %", 100 * value.get<double>());
}

std::string signed_percent_text(const Json& value) {
  return value.is_null() ? "-" : fmt::format("{:+.1f} %", 100 * value.get<double>());
}

std::string seconds_text(const Json& value) {
  return value.is_null() ? "-" : format_time(value.get<double>());
}

void add_summary(TextTable& table, const std::string& what, const Json& summary) {
  if (summary["n"] == 0) return;
  table.add({what, summary["n"].dump(), percent_text(summary["mape"]),
             percent_text(summary["median"]), percent_text(summary["max"]),
             signed_percent_text(summary["bias"])});
}

std::string summaries_text(const Json& report) {
  TextTable table({"error of the time", "rows", "mean", "median", "largest", "bias"});
  const bool predicted = report["time"]["n"] != 0;
  add_summary(table, "predicted rows", report["time"]);
  if (!predicted) add_summary(table, "rows fitted on", report["time_calibrated"]);
  for (const auto& [depth, summary] : report["time_by_pp"].items())
    add_summary(table, fmt::format("  pipeline depth {}", depth), summary);
  add_summary(table, "  depth > 1", report["time_of_pipelines"]);
  if (predicted) add_summary(table, "rows fitted on", report["time_calibrated"]);
  add_summary(table, "memory, predicted rows", report["memory"]);
  add_summary(table, "memory, rows fitted on", report["memory_calibrated"]);
  return table.render();
}

std::string parameters_text(const Json& report) {
  if (report["parameters"].empty()) return "";
  TextTable table({"parameter", "value", "unit", "meaning"},
                  {TextTable::Align::left, TextTable::Align::right, TextTable::Align::left,
                   TextTable::Align::left});
  for (const Json& p : report["parameters"]) {
    table.add({p["name"].get<std::string>(), fmt::format("{:.4g}", p["value"].get<double>()),
               p["unit"].get<std::string>(), p["meaning"].get<std::string>()});
  }
  return "\n" + table.render();
}

bool far_off(const Json& row) {
  return std::ranges::any_of(std::array{"error", "memory_error"}, [&](const char* key) {
    return !row[key].is_null() && std::abs(row[key].get<double>()) > kLargeError;
  });
}

std::string bytes_text(const Json& value) {
  return value.is_null() ? "-" : format_bytes(value.get<double>());
}

using Align = TextTable::Align;

TextTable rows_table(bool with_memory) {
  if (!with_memory)
    return TextTable({"configuration", "predicted", "measured", "error", ""},
                     {Align::left, Align::right, Align::right, Align::right, Align::left});
  return TextTable({"configuration", "predicted", "measured", "error", "predicted memory",
                    "measured", "error", ""},
                   {Align::left, Align::right, Align::right, Align::right, Align::right,
                    Align::right, Align::right, Align::left});
}

std::string rows_text(const Json& rows, bool all_rows) {
  const bool with_memory =
      std::ranges::any_of(rows, [](const Json& row) { return !row["measured_bytes"].is_null(); });
  TextTable table = rows_table(with_memory);
  std::size_t shown = 0;
  for (const Json& row : rows) {
    if (!all_rows && !far_off(row)) continue;
    ++shown;
    std::vector<std::string> cells = {
        row["name"].get<std::string>(), seconds_text(row["predicted_s"]),
        seconds_text(row["measured_s"]), signed_percent_text(row["error"])};
    if (with_memory)
      cells.insert(cells.end(),
                   {bytes_text(row["predicted_bytes"]), bytes_text(row["measured_bytes"]),
                    signed_percent_text(row["memory_error"])});
    cells.emplace_back(row["calibrated"].get<bool>() ? "fitted on" : "");
    table.add(cells);
  }
  if (shown == 0)
    return fmt::format("\nno row is off by more than {}\n", format_percent(kLargeError));
  const std::string title =
      all_rows ? "" : fmt::format("rows off by more than {}:\n", format_percent(kLargeError));
  return "\n" + title + table.render();
}

}  // namespace

RowOptions row_options_of(const Arguments& arguments) {
  return {overrides_of(arguments), engine_of(arguments, EngineChoice::automatic),
          arguments.value("as", ""), arguments.value("profiles"), arguments.value("model")};
}

std::string fitted_text(const Json& report) {
  const auto count = report["parameter_count"].get<std::int64_t>();
  if (count > 0) return counted(count, "parameter") + " fitted\n";
  std::string text = "nothing fitted here";
  for (const Json& stack : report["stacks"]) text += "; " + stack.get<std::string>();
  if (!report["stacks"].empty())
    text += ": for those of these rows, errors say how well it fits, not how well it predicts";
  return text + "\n";
}

std::string notes_text(const Json& report) {
  std::string text;
  for (const Json& note : report["notes"])
    if (std::ranges::find(report["stacks"], note) == report["stacks"].end())
      text += "note: " + note.get<std::string>() + "\n";
  return text;
}

std::string measured_table(const Json& report, const Json& rows, bool all_rows) {
  const auto left_out = report["left_out"].get<std::int64_t>();
  std::string text = fmt::format(
      "{}: {}, {}{}\n{}\n", report["file"].get<std::string>(), report["format"].get<std::string>(),
      counted(static_cast<std::int64_t>(rows.size()), "row"),
      left_out == 0 ? "" : fmt::format(", {} left out (see the notes)", left_out),
      report["protocol"].get<std::string>());
  text += fitted_text(report) + "\n" + summaries_text(report) + finish_text(report["finished"]) +
          parameters_text(report) + rows_text(rows, all_rows);
  return text + notes_text(report);
}

}  // namespace penstock
