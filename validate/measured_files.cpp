// SPDX-License-Identifier: Apache-2.0
#include "validate/measured_files.hpp"

#include "base/error.hpp"
#include "base/folder.hpp"
#include "base/say.hpp"
#include "traces/byte_sink.hpp"
#include "validate/kernel_table.hpp"
#include "validate/published_summaries.hpp"
#include "validate/sailor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Does `--as` say that what is named is a table of training runs, in whichever of its forms?
bool is_form_of_runs(const std::string& form) {
  return form == "runs" || form == "vtrain" || form == "simumax" || form == "op-times";
}

bool maybe_measured(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".csv") ||
         name.ends_with(".csv.gz");
}

/// An object or a list: of whatever, folders hold other files, too.
bool looks_like_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

/// A file that was named is taken for a recording unless it is something else: its reader says what
/// is wrong with it.
MeasuredFile named_file(const std::string& path, const std::string& form) {
  if (is_form_of_runs(form)) return {path, MeasuredFormat::runs};
  if (form == "sailor") return {path, MeasuredFormat::sailor};
  if (form == "kernels") return {path, MeasuredFormat::kernels};
  if (form == "predicted") return {path, MeasuredFormat::predicted};
  const std::string text = read_file(path);
  const MeasuredFormat format = measured_format(path, text);
  if (format != MeasuredFormat::unknown) return {path, format};
  if (const std::string what = why_no_runs(text); !what.empty())
    throw InputError(path, "holds " + what);
  if (path.ends_with(".csv")) return {path, MeasuredFormat::runs};
  return {path, MeasuredFormat::recording};
}

/// Folders hold other files, too; which of them are not counted should be no secret.
void say_left_out(std::vector<std::string> files) {
  if (files.empty()) return;
  constexpr std::size_t kNamed = 5;
  const std::size_t more = files.size() - std::min(files.size(), kNamed);
  files.resize(files.size() - more);
  say("note: left out, neither recordings nor tables of measured times: {}{}\n",
      fmt::join(files, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::vector<RunRow> rows_of_table(const std::string& text, const std::string& path,
                                  const RowOptions& options) {
  return parse_run_table(text, path, options.form == "op-times");
}

/// Predicts Sailor's configurations in a report per model; `path` names what all are of.
std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const std::string& path, const RowOptions& options) {
  if (files.empty()) return {};
  std::map<std::string, std::vector<RunRow>> by_model;
  for (RunRow& row : sailor_rows(files, options)) by_model[row.model].push_back(std::move(row));
  std::vector<MeasuredReport> reports;
  for (const auto& [model, rows] : by_model) {
    reports.push_back(rows_report(rows, path, options));
    reports.back().format = fmt::format("Sailor's measured configurations, {}", model);
  }
  return reports;
}

}  // namespace

void LeftOut::say(const char* why) {
  ++count_;
  penstock::say("{}\n", why);
}

std::vector<MeasuredFile> measured_files(const std::string& path, const std::string& form,
                                         LeftOut& left_out) {
  if (!fs::is_directory(path)) return {named_file(path, form)};
  std::vector<MeasuredFile> files;
  std::vector<std::string> other;
  for (const std::string& file : files_below(path)) {
    if (!maybe_measured(file)) continue;
    left_out.unless_refused([&] {
      const std::string text = read_file(file);
      const MeasuredFormat format = measured_format(file, text);
      // A result of ours that was left in the folder is no measurement, unless it is asked for.
      const bool asked = form == "predicted";
      if (asked || format == MeasuredFormat::predicted) {
        if (asked && format == MeasuredFormat::predicted) files.push_back({file, format});
      } else if (format != MeasuredFormat::unknown)
        files.push_back({file, format});
      else if (!file.ends_with(".csv") && !file.ends_with(".csv.gz") && !looks_like_json(text))
        throw InputError(file, "is named as JSON and is none: a broken recording?");
      else if (const std::string what = why_no_runs(text); !what.empty())
        say("note: {} is left out: it holds {}\n", fs::relative(file, path).string(), what);
      else
        other.push_back(fs::relative(file, path).string());
    });
  }
  say_left_out(other);
  if (files.empty() && left_out.count() == 0)
    throw InputError(path,
                     "holds no recording (.json or .json.gz) and no table of measured iteration "
                     "times (.csv, .json)");
  return files;
}

std::vector<MeasuredReport> measured_reports(const std::vector<MeasuredFile>& files,
                                             const std::string& path, const RowOptions& options,
                                             LeftOut& left_out) {
  std::vector<MeasuredReport> reports;
  const auto add = [&](std::vector<MeasuredReport> more) {
    for (MeasuredReport& report : more) reports.push_back(std::move(report));
  };
  std::vector<std::string> sailor;
  for (const MeasuredFile& file : files) {
    if (file.format == MeasuredFormat::sailor) sailor.push_back(file.path);
    if (file.format == MeasuredFormat::predicted)
      left_out.unless_refused(
          [&] { reports.push_back(parse_predicted_rows(read_file(file.path), file.path)); });
    if (file.format == MeasuredFormat::kernels)
      left_out.unless_refused(
          [&] { reports.push_back(kernels_report(read_file(file.path), file.path)); });
    if (file.format == MeasuredFormat::runs)
      left_out.unless_refused([&] {
        const std::string text = read_file(file.path);
        reports.push_back(rows_report(rows_of_table(text, file.path, options), file.path, options));
        if (const std::string unknown = unknown_columns(text, file.path); !unknown.empty())
          say("note: {} has columns that are not known and not used: {}\n", file.path, unknown);
      });
  }
  const auto add_sailor = [&] { add(sailor_reports(sailor, path, options)); };
  if (sailor.size() < 2) {
    left_out.unless_refused(add_sailor);
    return reports;
  }
  try {
    add_sailor();
  } catch (const InputError&) {  // read together, one spoils all
    std::erase_if(sailor, [&](const std::string& file) {
      return !left_out.unless_refused([&] { sailor_reports({file}, path, options); });
    });
    add_sailor();
  }
  return reports;
}

std::vector<RunRow> rows_in(const std::string& path, const RowOptions& options) {
  std::vector<RunRow> rows;
  const bool folder = fs::is_directory(path);
  for (const std::string& file : folder ? files_below(path) : std::vector<std::string>{path}) {
    if (folder && !file.ends_with(".csv") && !file.ends_with(".json")) continue;
    const std::string text = read_file(file);
    const MeasuredFormat format = !folder && is_form_of_runs(options.form)
                                      ? MeasuredFormat::runs
                                      : measured_format(file, text);
    if (format == MeasuredFormat::runs)
      std::ranges::move(rows_of_table(text, file, options), std::back_inserter(rows));
    if (format == MeasuredFormat::sailor) rows.push_back(sailor_rows({file}, options).front());
  }
  if (rows.empty()) throw InputError(path, "holds no table of runs");
  return rows;
}

}  // namespace penstock
