#include "cli/validation_output.hpp"

#include "base/table.hpp"
#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr int kValidationSchema = 1;
constexpr std::pair<const char*, const char*> kCauseKeys[] = {
    {"op_time_s", "op times"},
    {"transfer_time_s", "message times"},
    {"wait_s", "delayed departures"},
    {"launch_overhead_s", "launch overhead"},
    {"rest_s", "order and jitter"}};

Json kind_json(const KindRow& k) {
  Json out = Json::object();
  if (k.stage >= 0) out["stage"] = k.stage;
  out.update({{"kind", k.kind},
              {"count", k.count},
              {"predicted_mean_s", k.predicted_mean_s},
              {"predicted_median_s", k.predicted_median_s},
              {"measured_p5_s", k.measured.p5},
              {"measured_p50_s", k.measured.p50},
              {"measured_p95_s", k.measured.p95},
              {"error", nullable(k.error)}});
  return out;
}

Json memory_json(const MemoryUse& use) {
  Json out = Json::object();
  for (std::size_t i = 0; i < kOwners; ++i) out[std::string(kOwnerNames[i])] = use.bytes[i];
  return out;
}

Json device_row_json(const DeviceRow& d) {
  const bool measured = d.measured_memory.has_value();
  return {{"device", d.device},
          {"predicted_busy_s", d.predicted_busy_s},
          {"measured_busy_s", d.measured_busy_s},
          {"busy_error", nullable(d.busy_error)},
          {"predicted_idle_s", d.predicted_idle_s},
          {"measured_idle_s", d.measured_idle_s},
          {"predicted_bytes", d.predicted_memory.total()},
          {"measured_bytes", measured ? Json(d.measured_memory->total()) : Json()},
          {"allocator_peak_bytes", nullable(d.allocator_peak_bytes)},
          {"memory_error", nullable(d.memory_error)},
          {"predicted_memory", memory_json(d.predicted_memory)},
          {"measured_memory", measured ? memory_json(*d.measured_memory) : Json()}};
}

Json causes_json(const Causes& c) {
  return {{"gap_s", c.sum_s()},
          {"op_time_s", c.op_time_s},
          {"transfer_time_s", c.transfer_time_s},
          {"wait_s", c.wait_s},
          {"launch_overhead_s", c.launch_overhead_s},
          {"rest_s", c.rest_s}};
}

Json spread_json(const IterationTimes& it) {
  if (!it.measured_s) return nullptr;
  return {{"p5_s", it.spread.p5},
          {"p50_s", it.spread.p50},
          {"p95_s", it.spread.p95},
          {"iterations", it.samples},
          {"run_medians_s", it.run_medians}};
}

Json difference_json(const OrderDifference& d) {
  return {{"run", d.run},
          {"device", d.device},
          {"position", d.position},
          {"expected", to_string(d.expected)},
          {"measured", to_string(d.measured)}};
}

std::optional<double> number(const Json& object, const char* key) {
  const Json* it = object.find(key);
  if (it == nullptr || !it->is_number()) return std::nullopt;
  return it->get<double>();
}

std::string time_text(const Json& object, const char* key) {
  const auto value = number(object, key);
  return value ? format_time(*value) : "-";
}
std::string bytes_text(const Json& object, const char* key) {
  const auto value = number(object, key);
  return value ? format_bytes(*value) : "-";
}
std::string error_text(const std::optional<double>& error) {
  if (!error) return "-";
  const double percent = 100 * *error;
  return fmt::format("{:+.1f} %", std::abs(percent) < 1e-7 ? 0.0 : percent);  // no "-0.0 %"
}
std::string error_text(const Json& object, const char* key) {
  return error_text(number(object, key));
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
  const auto measured = number(row, "measured_s");
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
  if (number(row, "measured_bytes"))
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

bool predicted_row(const Json& row) { return !row.value("calibrated", false); }

}  // namespace

Json summary_json(const ErrorSummary& s) {
  const bool any = s.n > 0;
  const auto value = [&](double number) { return any ? Json(number) : Json(nullptr); };
  return {{"mape", value(s.mape)},
          {"median", value(s.median)},
          {"max", value(s.max)},
          {"bias", value(s.bias)},
          {"n", s.n}};
}

Json row_json(const ValidationInput& in, const Validation& v) {
  const Recording& r = in.recording;
  Json out = {{"name", v.name},
              {"schedule", in.simulation.program.schedule},
              {"transfers", to_string(in.simulation.program.transfers)},
              {"depth", v.depth},
              {"backend", r.backend},
              {"clock", r.clock},
              {"compute", r.compute},
              {"measured_s", nullable(v.iteration.measured_s)},
              {"predicted_s", nullable(v.iteration.predicted_s)},
              {"error", nullable(v.iteration.error)},
              {"error_own_op_times", nullable(v.own_ops_error)},
              {"spread", spread_json(v.iteration)},
              {"measured_bytes", nullable(v.measured_bytes)},
              {"predicted_bytes", nullable(v.predicted_bytes)},
              {"memory_error", nullable(v.memory_error)},
              {"causes", v.causes ? causes_json(*v.causes) : Json()},
              {"order_equal", v.order_differences.empty()}};
  out["order_differences"] = list(v.order_differences, difference_json);
  out["kinds"] = list(v.kinds, kind_json);
  out["stages"] = list(v.stages, kind_json);
  out["devices"] = list(v.devices, device_row_json);
  out["description"] = r.description;
  out["notes"] = v.notes;
  return out;
}

Json validation_json(const std::vector<Json>& rows, const std::optional<double>& tolerance) {
  // Rows that a prediction was fitted on count only where there are no others.
  const bool any_predicted = std::ranges::any_of(rows, predicted_row);
  std::vector<RowErrors> errors;
  for (const Json& row : rows)
    if (!any_predicted || predicted_row(row))
      errors.push_back(
          {row["depth"].get<int>(), number(row, "error"), number(row, "memory_error"),
           row.contains("error_own_op_times") ? number(row, "error_own_op_times") : std::nullopt});
  const ValidationSummary s = summarize(errors);
  Json by_depth = Json::object();
  for (const auto& [depth, summary] : s.time_by_depth)
    by_depth[std::to_string(depth)] = summary_json(summary);
  return {{"schema_version", kValidationSchema},
          {"tolerance", nullable(tolerance)},
          {"time", summary_json(s.time)},
          {"time_own_op_times", summary_json(s.own_ops)},
          {"memory", summary_json(s.memory)},
          {"time_by_pp", by_depth},
          {"rows", rows}};
}

std::vector<std::string> out_of_tolerance(const Json& result) {
  const auto tolerance = number(result, "tolerance");
  std::vector<std::string> names;
  if (!tolerance) return names;
  for (const Json& row : result["rows"]) {
    const auto error = number(row, "error");
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
