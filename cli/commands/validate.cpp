// SPDX-License-Identifier: Apache-2.0
// penstock validate: recordings of real runs beside what their scenarios predict.
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"
#include "cli/validation_output.hpp"
#include "report/report.hpp"
#include "traces/byte_sink.hpp"
#include "validate/measured_files.hpp"
#include "validate/recorded_prediction.hpp"
#include "validate/sections.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::optional<double> tolerance_of(const Arguments& arguments) {
  if (!arguments.flag("tolerance")) return std::nullopt;
  std::string why;
  const std::string text = arguments.value("tolerance");
  const auto tolerance = parse_quantity(text, Dimension::fraction, why);
  if (!tolerance || *tolerance < 0)
    throw InputError("--tolerance", tolerance ? "must not be negative" : why);
  if (*tolerance > 1) throw InputError("--tolerance", "must be a share, such as 5% or 0.05");
  return tolerance;
}

/// Of a recording; sections when a report is wanted.
struct Validated {
  Json row;
  std::string scenario;
  std::vector<std::string> sections = {};
};

Validated validated(const std::string& path, const Arguments& arguments) {
  const bool given = arguments.positional.size() > 1;
  const RecordedPrediction both(path, given ? arguments.positional[1] : "", overrides_of(arguments),
                                engine_of(arguments, EngineChoice::automatic));
  const Validation validation = both.validation();
  if (arguments.flag("trace")) both.write_trace(arguments.value("trace"), PENSTOCK_VERSION);
  Validated out{row_json(both.input(), validation), both.simulation.scenario.text()};
  out.row["engine"] = both.simulation.engine;
  out.row["file"] = path;
  if (arguments.flag("report")) out.sections = validation_sections(both.input(), validation);
  return out;
}

/// The error of the times, and of memory, over all recordings.
std::vector<KeyFigure> error_figures(const Json& result, const char* of) {
  std::vector<KeyFigure> figures;
  for (const char* what : {"time", "memory"}) {
    const Json& summary = result[what];
    if (!summary.is_object() || !summary["mape"].is_number()) continue;
    figures.push_back({fmt::format("Error of {}", what),
                       format_percent(summary["mape"].get<double>()),
                       summary_line(what, summary, of)});
  }
  return figures;
}

/// Each once, with the recordings that it is of.
std::string scenarios_text(const std::vector<std::pair<std::string, std::string>>& by_file) {
  std::vector<std::pair<std::string, std::vector<std::string>>> texts;
  for (const auto& [file, text] : by_file) {
    auto known = std::ranges::find(texts, text, [](const auto& t) { return t.first; });
    if (known == texts.end()) known = texts.insert(known, {text, {}});
    known->second.push_back(file);
  }
  std::string all;
  for (const auto& [text, files] : texts)
    all += fmt::format("# of {}\n{}{}", fmt::join(files, ", "), text,
                       text.ends_with('\n') ? "" : "\n");
  return all;
}

/// `elsewhere`: all predictions are those of a table.
Report report_of(const Arguments& arguments, const Json& result, const std::vector<Json>& rows,
                 bool elsewhere, std::vector<std::string> sections, std::string scenarios) {
  const std::string scenario = elsewhere                         ? "what the rows say"
                               : arguments.positional.size() > 1 ? arguments.positional[1]
                               : rows.empty()                    ? "the scenario of each row"
                                                                 : "the recording's own";
  if (!rows.empty()) sections.insert(sections.begin(), recordings_section(rows));
  return {.title = "Predicted against measured",
          .summary = "measured: " + arguments.positional[0] + "; predicted from: " + scenario,
          .figures = error_figures(result, rows.empty() ? "row" : "recording"),
          .sections = std::move(sections),
          .command = arguments.command_line,
          .scenario = std::move(scenarios),
          .version = PENSTOCK_VERSION};
}

void refuse_for_tables(const Arguments& arguments) {
  for (const char* option : {"trace", "markdown"}) {
    if (arguments.flag(option))
      throw InputError(std::string("--") + option,
                       fmt::format("is for recordings; '{}' holds none", arguments.positional[0]));
  }
}

std::string table_of(const Json& result, const Arguments& arguments) {
  std::string text;
  Json recordings = result;
  recordings["rows"] = Json::array();
  std::map<std::size_t, Json> of_report;
  for (const Json& row : result["rows"])
    (row.contains("report") ? of_report[row["report"].get<std::size_t>()] : recordings["rows"])
        .push_back(row);
  if (!recordings["rows"].empty())
    text =
        arguments.flag("markdown") ? validation_markdown(recordings) : validation_table(recordings);
  const Json reports = result.value("measured", Json::array());
  for (std::size_t i = 0; i < reports.size(); ++i)
    text += (text.empty() ? "" : "\n") +
            measured_table(reports[i], of_report[i], arguments.flag("rows"));
  return text;
}

std::string text_of(const Json& result, const Arguments& arguments) {
  const std::string format = arguments.value("format", "table");
  if (format == "json") return result.dump(2) + "\n";
  if (format == "csv") return validation_csv(result);
  return table_of(result, arguments);
}

/// The second file is what is predicted, not a second recording.
void require_scenario(const Arguments& arguments) {
  if (arguments.positional.size() < 2) return;
  const std::string &first = arguments.positional[0], &second = arguments.positional[1];
  require_file(second);
  const auto is_recording = [](const std::string& path) {
    return !fs::is_directory(path) &&
           measured_format(path, read_file(path)) == MeasuredFormat::recording;
  };
  if (!fs::is_directory(second) && !is_recording(second)) return;
  const bool swapped = !fs::is_directory(first) && !is_recording(first);
  throw InputError(
      second,
      fmt::format("is {}, and the second file is the scenario that the first is predicted from: {}",
                  fs::is_directory(second) ? "a folder" : "a recording",
                  swapped ? fmt::format("did you mean `penstock validate {} {}`?", second, first)
                          : "validate each, or give a folder that holds both"));
}

}  // namespace

int run_validate(const Arguments& arguments) {
  if (arguments.flag("print")) {
    put_output(arguments,
               scenario_of_row(rows_in(arguments.positional[0], row_options_of(arguments)),
                               arguments.value("print")));
    return exit_ok;
  }
  const auto tolerance = tolerance_of(arguments);
  require_scenario(arguments);
  const std::string& measured = arguments.positional[0];
  require_file(measured);
  LeftOut left_out(fs::is_directory(measured));
  const auto files = measured_files(measured, arguments.value("as", ""), left_out);
  const auto recordings =
      std::ranges::count(files, MeasuredFormat::recording, &MeasuredFile::format);
  if (recordings > 1 && arguments.flag("trace"))
    throw InputError("--trace",
                     fmt::format("takes one recording, '{}' holds {}", measured, recordings));
  if (recordings == 0) refuse_for_tables(arguments);
  std::vector<Json> rows;
  std::vector<std::string> sections;
  std::vector<std::pair<std::string, std::string>> scenarios;
  for (const MeasuredFile& file : files) {
    if (file.format != MeasuredFormat::recording) continue;
    left_out.unless_refused([&] {
      Validated answer = validated(file.path, arguments);
      rows.push_back(std::move(answer.row));
      scenarios.emplace_back(file.path, std::move(answer.scenario));
      std::ranges::move(answer.sections, std::back_inserter(sections));
    });
  }
  const std::vector<Json> recorded = rows;
  const auto reports = measured_reports(files, measured, row_options_of(arguments), left_out);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    for (Json& row : measured_rows_json(reports[i])) {
      row["report"] = i;
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty() && left_out.count() > 0) return exit_usage;
  Json result = validation_json(rows, tolerance);
  for (const MeasuredReport& report : reports) {
    result["measured"].push_back(measured_report_json(report));
    if (arguments.flag("report"))
      sections.push_back(measured_section(report, result["measured"].back()));
  }
  if (arguments.flag("report"))
    write_report(report_of(arguments, result, recorded,
                           std::ranges::all_of(files,
                                               [](const MeasuredFile& file) {
                                                 return file.format == MeasuredFormat::predicted;
                                               }),
                           std::move(sections), scenarios_text(scenarios)),
                 arguments.value("report"));
  put_result(arguments, text_of(result, arguments));
  std::size_t unseen = 0;
  for (const MeasuredReport& report : reports) unseen += report.left_out;
  if (unseen > 0) say("{} left out\n", counted(static_cast<std::int64_t>(unseen), "row"));
  const auto beyond = out_of_tolerance(result);
  if (!beyond.empty())
    say("out of the tolerance of {}: {}\n", format_percent(*tolerance), fmt::join(beyond, ", "));
  if (left_out.count() > 0) {
    say("{} left out\n", counted(static_cast<std::int64_t>(left_out.count()), "file"));
    return exit_usage;
  }
  if (unseen > 0 && tolerance) return exit_usage;  // no verdict of rows that nobody saw
  return beyond.empty() ? exit_ok : exit_out_of_tolerance;
}

}  // namespace penstock
