// penstock compare: scenarios (simulated now) and results (JSON files) side by side.
#include "base/exit_codes.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"
#include "report/comparison_section.hpp"
#include "report/report.hpp"
#include "report/table_section.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

bool is_result(const Json& json) {
  return json.is_object() && json.contains("schema_version") && json.contains("makespan_s");
}

/// A saved result, or nothing when the file is a scenario.
std::optional<Json> load_result(const std::string& path) {
  if (!path.ends_with(".json") && !path.ends_with(".json.gz")) return std::nullopt;
  require_file(path);
  const std::string text = read_file(path);
  const auto json = Json::parse_if(text);
  if (!json) throw InputError(path, "is not JSON");
  if (!is_result(*json))
    throw InputError(path, "is not a result of `penstock simulate --format json`");
  return *json;
}

double number_or_0(const Json& result, const char* key) {
  return result.contains(key) && result[key].is_number() ? result[key].get<double>() : 0;
}

double most(const Json& result, const char* key) {
  double value = 0;
  for (const Json& device : result.value("devices", Json::array()))
    value = std::max(value, number_or_0(device, key));
  return value;
}

/// Four digits, so that rows of the same size align: 43.40 above 26.23.
std::string rate_text(double rate) {
  return rate >= 999.95 ? fmt::format("{:.0f}", rate) : fmt::format("{:#.4g}", rate);
}

/// Two decimals, or two digits when that would hide what a small ratio is.
std::string ratio_text(double ratio) {
  return ratio >= 0.1 ? fmt::format("{:.2f}x", ratio) : fmt::format("{:.2g}x", ratio);
}

/// The scenario's name and what was changed on the command line.
std::string name_of(const Json& result) {
  const Json changes = result.value("overrides", Json::array());
  std::string name = result.value("scenario", "");
  if (changes.empty()) return name;
  return name + fmt::format(" [{}]", fmt::join(changes.get<std::vector<std::string>>(), ", "));
}

std::string comparison_table(const std::vector<Json>& results) {
  TextTable table({"scenario", "schedule", "batch", "fits", "iteration", "samples/s", "ratio",
                   "bubble", "peak GiB", "stash", "versions", "staleness"},
                  {TextTable::Align::left, TextTable::Align::left});
  const double first = number_or_0(results[0], "throughput_samples_per_s");
  for (const Json& r : results) {
    const double rate = number_or_0(r, "throughput_samples_per_s");
    table.add(
        {name_of(r), r.value("schedule", ""),
         fmt::format("{:.0f}", number_or_0(r, "samples_per_update")),
         r.value("feasible", true) ? "yes" : "NO",
         r["iteration_time_s"].is_null() ? "-" : format_time(number_or_0(r, "iteration_time_s")),
         rate_text(rate), first > 0 ? ratio_text(rate / first) : "-",
         format_percent(number_or_0(r, "bubble_fraction")),
         fmt::format("{:.2f}", most(r, "peak_memory_bytes") / 1073741824.0),
         fmt::format("{:.0f}", most(r, "stash_peak")),
         fmt::format("{:.0f}", most(r, "weight_versions_peak")),
         fmt::format("{:.0f}", most(r, "staleness_max"))});
  }
  std::string text =
      table.render() +
      "batch, iteration: samples and time of a weight update; ratio: samples/s against the "
      "first row\n";
  for (const Json& r : results) {
    for (const Json& note : r.value("notes", Json::array())) {
      const auto words = note.get<std::string>();
      if (words.starts_with("too few batches")) text += fmt::format("{}: {}\n", name_of(r), words);
    }
    for (const Json& why : r.value("infeasible_because", Json::array())) {
      text += fmt::format("{}: {}\n", r.value("scenario", ""), why.get<std::string>());
      break;
    }
  }
  return text;
}

std::vector<double> numbers(const std::vector<Json>& results, const char* key) {
  std::vector<double> values;
  for (const Json& r : results)
    values.push_back(r.contains(key) && r[key].is_number() ? r[key].get<double>() : std::nan(""));
  return values;
}

/// Of results only their names are known.
std::string scenarios_text(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    if (path.ends_with(".json") || path.ends_with(".json.gz")) continue;
    text += fmt::format("# {}\n{}", path, read_file(path));
  }
  return text;
}

Report comparison_report(const std::vector<Json>& results, const Arguments& arguments) {
  ComparisonSection bars{
      {"Side by side",
       "An iteration is a weight update, of as many samples as each scenario says."},
      {},
      {}};
  TableSection why{{"What does not fit"}, {{"scenario"}, {"because"}}, {}};
  ComparisonBars peak;
  for (const Json& r : results) {
    bars.names.push_back(name_of(r));
    peak.values.push_back(most(r, "peak_memory_bytes"));
    for (const Json& reason : r.value("infeasible_because", Json::array()))
      why.rows.push_back({name_of(r), reason.get<std::string>()});
  }
  bars.panels = {{"iteration time", "s", {{"", numbers(results, "iteration_time_s")}}},
                 {"throughput", "samples/s", {{"", numbers(results, "throughput_samples_per_s")}}},
                 {"bubble", "fraction", {{"", numbers(results, "bubble_fraction")}}},
                 {"peak memory of the fullest device", "bytes", {peak}}};
  Report report{.title = "Comparison",
                .summary = "",
                .figures = {},
                .sections = {section_text(bars)},
                .command = arguments.command_line,
                .scenario = scenarios_text(arguments.positional),
                .version = PENSTOCK_VERSION};
  if (!why.rows.empty()) report.sections.push_back(section_text(why));
  return report;
}

}  // namespace

int run_compare(const Arguments& arguments) {
  const OutputOptions options{false, arguments.flag("reproducible")};
  std::vector<Json> results;
  for (const std::string& path : arguments.positional) {
    auto saved = load_result(path);
    if (saved && arguments.flag("set"))
      throw InputError(path, "is a saved result, which --set cannot change; give its scenario");
    results.push_back(
        saved ? *saved
              : simulate_in_child(path, overrides_of(arguments), engine_of(arguments), options));
  }
  if (arguments.flag("report"))
    write_report(comparison_report(results, arguments), arguments.value("report"));
  const std::string format = arguments.value("format", "table");
  if (format == "json") {
    put_output(arguments, Json(results).dump(2) + "\n");
  } else if (format == "csv") {
    std::vector<std::vector<std::pair<std::string, Json>>> rows;
    for (const Json& r : results) rows.push_back(summary_row(r));
    put_output(arguments, to_csv(rows));
  } else {
    put_output(arguments, comparison_table(results));
  }
  return exit_ok;
}

}  // namespace penstock
