#include "cli/sailor_measurements.hpp"

#include "base/error.hpp"
#include "base/folder.hpp"
#include "traces/byte_sink.hpp"
#include "validate/sailor.hpp"
#include "validate/sailor_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

namespace penstock {

std::vector<SailorRow> sailor_rows(const std::vector<std::string>& files,
                                   const Arguments& arguments) {
  std::vector<SailorRow> rows;
  std::map<std::string, SailorLibrary> libraries;
  for (const std::string& file : files) {
    const SailorPlan plan = parse_sailor_plan(read_file(file), file);
    const std::string folder = std::filesystem::path(file).parent_path().string();
    const std::string profiles = arguments.value("profiles");
    const auto [library, added] =
        libraries.try_emplace(profiles.empty() ? folder : profiles, file, profiles);
    SailorRow row;
    row.model = library->second.model_of(plan, arguments.value("model"));
    row.run.id = plan.name;
    row.run.pipeline_depth = plan.depth();
    row.run.scenario = sailor_scenario(plan, *library->second.data_for(plan, row.model));
    row.run.measured_s = plan.measured_s;
    if (plan.max_bytes) row.run.measured_bytes = static_cast<double>(*plan.max_bytes);
    row.run.of_whole_gpu = true;
    row.notes = library->second.notes(row.model);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const Arguments& arguments) {
  std::map<std::string, std::vector<SailorRow>> by_model;
  for (SailorRow& row : sailor_rows(files, arguments))
    by_model[row.model].push_back(std::move(row));
  std::vector<MeasuredReport> reports;
  for (const auto& [model, of_model] : by_model) {
    std::vector<RunRow> rows;
    for (const SailorRow& row : of_model) rows.push_back(row.run);
    reports.push_back(rows_report(rows, arguments.positional[0], arguments));
    reports.back().format = fmt::format("Sailor's measured configurations, {}", model);
    std::ranges::copy(of_model.front().notes, std::back_inserter(reports.back().notes));
  }
  return reports;
}

bool given_as_runs(const Arguments& arguments) {
  const std::string form = arguments.value("as", "");
  return form == "runs" || form == "vtrain" || form == "simumax";
}

std::vector<RunRow> rows_in(const std::string& path, const Arguments& arguments) {
  std::vector<RunRow> rows;
  const bool folder = std::filesystem::is_directory(path);
  for (const std::string& file : folder ? files_below(path) : std::vector<std::string>{path}) {
    if (folder && !file.ends_with(".csv") && !file.ends_with(".json")) continue;
    const std::string text = read_file(file);
    const MeasuredFormat format =
        !folder && given_as_runs(arguments) ? MeasuredFormat::runs : measured_format(file, text);
    if (format == MeasuredFormat::runs)
      std::ranges::move(parse_run_table(text, file), std::back_inserter(rows));
    if (format == MeasuredFormat::sailor)
      rows.push_back(sailor_rows({file}, arguments).front().run);
  }
  if (rows.empty()) throw InputError(path, "holds no table of runs");
  return rows;
}

}  // namespace penstock
