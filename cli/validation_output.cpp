// SPDX-License-Identifier: Apache-2.0
#include "cli/validation_output.hpp"

#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace penstock {
namespace {

constexpr double kLargeError = 0.15;  // rows that are further off are named
constexpr std::pair<const char*, const char*> kCauseKeys[] = {
    {"op_time_s", "op times"},
    {"exchange_s", "exchanges inside of ops"},
    {"transfer_time_s", "message times"},
    {"wait_s", "delayed departures"},
    {"launch_overhead_s", "launch overhead"},
    {"rest_s", "order and jitter"}};

std::string time_text(const Json& object, const char* key) {
  const auto value = number_in(object, key);
  return value ? format_time(*value) : "-";
}
std::string bytes_text(const Json& object, const char* key) {
  const auto value = number_in(object, key);
  return value ? format_bytes(*value) : "-";
}
std::string error_text(const std::optional<double>& error) {
  if (!error) return "-";
  const double percent = 100 * *error;
  return fmt::format("{:+.1f} %", std::abs(percent) < 1e-7 ? 0.0 : percent);  // no "-0.0 %"
}
std::string error_text(const Json& object, const char* key) {
  return error_text(number_in(object, key));
}

std::string how_run(const Json& row) {
  return fmt::format("{}, {} transfers, {}; {} backend, {} clock",
                     row["schedule"].get<std::string>(), row["transfers"].get<std::string>(),
                     counted(row["depth"].get<int>(), "stage"), row["backend"].get<std::string>(),
                     row["clock"].get<std::string>());
}

std::string spread_text(const Json& row) {
  const Json& s = row["spread"];
  if (s.is_null()) return "";
  return fmt::format(" (p5 {}, p95 {}; {} in {})", time_text(s, "p5_s"), time_text(s, "p95_s"),
                     counted(s["iterations"].get<std::int64_t>(), "update"),
                     counted(static_cast<std::int64_t>(s["run_medians_s"].size()), "run"));
}

std::string causes_text(const Json& row) {
  const Json& causes = row["causes"];
  const auto measured = number_in(row, "measured_s");
  if (causes.is_null() || !measured) return "";
  std::string text;
  for (const auto& [key, name] : kCauseKeys) {
    if (key == std::string_view("exchange_s") && causes[key] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "Why?       " : ", ", name,
                        error_text(causes[key].get<double>() / *measured));
  }
  return text + " of the measured time; minus: predicted too fast\n";
}

std::string order_text(const Json& row) {
  if (row["order_equal"].get<bool>()) return "Order?     as predicted on every device\n";
  const Json& d = row["order_differences"][0];
  return fmt::format("Order?     differs: run {}, device {}, position {}: {} instead of {}\n",
                     d["run"].get<int>(), d["device"].get<int>(), d["position"].get<int>(),
                     d["measured"].get<std::string>(), d["expected"].get<std::string>());
}

std::string kinds_table(const Json& row) {
  TextTable table({"op", "count", "predicted", "measured p5", "p50", "p95", "error"});
  for (const Json& k : row["kinds"]) {
    table.add_row({k["kind"].get<std::string>(), format_count(k["count"].get<std::int64_t>()),
                   time_text(k, "predicted_median_s"), time_text(k, "measured_p5_s"),
                   time_text(k, "measured_p50_s"), time_text(k, "measured_p95_s"),
                   error_text(k, "error")});
  }
  return "\n" + table.render();
}

std::string devices_table(const Json& row) {
  constexpr std::size_t kShown = 16;
  TextTable table({"device", "busy predicted", "measured", "error", "idle predicted", "measured",
                   "peak predicted", "measured", "error"});
  std::size_t shown = 0;
  for (const Json& d : row["devices"]) {
    if (shown++ == kShown) break;
    table.add_row({std::to_string(d["device"].get<int>()), time_text(d, "predicted_busy_s"),
                   time_text(d, "measured_busy_s"), error_text(d, "busy_error"),
                   time_text(d, "predicted_idle_s"), time_text(d, "measured_idle_s"),
                   bytes_text(d, "predicted_bytes"), bytes_text(d, "measured_bytes"),
                   error_text(d, "memory_error")});
  }
  std::string text = "\n" + table.render();
  if (row["devices"].size() > kShown)
    text += fmt::format("and {} more devices; --format json has them\n",
                        row["devices"].size() - kShown);
  return text;
}

std::string one_in_detail(const Json& row) {
  std::string text = row["name"].get<std::string>() + "\n" + how_run(row) + "\n\n";
  text += fmt::format("How fast?  predicted {}, measured {} per update: {}{}\n",
                      time_text(row, "predicted_s"), time_text(row, "measured_s"),
                      error_text(row, "error"), spread_text(row));
  text += causes_text(row);
  if (number_in(row, "measured_bytes"))
    text += fmt::format("Memory?    predicted {}, measured {} on the fullest device: {}\n",
                        bytes_text(row, "predicted_bytes"), bytes_text(row, "measured_bytes"),
                        error_text(row, "memory_error"));
  text += order_text(row) + kinds_table(row) + devices_table(row) + "\n";
  for (const Json& note : row["notes"]) text += "note: " + note.get<std::string>() + "\n";
  return text;
}

std::string many_as_rows(const Json& result) {
  TextTable table({"recording", "schedule", "stages", "predicted", "measured", "error", "p5", "p95",
                   "peak predicted", "measured", "error", "order"},
                  {TextTable::Align::left, TextTable::Align::left});
  for (const Json& row : result["rows"]) {
    const Json& spread = row["spread"];
    table.add_row({row["name"].get<std::string>(), row["schedule"].get<std::string>(),
                   std::to_string(row["depth"].get<int>()), time_text(row, "predicted_s"),
                   time_text(row, "measured_s"), error_text(row, "error"),
                   time_text(spread, "p5_s"), time_text(spread, "p95_s"),
                   bytes_text(row, "predicted_bytes"), bytes_text(row, "measured_bytes"),
                   error_text(row, "memory_error"),
                   row["order_equal"].get<bool>() ? "same" : "DIFFERS"});
  }
  return table.render() +
         "error: (predicted - measured) / measured; p5, p95: of the measured "
         "updates\n\n";
}

std::string markdown_row(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

/// A pipe would end the cell.
std::string markdown_text(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

/// A row of a published table, not of a recording.
bool measured_elsewhere(const Json& row) { return row.contains("calibrated"); }

/// Recordings and published rows in one table: the columns both have.
std::string shared_columns_csv(const Json& result) {
  std::vector<CsvRow> rows;
  for (const Json& row : result["rows"]) {
    auto& cells = rows.emplace_back();
    for (const char* key : {"name", "depth", "measured_s", "predicted_s", "error", "measured_bytes",
                            "predicted_bytes", "memory_error", "file"})
      cells.emplace_back(key, row[key]);
    cells.emplace_back("calibrated", row.value("calibrated", false));
    cells.emplace_back("class", row.value("class", Json()));
  }
  return to_csv(rows);
}

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

void add_summary(TextTable& table, const std::string& what, const Json& summary) {
  if (summary["n"] == 0) return;
  table.add_row({what, summary["n"].dump(), percent_text(summary["mape"]),
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
  if (report["time_by_pp"].empty())
    for (const auto& [name, summary] : report["time_by_class"].items())
      add_summary(table, "  " + name, summary);
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
    table.add_row({p["name"].get<std::string>(), fmt::format("{:.4g}", p["value"].get<double>()),
                   p["unit"].get<std::string>(), p["meaning"].get<std::string>()});
  }
  return "\n" + table.render();
}

/// The larger one of a row's errors, of its time and of its memory.
double larger_error(const Json& row) {
  return std::max(std::abs(number_in(row, "error").value_or(0)),
                  std::abs(number_in(row, "memory_error").value_or(0)));
}

bool far_off(const Json& row) { return larger_error(row) > kLargeError; }

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

/// Returns all rows, or the worst of those that are far off, in their order.
std::vector<const Json*> shown_rows(const Json& rows, bool all_rows) {
  constexpr std::ptrdiff_t kMostShown = 40;
  std::vector<const Json*> shown;
  for (const Json& row : rows)
    if (all_rows || far_off(row)) shown.push_back(&row);
  if (all_rows || std::ssize(shown) <= kMostShown) return shown;
  const auto error = [](const Json* row) { return larger_error(*row); };
  std::vector<const Json*> worst = shown;
  std::ranges::nth_element(worst, worst.begin() + kMostShown, std::greater<>(), error);
  const double least = error(worst[kMostShown]);
  std::erase_if(shown, [&](const Json* row) { return error(row) <= least; });
  return shown;
}

std::string rows_text(const Json& rows, bool all_rows) {
  const bool with_memory =
      std::ranges::any_of(rows, [](const Json& row) { return !row["measured_bytes"].is_null(); });
  TextTable table = rows_table(with_memory);
  const std::vector<const Json*> shown = shown_rows(rows, all_rows);
  const auto far = std::ranges::count_if(rows, far_off);
  for (const Json* shown_row : shown) {
    const Json& row = *shown_row;
    std::vector<std::string> cells = {row["name"].get<std::string>(), time_text(row, "predicted_s"),
                                      time_text(row, "measured_s"),
                                      signed_percent_text(row["error"])};
    if (with_memory)
      cells.insert(cells.end(),
                   {bytes_text(row, "predicted_bytes"), bytes_text(row, "measured_bytes"),
                    signed_percent_text(row["memory_error"])});
    cells.emplace_back(row["calibrated"].get<bool>() ? "fitted on" : "");
    table.add_row(cells);
  }
  if (shown.empty())
    return fmt::format("\nno row is off by more than {}\n", format_percent(kLargeError));
  const std::string title =
      all_rows ? ""
               : fmt::format("rows off by more than {}{}:\n", format_percent(kLargeError),
                             far > std::ssize(shown)
                                 ? fmt::format(", the worst {} of {}", shown.size(), far)
                                 : "");
  return "\n" + title + table.render();
}

}  // namespace

std::vector<std::string> out_of_tolerance(const Json& result) {
  const auto tolerance = number_in(result, "tolerance");
  std::vector<std::string> names;
  if (!tolerance) return names;
  for (const Json& row : result["rows"]) {
    const auto error = number_in(row, "error");
    if (!error || std::abs(*error) > *tolerance)
      names.push_back(fmt::format("{} ({})", row["name"].get<std::string>(), error_text(error)));
  }
  return names;
}

std::string validation_table(const Json& result) {
  if (result["rows"].size() == 1) return one_in_detail(result["rows"][0]);
  std::string text = many_as_rows(result) + summary_line("time", result["time"]);
  const Json& by_depth = result["time_by_pp"];
  for (const auto& [depth, summary] : by_depth.items()) {
    if (by_depth.size() > 1)
      text += summary_line(fmt::format("  {} stages", depth).c_str(), summary);
  }
  return text + summary_line("time with each run's own op times", result["time_own_op_times"]) +
         summary_line("memory", result["memory"]);
}

std::string validation_markdown(const Json& result) {
  std::string text =
      markdown_row({"recording", "schedule", "stages", "update predicted", "measured", "p5 to p95",
                    "error", "peak memory predicted", "measured", "error"}) +
      "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const Json& row : result["rows"]) {
    const Json& spread = row["spread"];
    text += markdown_row(
        {markdown_text(row["name"].get<std::string>()), row["schedule"].get<std::string>(),
         std::to_string(row["depth"].get<int>()), time_text(row, "predicted_s"),
         time_text(row, "measured_s"),
         spread.is_null() ? "-" : time_text(spread, "p5_s") + " to " + time_text(spread, "p95_s"),
         error_text(row, "error"), bytes_text(row, "predicted_bytes"),
         bytes_text(row, "measured_bytes"), error_text(row, "memory_error")});
  }
  const std::string memory = summary_line("Peak memory", result["memory"]);
  return text + "\n" + summary_line("Time", result["time"]) + (memory.empty() ? "" : "\n" + memory);
}

std::string validation_csv(const Json& result) {
  if (std::ranges::any_of(result["rows"], measured_elsewhere)) return shared_columns_csv(result);
  std::vector<CsvRow> rows;
  for (const Json& row : result["rows"]) {
    auto& cells = rows.emplace_back();
    for (const auto& [key, value] : row.items()) {
      if (!value.is_structured() && key != "causes" && key != "spread")
        cells.emplace_back(key, value);
    }
    const Json& spread = row["spread"];
    for (const char* key : {"p5_s", "p95_s", "iterations"})
      cells.emplace_back(key, spread.is_null() ? Json() : spread[key]);
    for (const auto& [key, name] : kCauseKeys)
      cells.emplace_back(key, row["causes"].is_null() ? Json() : row["causes"][key]);
  }
  return to_csv(rows);
}

RowOptions row_options_of(const Arguments& arguments) {
  return {overrides_of(arguments), engine_of(arguments, EngineChoice::automatic),
          arguments.value("as", ""), arguments.value("profiles"), arguments.value("model")};
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
