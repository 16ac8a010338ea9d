#include "cli/validation_output.hpp"

#include "base/table.hpp"
#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr std::pair<const char*, const char*> kCauseKeys[] = {
    {"op_time_s", "op times"},
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
    table.add({k["kind"].get<std::string>(), format_count(k["count"].get<std::int64_t>()),
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
    table.add({std::to_string(d["device"].get<int>()), time_text(d, "predicted_busy_s"),
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
    table.add({row["name"].get<std::string>(), row["schedule"].get<std::string>(),
               std::to_string(row["depth"].get<int>()), time_text(row, "predicted_s"),
               time_text(row, "measured_s"), error_text(row, "error"), time_text(spread, "p5_s"),
               time_text(spread, "p95_s"), bytes_text(row, "predicted_bytes"),
               bytes_text(row, "measured_bytes"), error_text(row, "memory_error"),
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
  std::vector<std::vector<std::pair<std::string, Json>>> rows;
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

std::string summary_line(const char* what, const Json& summary, const char* of) {
  const auto n = summary["n"].get<std::int64_t>();
  if (n == 0) return "";
  return fmt::format(
      "{}: mean |error| {:.1f} %, median {:.1f} %, largest {:.1f} %, bias {:+.1f} % over {}\n",
      what, 100 * summary["mape"].get<double>(), 100 * summary["median"].get<double>(),
      100 * summary["max"].get<double>(), 100 * summary["bias"].get<double>(), counted(n, of));
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
  std::vector<std::vector<std::pair<std::string, Json>>> rows;
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

}  // namespace penstock
