#include "validate/sailor_rows.hpp"

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
                                   const RowOptions& options) {
  std::vector<SailorRow> rows;
  std::map<std::string, SailorLibrary> libraries;
  for (const std::string& file : files) {
    const SailorPlan plan = parse_sailor_plan(read_file(file), file);
    const std::string folder = std::filesystem::path(file).parent_path().string();
    const auto [library, added] = libraries.try_emplace(
        options.profiles.empty() ? folder : options.profiles, file, options.profiles);
    SailorRow row;
    row.model = library->second.model_of(plan, options.model);
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
                                           const std::string& path, const RowOptions& options) {
  std::map<std::string, std::vector<SailorRow>> by_model;
  for (SailorRow& row : sailor_rows(files, options)) by_model[row.model].push_back(std::move(row));
  std::vector<MeasuredReport> reports;
  for (const auto& [model, of_model] : by_model) {
    std::vector<RunRow> rows;
    for (const SailorRow& row : of_model) rows.push_back(row.run);
    reports.push_back(rows_report(rows, path, options));
    reports.back().format = fmt::format("Sailor's measured configurations, {}", model);
    std::ranges::copy(of_model.front().notes, std::back_inserter(reports.back().notes));
  }
  return reports;
}

}  // namespace penstock
