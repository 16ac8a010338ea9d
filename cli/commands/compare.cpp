// SPDX-License-Identifier: Apache-2.0
// penstock compare: scenarios (simulated now) and results (JSON files) side by side.
#include "base/exit_codes.hpp"
#include "base/json_fields.hpp"
#include "base/progress.hpp"
#include "base/say.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "results/comparison.hpp"
#include "results/fitting_split.hpp"
#include "results/perturbation_study.hpp"
#include "cli/running.hpp"
#include "cli/simulation_report.hpp"
#include "scenarios/document.hpp"
#include "scenarios/overrides.hpp"
#include "report/comparison_section.hpp"
#include "report/report.hpp"
#include "report/sweep_section.hpp"
#include "report/table_section.hpp"
#include "report/timeline_section.hpp"
#include "sweep/axes.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace penstock {
namespace {

bool is_result_file(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".json.gz");
}

Json load_result(const std::string& path) {
  require_file(path);
  Json json = parse_json(read_file(path), path);
  if (const std::string why = why_no_result(json); !why.empty()) throw InputError(path, why);
  require_numbers_of_a_run(json, path);
  return json;
}

/// Four digits, so that rows of the same size align: 43.40 above 26.23.
std::string rate_text(double rate) {
  return rate >= 999.95 ? fmt::format("{:.0f}", rate) : fmt::format("{:#.4g}", rate);
}

/// Two decimals, or two digits when that would hide what a small ratio is.
std::string ratio_text(double ratio) {
  return ratio >= 0.1 ? fmt::format("{:.2f}x", ratio) : fmt::format("{:.2g}x", ratio);
}

using Words = std::vector<std::string>;

/// May it fit or not, but for what the model leaves out?
bool is_unknown(const Json& r) {
  return r.value("feasible", Json()).is_null() &&
         (r.contains("missing") || r.contains("missing_saves"));
}

/// What does not fit.
std::string reasons_text(const std::vector<Json>& results, const ComparisonLabels& labels) {
  std::string text;
  std::size_t row = 0;
  for (const Json& r : results) {
    for (const Json& why :
         is_unknown(r) ? Json::array() : r.value("infeasible_because", Json::array())) {
      text += fmt::format("{}: {}\n", labels.rows[row], why.get<std::string>());
      break;
    }
    ++row;
  }
  return text;
}

double chunks_of(const Json& result) { return std::max(1.0, number_or_0(result, "chunks")); }

/// Holds what decides a comparison's columns.
struct CompareColumns {
  ByteUnit unit;
  bool versions, chunked, gpus, tokens;
  ComparedRate rate;
};

/// "12,345", or few digits of what is less than a thousand or more than can be counted.
std::string tokens_text(double tokens) {
  if (!(tokens > 0)) return "-";
  if (tokens > 1e15) return fmt::format("{:.4g}", tokens);  // of an edited result
  return tokens < 1000 ? rate_text(tokens) : format_count(std::llround(tokens));
}

Words header_of(const CompareColumns& columns) {
  Words header{"schedule", "batch"};
  if (columns.gpus) header.emplace_back("GPUs");
  for (const char* name : {"fits", "update", "samples/s"}) header.emplace_back(name);
  if (columns.tokens) header.emplace_back("tokens/s");
  if (columns.tokens && columns.gpus) header.emplace_back("tokens/s/GPU");
  for (const char* name : {"ratio", "bubble"}) header.emplace_back(name);
  header.push_back(fmt::format("peak {}", columns.unit.name));
  header.emplace_back("stash");
  if (columns.versions) header.insert(header.end(), {"versions", "staleness"});
  return header;
}

/// Columns of every comparison; those of weight versions where there are several.
Words cells_of(const Json& r, double ratio, const CompareColumns& columns) {
  const bool steady = r.value("iteration_time_s", Json()).is_number();
  const double peak = most_of_devices(r, "peak_memory_bytes");
  Words cells{r.value("schedule", ""), fmt::format("{:.0f}", number_or_0(r, "samples_per_update"))};
  if (columns.gpus) cells.push_back(fmt::format("{}", gpus_in(r)));
  cells.emplace_back(!result_fits(r)                                              ? "NO"
                     : most_of_devices(r, "capacity_bytes") > 0 && !is_unknown(r) ? "yes"
                                                                                  : "unknown");
  cells.push_back(steady ? format_time(number_or_0(r, "iteration_time_s")) : "-");
  cells.push_back(rate_text(number_or_0(r, "throughput_samples_per_s")));
  if (columns.tokens) cells.push_back(tokens_text(tokens_per_s(r)));
  if (columns.tokens && columns.gpus)
    cells.push_back(tokens_text(tokens_per_s(r) / static_cast<double>(gpus_in(r))));
  cells.push_back(ratio > 0 && steady ? ratio_text(ratio) : "-");
  cells.push_back(format_percent(number_or_0(r, "bubble_fraction")));
  cells.push_back(peak > 0 ? columns.unit.text(static_cast<std::int64_t>(peak)) : "-");
  cells.push_back(stash_text(most_of_devices(r, "stash_peak"), chunks_of(r), columns.chunked));
  if (!columns.versions) return cells;
  cells.push_back(fmt::format("{:.0f}", most_of_devices(r, "weight_versions_peak")));
  cells.push_back(fmt::format("{:.0f}", most_of_devices(r, "staleness_max")));
  return cells;
}

CompareColumns columns_of(const std::vector<Json>& results) {
  const auto any = [&](auto&& has) { return std::ranges::any_of(results, has); };
  double largest = 0;
  for (const Json& r : results)
    largest = std::max(largest, most_of_devices(r, "peak_memory_bytes"));
  return {byte_unit(static_cast<std::int64_t>(largest)),
          any([](const Json& r) {
            return most_of_devices(r, "weight_versions_peak") > 1 ||
                   most_of_devices(r, "staleness_max") > 0;
          }),
          any([](const Json& r) { return chunks_of(r) > 1; }),
          gpus_differ(results),
          any([](const Json& r) { return tokens_per_s(r) > 0; }),
          compared_rate(results)};
}

std::string comparison_table(const std::vector<Json>& results, std::size_t width = 0) {
  const CompareColumns columns = columns_of(results);
  const ComparisonLabels labels = labels_of(results);
  Words header = header_of(columns);
  header.insert(header.begin(), labels.heading.empty() ? "scenario" : "change");
  TextTable table(header, {TextTable::Align::left, TextTable::Align::left});
  const std::vector<double>& rates = columns.rate.per_s;
  for (std::size_t i = 0; i < results.size(); ++i) {
    Words row = cells_of(results[i], rates[0] > 0 ? rates[i] / rates[0] : 0, columns);
    row.insert(row.begin(), labels.rows[i]);
    table.add_row(std::move(row));
  }
  const std::string gone =
      table.fit(width, {"stash", "batch", "bubble",
                        columns.rate.unit == "tokens/s" ? "samples/s" : "tokens/s", "schedule",
                        "staleness", "versions", "tokens/s/GPU", "GPUs"});
  const std::string text =
      (labels.heading.empty() ? "" : labels.heading + "\n") + table.render() + gone +
      table.legend({{"batch", "samples of an update"},
                    {"update", "its time"},
                    {"ratio", columns.rate.unit + " against the first row"}},
                   width) +
      table.legend({{"stash", columns.chunked
                                  ? "microbatches whose activations the fullest device holds, a "
                                    "chunk's counting as its part"
                                  : "microbatches whose activations the fullest device holds"}}) +
      table.legend({{"versions", "of the weights"},
                    {"staleness", "updates that the weights of a gradient are behind"}},
                   width);
  return text + comparison_notes(results, labels) + reasons_text(results, labels);
}

/// A file's, or that of standard input where it is called "-", which is read once.
class Sources {
 public:
  Scenario scenario(const std::string& path, const std::vector<Override>& changes) {
    if (path != "-") return load_scenario(path, changes);
    if (!standard_input_) standard_input_ = read_file("/dev/stdin");
    return parse_scenario(*standard_input_, "standard input", changes);
  }
  std::string text(const std::string& path) {
    return path == "-" ? standard_input_.value_or("") : read_file(path);
  }

 private:
  std::optional<std::string> standard_input_;
};

/// Of results only their names are known.
std::string scenarios_text(const std::vector<std::string>& paths, Sources& sources) {
  std::string text;
  for (const std::string& path : paths) {
    if (is_result_file(path)) continue;
    text += fmt::format("# {}\n{}", path, sources.text(path));
  }
  return text;
}

/// Throws InputError unless what is shown of a result is of the types that are written.
Json with_types(Json result, const std::string& path) {
  try {
    comparison_table({result});
    summary_row(result);
  } catch (const JsonError& error) {
    throw InputError(path, fmt::format("is a result whose values are of other types than those of "
                                       "`penstock simulate --format json` ({})",
                                       error.what()));
  }
  return result;
}

/// One that was refused is said and left out.
struct Compared {
  std::vector<Json> results;
  std::vector<std::string> timelines;  ///< of those that were simulated for a report
  std::size_t refused = 0;
};

/// Which to take, by speed and by memory; what cannot be taken.
std::vector<KeyFigure> answers(const std::vector<Json>& results, const Words& names) {
  const BestResults best = best_of(results);
  std::vector<KeyFigure> figures;
  if (!best.fastest) {
    figures.push_back({"Which is fastest?", "none fits", "", Verdict::bad});
  } else {
    const ComparedRate rate = compared_rate(results);
    const double peak = most_of_devices(results[*best.smallest], "peak_memory_bytes");
    const std::string against =
        best.faster_than_first ? ", " + ratio_text(*best.faster_than_first) + " of the first" : "";
    figures.push_back(
        {"Which is fastest?", names[*best.fastest],
         fmt::format("{} {}{}", rate_text(rate.per_s[*best.fastest]), rate.unit, against),
         Verdict::good});
    if (peak > 0)
      figures.push_back({"Which needs least memory?", names[*best.smallest],
                         format_bytes(peak) + " on its fullest device"});
  }
  const bool all = best.unfit == 0;
  figures.push_back({"Do all fit?",
                     all ? "yes" : fmt::format("{} of {} do not", best.unfit, results.size()),
                     all ? "" : "why is said below", all ? Verdict::good : Verdict::bad});
  const auto [least, largest] = std::ranges::minmax(numbers_of(results, "samples_per_update"));
  if (least < largest)
    figures.push_back({"The same work?", "no",
                       fmt::format("updates of {:.0f} to {:.0f} samples", least, largest),
                       Verdict::bad});
  return figures;
}

/// What is fast, and what is small.
std::string pareto_section(const std::vector<Json>& results, const Words& names) {
  const ComparedRate rate = compared_rate(results);
  SweepSection section{{"Speed against memory"},
                       {{{"row"}, SweepRole::axis},
                        {{"throughput", rate.unit}, SweepRole::measure, Better::higher},
                        {{"peak memory", "bytes"}, SweepRole::measure, Better::lower}},
                       {},
                       "throughput",
                       "peak memory",
                       "throughput"};
  section.heat_map = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Json why = results[i].value("infeasible_because", Json::array());
    section.points.add_point(
        {{names[i], rate.per_s[i], most_of_devices(results[i], "peak_memory_bytes")},
         !result_fits(results[i]) ? PointStatus::infeasible
         : is_unknown(results[i]) ? PointStatus::unknown
                                  : PointStatus::ok,
         why.empty() || is_unknown(results[i])
             ? results[i].value("missing", results[i].value("missing_saves", ""))
             : why[0].get<std::string>()});
  }
  return section_text(section);
}

Report comparison_report(const Compared& all, const Arguments& arguments, Sources& sources) {
  const std::vector<Json>& results = all.results;
  const ComparisonLabels labels = labels_of(results);
  ComparisonSection bars{
      {"Side by side", "An update is of as many samples as each scenario says."}, {}, {}};
  TableSection why{{"What does not fit"}, {{"scenario"}, {"because"}}, {}};
  const ComparedRate rate = compared_rate(results);
  std::vector<double> peak_bytes;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Json& r = results[i];
    bars.names.push_back(labels.rows[i]);
    bars.bad.push_back(!result_fits(r));
    peak_bytes.push_back(most_of_devices(r, "peak_memory_bytes"));
    const Json reasons = r.value("infeasible_because", Json::array());
    if (reasons.empty()) continue;
    const std::string others =
        reasons.size() > 1
            ? fmt::format("; {} too much", reasons.size() == 2 ? "1 more stage holds"
                                                               : fmt::format("{} more stages hold",
                                                                             reasons.size() - 1))
            : "";
    why.rows.push_back({labels.rows[i], reasons[0].get<std::string>() + others});
  }
  bars.panels = {{"time of an update", "s", {{"", numbers_of(results, "iteration_time_s")}}},
                 {"throughput", rate.unit, {{"", rate.per_s}}},
                 {"bubble", "fraction", {{"", numbers_of(results, "bubble_fraction")}}},
                 {"peak memory of the fullest device", "bytes", {{"", peak_bytes}}}};
  Report report{.title = labels.heading.empty() ? "Comparison" : "Comparison: " + labels.heading,
                .summary = "",
                .figures = answers(results, labels.rows),
                .sections = {section_text(bars)},
                .command = arguments.command_line,
                .scenario = scenarios_text(arguments.positional, sources),
                .version = PENSTOCK_VERSION};
  const std::string notes = comparison_notes(results, labels);
  for (std::size_t at = 0, end = 0; at < notes.size(); at = end + 1) {
    end = notes.find('\n', at);
    report.notes.push_back(notes.substr(at, end - at));
  }
  if (!why.rows.empty()) report.sections.push_back(section_text(why));
  const bool sizes = std::ranges::any_of(peak_bytes, [](double bytes) { return bytes > 0; });
  if (sizes && results.size() > 2) report.sections.push_back(pareto_section(results, labels.rows));
  for (const std::string& timeline : on_one_scale(all.timelines))
    report.sections.push_back(timeline);
  return report;
}

constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostTimelines = 8;  ///< in a report

/// The changes of every point of --over; one that changes nothing without.
std::vector<std::vector<Override>> points_of(const Arguments& arguments) {
  const std::vector<Override> changes = overrides_of(arguments);
  std::vector<std::vector<Override>> points{changes};
  for (const SweepAxis& axis : parse_axes(arguments.values("over"), {}, changes)) {
    std::vector<std::vector<Override>> longer;
    if (points.size() * axis.values.size() * arguments.positional.size() > kMostRows)
      throw InputError(
          "--over",
          fmt::format("compares at most {} rows; `penstock sweep` takes more", kMostRows));
    for (const std::vector<Override>& point : points) {
      for (const std::vector<std::string>& value : axis.values) {
        longer.push_back(point);
        longer.back().push_back({axis.keys.front(), value.front()});
      }
    }
    points = std::move(longer);
  }
  return points;
}

/// The first one says what can be done with it.
std::string timeline_of(const Simulation& s, std::size_t number) {
  const auto& changes = s.scenario.overrides;
  SectionText text{fmt::format("Timeline: {}", changes.empty()
                                                   ? s.scenario.name
                                                   : fmt::format("{}", fmt::join(changes, ", ")))};
  text.sub = number > 0;
  if (number == 0) text.note = "Of the first replica of each; all open on as much time.";
  return timeline_section(s, text, 1);
}

std::string point_text(const std::vector<Override>& point) {
  std::string text;
  for (const Override& change : point)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", change.key, change.value);
  return text;
}

/// What is wrong, in a line: where the file is fine, its lines say nothing.
std::string messages(const InputError& error) {
  std::string text;
  for (const Diagnostic& d : error.diagnostics()) text += (text.empty() ? "" : "; ") + d.message;
  return text;
}

/// Is it a scenario without --over?
bool resolves(const std::string& path, const Arguments& arguments, Sources& sources) {
  try {
    sources.scenario(path, overrides_of(arguments));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// Results of all files at all points.
Compared results_of(const Arguments& arguments, Sources& sources) {
  const OutputOptions options{false, arguments.flag("reproducible")};
  const auto points = points_of(arguments);
  Compared all;
  std::string said;  // what is wrong with a file is wrong with it at every point
  const auto add = [&](const std::vector<Override>& point, auto&& result, bool of_point = false) {
    try {
      all.results.push_back(result());
    } catch (const InputError& error) {
      ++all.refused;
      if (std::exchange(said, error.what()) == error.what()) return;
      say("{}\n",
          of_point ? fmt::format("at {}: {}", point_text(point), messages(error)) : error.what());
    }
  };
  Progress progress("compare",
                    static_cast<std::int64_t>(arguments.positional.size() * points.size()));
  std::int64_t done = 0;
  for (const std::string& path : arguments.positional) {
    if (is_result_file(path)) {
      add({}, [&] {
        if (arguments.flag("set") || arguments.flag("over"))
          throw InputError(path,
                           "is a saved result, which --set and --over cannot change; give its "
                           "scenario");
        return with_types(load_result(path), path);
      });
      continue;
    }
    const bool fine = points.size() > 1 && resolves(path, arguments, sources);
    for (const std::vector<Override>& point : points) {
      progress.update(done++, path);
      const bool shown = arguments.flag("report") && all.timelines.size() < kMostTimelines;
      add(
          point,
          [&] {
            const Scenario scenario = sources.scenario(path, point);
            const EngineChoice engine = engine_of(arguments);
            const auto perturbed = study_perturbations(scenario, engine);
            const Simulation s = simulate(scenario, engine);
            Result result = summarize(s);
            result.perturbed = perturbed;
            if (shown) all.timelines.push_back(timeline_of(s, all.timelines.size()));
            note_fitting_split(scenario, result);
            return to_json(s, result, options);
          },
          fine);
    }
  }
  return all;
}

}  // namespace

int run_compare(const Arguments& arguments) {
  Sources sources;
  const Compared all = results_of(arguments, sources);
  const auto& [results, timelines, refused] = all;
  if (results.empty()) return exit_usage;
  if (arguments.flag("report"))
    write_report(comparison_report(all, arguments, sources), arguments.value("report"));
  const std::string format = arguments.value("format", "table");
  if (format == "json") {
    put_result(arguments, Json(results).dump(2) + "\n");
  } else if (format == "csv") {
    std::vector<CsvRow> rows;
    for (const Json& r : results) rows.push_back(summary_row(r));
    put_result(arguments, to_csv(rows));
  } else {
    put_result(arguments, comparison_table(results, results_width()));
  }
  if (refused == 0) return exit_ok;
  say("{} of {} were left out\n", refused, refused + results.size());
  return exit_usage;
}

}  // namespace penstock
