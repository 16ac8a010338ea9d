#include "cli/sailor_measurements.hpp"

#include "base/error.hpp"
#include "traces/byte_sink.hpp"
#include "validate/sailor.hpp"
#include "validate/sailor_data.hpp"

#include <fmt/format.h>

#include <filesystem>

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
    row.calibrated = is_sailor_calibration(plan, row.model);
    row.notes = library->second.notes(row.model);
    row.file = file;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const Arguments& arguments) {
  std::map<std::string, MeasuredReport> by_model;
  for (const SailorRow& row : sailor_rows(files, arguments)) {
    MeasuredReport& report = by_model[row.model];
    report.file = arguments.positional[0];
    report.format = fmt::format("Sailor's measured configurations, {}", row.model);
    report.protocol =
        "each as a scenario of its layers' measured times (--print N shows it), predicted as "
        "`simulate` does; those that the four shared parameters were fitted on are marked";
    report.notes = row.notes;
    report.rows.push_back(
        predict_row(row.run, parse_scenario(row.run.scenario, row.file, overrides_of(arguments)),
                    engine_of(arguments, EngineChoice::automatic)));
    report.rows.back().calibrated = row.calibrated;
  }
  std::vector<MeasuredReport> reports;
  for (auto& [model, report] : by_model) reports.push_back(std::move(report));
  return reports;
}

}  // namespace penstock
