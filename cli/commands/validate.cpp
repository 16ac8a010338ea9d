// penstock validate: recordings of real runs beside what their scenarios predict.
#include "base/exit_codes.hpp"
#include "base/folder.hpp"
#include "base/say.hpp"
#include "base/units.hpp"
#include "cli/measured_output.hpp"
#include "cli/run_rows.hpp"
#include "cli/running.hpp"
#include "cli/sailor_measurements.hpp"
#include "cli/validation_output.hpp"
#include "report/comparison_section.hpp"
#include "report/report.hpp"
#include "report/scatter_section.hpp"
#include "traces/byte_sink.hpp"
#include "traces/chrome_writer.hpp"
#include "validate/sections.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
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

struct InputFile {
  std::string path;
  MeasuredFormat format;
};

bool maybe_measured(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".csv");
}

/// An object or a list: of whatever, folders hold other files, too.
bool looks_like_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

/// A file that was named is taken for a recording unless it is something else: its reader says what
/// is wrong with it.
InputFile named_file(const std::string& path, const Arguments& arguments) {
  const std::string form = arguments.value("as", "");
  if (given_as_runs(arguments)) return {path, MeasuredFormat::runs};
  if (form == "sailor") return {path, MeasuredFormat::sailor};
  if (form == "predicted") return {path, MeasuredFormat::predicted};
  const MeasuredFormat format = measured_format(path, read_file(path));
  if (format != MeasuredFormat::unknown) return {path, format};
  if (path.ends_with(".csv")) return {path, MeasuredFormat::runs};
  return {path, MeasuredFormat::recording};
}

/// Files of a folder that are refused are said and left out; one that was named is an error.
class LeftOut {
 public:
  explicit LeftOut(bool folder) : folder_(folder) {}

  /// Has `work` been done?
  template <class Work>
  bool unless_refused(const Work& work) {
    try {
      work();
      return true;
    } catch (const InputError& error) {
      if (!folder_) throw;
      say(error.what());
    } catch (const SystemError& error) {
      if (!folder_) throw;
      say(error.what());
    }
    return false;
  }
  std::size_t count() const { return count_; }

 private:
  void say(const char* why) {
    ++count_;
    penstock::say("{}\n", why);
  }
  bool folder_;
  std::size_t count_ = 0;
};

/// Folders hold other files, too; which of them are not counted should be no secret.
void say_left_out(std::vector<std::string> files) {
  constexpr std::size_t kNamed = 5;
  const std::size_t more = files.size() - std::min(files.size(), kNamed);
  files.resize(files.size() - more);
  say("note: left out, neither recordings nor tables of measured times: {}{}\n",
      fmt::join(files, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

/// The file itself, or the recordings and tables in a folder and those below it, sorted.
std::vector<InputFile> inputs_in(const std::string& path, const Arguments& arguments,
                                 LeftOut& left_out) {
  require_file(path);
  if (!fs::is_directory(path)) return {named_file(path, arguments)};
  std::vector<InputFile> files;
  std::vector<std::string> other;
  for (const std::string& file : files_below(path)) {
    if (!maybe_measured(file)) continue;
    left_out.unless_refused([&] {
      const std::string text = read_file(file);
      const MeasuredFormat format = measured_format(file, text);
      // A result of ours that was left in the folder is no measurement, unless it is asked for.
      const bool asked = arguments.value("as", "") == "predicted";
      if (asked || format == MeasuredFormat::predicted) {
        if (asked && format == MeasuredFormat::predicted) files.push_back({file, format});
      } else if (format != MeasuredFormat::unknown)
        files.push_back({file, format});
      else if (!file.ends_with(".csv") && !looks_like_json(text))
        throw InputError(file, "is named as JSON and is none: a broken recording?");
      else
        other.push_back(fs::relative(file, path).string());
    });
  }
  if (!other.empty()) say_left_out(other);
  if (files.empty() && left_out.count() == 0)
    throw InputError(path,
                     "holds no recording (.json or .json.gz) and no table of measured iteration "
                     "times (.csv, .json)");
  return files;
}

/// A file's numbers are not taken on trust: every microbatch of a whole run has at least one op.
void require_recorded_length(const Recording& recording, const std::string& path) {
  constexpr std::uint64_t kStopped = 1'000'000;  // a run that was stopped may hold any part of it
  std::uint64_t most = 0;
  for (const RecordedRun& run : recording.runs)
    most = std::max<std::uint64_t>({most, run.ops.size(), run.complete ? 0 : kStopped});
  if (std::uint64_t{recording.batches} * recording.microbatches <= most) return;
  throw InputError(path, fmt::format("says {} updates of {} microbatches, and holds {} ops",
                                     recording.batches, recording.microbatches, most));
}

Scenario scenario_of(const Recording& recording, const std::string& path,
                     const Arguments& arguments) {
  const auto overrides = overrides_of(arguments);
  const bool given = arguments.positional.size() > 1;
  if (!given && recording.scenario.empty())
    throw InputError(path, "holds no scenario; give one after the recording");
  Scenario scenario = given ? load_scenario(arguments.positional[1], overrides)
                            : parse_scenario(recording.scenario, path, overrides);
  if (scenario.perturbations.changes_times()) {
    throw InputError(scenario.origin,
                     "'perturbations' are no part of a measured run; leave them out");
  }
  // The prediction runs as long as the recording did, whatever the scenario says.
  require_recorded_length(recording, path);
  if (recording.batches > 0) scenario.shape.batches = recording.batches;
  return scenario;
}

/// A recording and its prediction. Stays where it was made: a simulation points into itself.
class Comparison {
 public:
  /// Throws InputError when they are not the same run.
  Comparison(const std::string& path, const Arguments& arguments)
      : recording(read_recording(path)),
        simulation(simulate(scenario_of(recording, path, arguments),
                            engine_of(arguments, EngineChoice::automatic))) {
    require_same_shape(path);
    const Program& program = simulation.program;
    for (int d = 0; d < program.ops.devices(); ++d)
      memory.push_back(memory_over_time(simulation.memory(), d));
    for (const RecordedRun& run : recording.runs) {
      runs.push_back(to_timeline(program.ops, *simulation.table, run));
      require_known_ops(runs.back(), path);
    }
  }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  SimulationInput simulated() const { return simulation.input(); }

  const Recording recording;
  const Simulation simulation;
  std::vector<MemoryPeak> memory;
  std::vector<RecordedTimeline> runs;

 private:
  void require_same_shape(const std::string& path) const {
    const Program& p = simulation.program;
    std::vector<std::string> wrong;
    const auto compare = [&](const char* what, const auto& recorded, const auto& predicted) {
      if (recorded != predicted)
        wrong.push_back(fmt::format("{} is {} in the recording and {} in the scenario", what,
                                    recorded, predicted));
    };
    compare("the schedule", recording.schedule, p.schedule);
    compare("the number of stages", recording.depth, p.placement.depth());
    compare("the number of microbatches", recording.microbatches, p.microbatches_per_update);
    if (!wrong.empty()) throw InputError(path, fmt::format("{}", fmt::join(wrong, "; ")));
  }

  static void require_known_ops(const RecordedTimeline& run, const std::string& path) {
    if (run.unknown.empty()) return;
    const RecordedOp& first = run.unknown.front();
    throw InputError(path, fmt::format("{} are not in the scenario's schedule or stand twice; the "
                                       "first is {} on device {}",
                                       counted(static_cast<std::int64_t>(run.unknown.size()), "op"),
                                       to_string(first.op), first.device));
  }
};

/// What was recorded of a run, as a program of its own in the order in which it happened.
class Happened {
 public:
  Happened(const Comparison& c, const RecordedTimeline& run) : program_(c.simulation.program) {
    const Simulation& s = c.simulation;
    const OpLists& ops = s.program.ops;
    program_.ops = {};
    const auto known = [&](std::uint32_t g) { return g != kNoOp && happened(run.timeline, g); };
    std::vector<std::uint32_t> from;
    for (const auto& order : run.order) {
      for (const std::uint32_t g : order) {
        Op op = ops[g];
        if (op.has(Op::receives) && !known(s.table->producer(op))) op.flags &= Op::sends;
        if (op.has(Op::sends) && !known(s.table->consumer(op))) op.flags &= Op::receives;
        program_.ops.add(op);
        from.push_back(g);
      }
      program_.ops.end_device();
    }
    table_ = std::make_unique<DependencyTable>(program_.ops, program_.placement,
                                               program_.microbatches());
    timeline_ = std::make_unique<Timeline>(program_.ops.size());
    timeline_->makespan_s = run.timeline.makespan_s;
    for (std::uint32_t i = 0; i < program_.ops.size(); ++i) {
      timeline_->op(i) = run.timeline.op(from[i]);
      timeline_->message(i) = run.timeline.message(from[i]);
    }
  }
  Happened(const Happened&) = delete;
  Happened& operator=(const Happened&) = delete;

  TimelineView view() const { return {program_, *table_, *timeline_}; }
  MemoryInput memory(const Simulation& s) const {
    return {program_.ops, *table_, *timeline_, s.scenario.costs, s.more_versions};
  }

 private:
  Program program_;
  std::unique_ptr<DependencyTable> table_;
  std::unique_ptr<Timeline> timeline_;
};

void write_trace(const Comparison& c, const std::string& path) {
  const Simulation& s = c.simulation;
  const auto version = [&](const Op& op) { return s.program.version(op); };
  const Happened run(c, c.runs[0]);
  const ChromeTrace both[] = {{s.view(),
                               s.memory(),
                               version,
                               {{"scenario", s.scenario.name},
                                {"recording", c.recording.name},
                                {"backend", c.recording.backend},
                                {"schedule", s.program.schedule},
                                {"transfers", std::string(to_string(s.program.transfers))},
                                {"engine", s.engine},
                                {"penstock", PENSTOCK_VERSION}},
                               "predicted "},
                              {run.view(), run.memory(s), version, {}, "measured ", false}};
  write_chrome_traces(both, path);
}

/// The row and, when a report is wanted, its sections.
Json validated(const std::string& path, const Arguments& arguments) {
  const Comparison c(path, arguments);
  const SimulationInput simulated = c.simulated();
  const ValidationInput input{simulated, *c.simulation.timeline, c.memory, c.recording, c.runs};
  Validation validation = validate(input);
  if (c.recording.transfers != to_string(c.simulation.program.transfers))
    validation.notes.push_back(fmt::format("recorded with {} transfers, predicted with {}",
                                           c.recording.transfers,
                                           to_string(c.simulation.program.transfers)));
  if (arguments.flag("trace")) write_trace(c, arguments.value("trace"));
  Json row = row_json(input, validation);
  row["engine"] = c.simulation.engine;
  row["file"] = path;
  return Json{{"row", row},
              {"scenario", c.simulation.scenario.text},
              {"sections", arguments.flag("report") ? validation_sections(input, validation)
                                                    : std::vector<std::string>()}};
}

double number_of(const Json& row, const char* key) {
  return row[key].is_number() ? row[key].get<double>() : std::nan("");
}

/// Predicted beside measured, of all recordings.
std::string comparison_section(const std::vector<Json>& rows) {
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

/// Predicted over measured of the rows of a table.
std::string scatter_section(const MeasuredReport& report, const Json& json) {
  ScatterPanel time{"time of an iteration", "s", {}}, memory{"peak memory", "bytes", {}};
  std::vector<MeasuredRowResult> rows = report.rows;
  std::ranges::stable_sort(rows, {}, &MeasuredRowResult::pipeline_depth);  // as the legend has them
  for (const MeasuredRowResult& row : rows) {
    add_point(time, row, {row.measured_s, row.predicted_s});
    add_point(memory, row, {row.measured_bytes, row.predicted_bytes});
  }
  ScatterSection section{
      {fs::path(report.file).stem().string(), report.protocol + "\n" + fitted_text(json)}, {}};
  const MeasuredSummary s = summarize(report, RowChoice::all);
  for (const auto& [panel, errors] : {std::pair{&time, &s.time}, std::pair{&memory, &s.memory}}) {
    if (panel->groups.empty()) continue;
    section.text.note += summary_line(panel->quantity.c_str(), summary_json(*errors), "row");
    section.panels.push_back(std::move(*panel));
  }
  section.text.note += notes_text(json);
  return section_text(section);
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
  if (!rows.empty()) sections.insert(sections.begin(), comparison_section(rows));
  return {.title = "Predicted against measured",
          .summary = "measured: " + arguments.positional[0] + "; predicted from: " + scenario,
          .figures = error_figures(result, rows.empty() ? "row" : "recording"),
          .sections = std::move(sections),
          .command = arguments.command_line,
          .scenario = std::move(scenarios),
          .version = PENSTOCK_VERSION};
}

/// Tables of published measurements, one report per file.
std::vector<MeasuredReport> measured_reports(const std::vector<InputFile>& files,
                                             const Arguments& arguments, LeftOut& left_out) {
  std::vector<MeasuredReport> reports;
  const auto add = [&](std::vector<MeasuredReport> more) {
    for (MeasuredReport& report : more) reports.push_back(std::move(report));
  };
  std::vector<std::string> sailor;
  for (const InputFile& file : files) {
    if (file.format == MeasuredFormat::sailor) sailor.push_back(file.path);
    if (file.format == MeasuredFormat::predicted)
      left_out.unless_refused(
          [&] { reports.push_back(parse_predicted_rows(read_file(file.path), file.path)); });
    if (file.format == MeasuredFormat::runs)
      left_out.unless_refused([&] {
        reports.push_back(
            rows_report(parse_run_table(read_file(file.path), file.path), file.path, arguments));
      });
  }
  const auto add_sailor = [&] { add(sailor_reports(sailor, arguments)); };
  if (sailor.size() < 2) {
    left_out.unless_refused(add_sailor);
    return reports;
  }
  try {
    add_sailor();
  } catch (const InputError&) {  // read together, one spoils all
    std::erase_if(sailor, [&](const std::string& file) {
      return !left_out.unless_refused([&] { sailor_reports({file}, arguments); });
    });
    add_sailor();
  }
  return reports;
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

}  // namespace

namespace {

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
    put_output(arguments, scenario_of_row(rows_in(arguments.positional[0], arguments),
                                          arguments.value("print")));
    return exit_ok;
  }
  const auto tolerance = tolerance_of(arguments);
  require_scenario(arguments);
  LeftOut left_out(fs::is_directory(arguments.positional[0]));
  const auto files = inputs_in(arguments.positional[0], arguments, left_out);
  const auto recordings = std::ranges::count(files, MeasuredFormat::recording, &InputFile::format);
  if (recordings > 1 && arguments.flag("trace"))
    throw InputError("--trace", fmt::format("takes one recording, '{}' holds {}",
                                            arguments.positional[0], recordings));
  if (recordings == 0) refuse_for_tables(arguments);
  std::vector<Json> rows;
  std::vector<std::string> sections;
  std::vector<std::pair<std::string, std::string>> scenarios;
  for (const InputFile& file : files) {
    if (file.format != MeasuredFormat::recording) continue;
    Json answer;
    if (!left_out.unless_refused([&] { answer = validated(file.path, arguments); })) continue;
    rows.push_back(std::move(answer["row"]));
    scenarios.emplace_back(file.path, answer["scenario"].get<std::string>());
    for (Json& section : answer["sections"]) sections.push_back(section.get<std::string>());
  }
  const std::vector<Json> recorded = rows;
  const auto reports = measured_reports(files, arguments, left_out);
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
      sections.push_back(scatter_section(report, result["measured"].back()));
  }
  if (arguments.flag("report"))
    write_report(report_of(arguments, result, recorded,
                           std::ranges::all_of(files,
                                               [](const InputFile& file) {
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
