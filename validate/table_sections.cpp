// SPDX-License-Identifier: Apache-2.0
// Many recordings, and the rows of tables, as sections of a report.
#include "base/units.hpp"
#include "report/comparison_section.hpp"
#include "report/scatter_section.hpp"
#include "results/fields.hpp"
#include "validate/sections.hpp"
#include "validate/validation_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace penstock {
namespace {

double number_of(const Json& row, const char* key) {
  return number_in(row, key).value_or(std::nan(""));
}

/// The rows of a table by their class, or where it says none by their depth.
std::string class_of(const MeasuredRowResult& row) {
  if (!row.row_class.empty()) return row.row_class;
  return fmt::format("depth {}", row.pipeline_depth);
}

using Numbers = std::pair<std::optional<double>, std::optional<double>>;  // measured, predicted

void add_point(ScatterPanel& panel, const MeasuredRowResult& row, const Numbers& numbers) {
  if (!numbers.first || !numbers.second) return;
  const std::string name = class_of(row);
  auto group = std::ranges::find(panel.groups, name, &ScatterGroup::name);
  if (group == panel.groups.end()) group = panel.groups.insert(group, {name, {}});
  group->points.push_back({row.name, *numbers.first, *numbers.second});
}

}  // namespace

std::string recordings_section(const std::vector<Json>& rows) {
  ComparisonSection section{{"Predicted and measured"}, {}, {}};
  ComparisonPanel time{"time of an update", "s", {{"predicted", {}}, {"measured", {}}}};
  ComparisonPanel memory{"peak memory", "bytes", {{"predicted", {}}, {"measured", {}}}};
  for (const Json& row : rows) {
    section.names.push_back(row["name"].get<std::string>());
    time.bars[0].values.push_back(number_of(row, "predicted_s"));
    time.bars[1].values.push_back(number_of(row, "measured_s"));
    memory.bars[0].values.push_back(number_of(row, "predicted_bytes"));
    memory.bars[1].values.push_back(number_of(row, "measured_bytes"));
  }
  section.panels = {time, memory};
  return section_text(section);
}

std::string measured_section(const MeasuredReport& report, const Json& json) {
  ScatterPanel time{"time of an iteration", "s", {}}, memory{"peak memory", "bytes", {}};
  std::vector<MeasuredRowResult> rows = report.rows;
  std::ranges::stable_sort(rows, {}, &MeasuredRowResult::pipeline_depth);  // as the legend has them
  for (const MeasuredRowResult& row : rows) {
    add_point(time, row, {row.measured_s, row.predicted_s});
    add_point(memory, row, {row.measured_bytes, row.predicted_bytes});
  }
  ScatterSection section{{std::filesystem::path(report.file).stem().string(),
                          report.protocol + "\n" + fitted_text(json)},
                         {}};
  const MeasuredSummary s = summarize(report, RowChoice::all);
  for (const auto& [panel, errors] : {std::pair{&time, &s.time}, std::pair{&memory, &s.memory}}) {
    if (panel->groups.empty()) continue;
    section.text.note += summary_line(panel->quantity.c_str(), to_json(*errors), "row");
    section.panels.push_back(std::move(*panel));
  }
  section.text.note += notes_text(json);
  return section_text(section);
}

std::string summary_line(const char* what, const Json& summary, const char* of) {
  const auto n = summary["n"].get<std::int64_t>();
  if (n == 0) return "";
  return fmt::format(
      "{}: mean |error| {:.1f} %, median {:.1f} %, largest {:.1f} %, bias {:+.1f} % over {}\n",
      what, 100 * summary["mape"].get<double>(), 100 * summary["median"].get<double>(),
      100 * summary["max"].get<double>(), 100 * summary["bias"].get<double>(), counted(n, of));
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

}  // namespace penstock
