// SPDX-License-Identifier: Apache-2.0
#include "validate/measured_rows.hpp"

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/numbers.hpp"
#include "traces/recording.hpp"
#include "validate/kernel_table.hpp"
#include "validate/run_table.hpp"
#include "validate/simumax.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kMost_s = 1e9, kMostWhole = 9e15;  // of seconds; of bytes and counts
constexpr double kLeastCell = 1e-9;                 // of what is not 0
constexpr const char* kPredictedColumns[] = {"name", "measured_s", "predicted_s"};

bool is_predicted_table(const std::vector<std::string>& columns) {
  return std::ranges::all_of(kPredictedColumns, [&](const char* name) {
    return std::ranges::find(columns, name) != columns.end();
  });
}

/// The cells of a row of `parse_predicted_rows`.
class PredictedCells {
 public:
  PredictedCells(const CsvTable& table, const CsvTable::Row& row, const std::string& origin,
                 std::vector<Diagnostic>& wrong)
      : table_(table), row_(row), origin_(origin), wrong_(wrong) {}

  std::string text(const char* column) const {
    const std::size_t at = table_.place(column);
    return at < row_.cells.size() ? row_.cells[at] : "";
  }

  std::optional<double> number(const char* column) {
    const std::string cell = text(column);
    if (cell.empty()) return std::nullopt;
    const double most = std::string_view(column).ends_with("_s") ? kMost_s : kMostWhole;
    const auto value = parse_number<double>(cell);
    if (value && (*value == 0 || (*value >= kLeastCell && *value <= most))) return value;
    wrong_.push_back({{origin_, row_.line, 0},
                      fmt::format("'{}': must be a number from 0 to {:g}{}, got '{}'", column, most,
                                  value && *value > 0 && *value < kLeastCell
                                      ? fmt::format(", 0 or at least {:g}", kLeastCell)
                                      : "",
                                  cell),
                      "",
                      1});
    return std::nullopt;
  }

  std::optional<std::int64_t> whole(const char* column) {
    const auto value = number(column);
    return value ? std::optional<std::int64_t>(std::llround(*value)) : std::nullopt;
  }

 private:
  const CsvTable& table_;
  const CsvTable::Row& row_;
  const std::string& origin_;
  std::vector<Diagnostic>& wrong_;
};

bool chosen(const MeasuredRowResult& row, RowChoice choice) {
  return choice == RowChoice::all || row.fitted == (choice == RowChoice::fitted);
}

}  // namespace

std::optional<double> MeasuredRowResult::error() const {
  if (!predicted_s || !measured_s) return std::nullopt;
  return signed_error(*predicted_s, *measured_s);
}

std::optional<double> MeasuredRowResult::memory_error() const {
  if (!predicted_bytes || !measured_bytes) return std::nullopt;
  return signed_error(static_cast<double>(*predicted_bytes), static_cast<double>(*measured_bytes));
}

MeasuredSummary summarize(const MeasuredReport& report, RowChoice choice) {
  std::vector<double> time, memory, pipelines;
  std::map<int, std::vector<double>> by_depth;
  std::map<std::string, std::vector<double>> by_class;
  for (const MeasuredRowResult& row : report.rows) {
    if (!chosen(row, choice)) continue;
    if (const auto e = row.memory_error()) memory.push_back(*e);
    const auto e = row.error();
    if (!e) continue;
    time.push_back(*e);
    if (row.pipeline_depth > 0) by_depth[row.pipeline_depth].push_back(*e);
    if (!row.row_class.empty()) by_class[row.row_class].push_back(*e);
    if (row.pipeline_depth > 1) pipelines.push_back(*e);
  }
  MeasuredSummary out{
      summarize_errors(time), summarize_errors(memory), {}, {}, summarize_errors(pipelines)};
  for (const auto& [depth, errors] : by_depth) out.time_by_depth[depth] = summarize_errors(errors);
  for (const auto& [name, errors] : by_class) out.time_by_class[name] = summarize_errors(errors);
  return out;
}

FinishSummary finish_summary(const MeasuredReport& report) {
  FinishSummary s;
  for (const MeasuredRowResult& row : report.rows) {
    if (!row.finished || !row.predicted_finished) continue;
    ++(*row.finished ? s.finished : s.stopped);
    if (*row.finished && !*row.predicted_finished) ++s.false_alarms;
    if (!*row.finished && *row.predicted_finished) ++s.missed;
  }
  return s;
}

MeasuredReport parse_predicted_rows(const std::string& text, const std::string& origin) {
  const CsvTable table = parse_csv(text, origin);
  std::vector<Diagnostic> wrong;
  for (const char* name : kPredictedColumns)
    if (table.place(name) == table.columns.size())
      wrong.push_back({{origin, 1, 1}, fmt::format("column '{}' is missing", name), "", 1});
  MeasuredReport report;
  report.file = origin;
  report.format = "predicted rows";
  report.protocol = "predicted elsewhere: these rows say what was predicted and what was measured";
  for (const CsvTable::Row& row : table.rows) {
    PredictedCells cells(table, row, origin, wrong);
    MeasuredRowResult result;
    result.name = cells.text("name");
    result.row_class = cells.text("class");
    result.pipeline_depth =
        static_cast<int>(std::clamp<std::int64_t>(cells.whole("depth").value_or(1), 1, 1 << 20));
    result.measured_s = cells.number("measured_s");
    result.predicted_s = cells.number("predicted_s");
    result.measured_bytes = cells.whole("measured_bytes");
    result.predicted_bytes = cells.whole("predicted_bytes");
    report.rows.push_back(std::move(result));
  }
  if (!wrong.empty()) throw InputError(std::move(wrong));
  return report;
}

MeasuredFormat measured_format(std::string_view path, std::string_view text) {
  if (path.ends_with(".csv") || path.ends_with(".csv.gz")) {
    const auto columns = csv_cells(text.substr(0, text.find('\n')));
    if (is_run_table(columns)) return MeasuredFormat::runs;
    if (is_kernel_table(columns)) return MeasuredFormat::kernels;
    return is_predicted_table(columns) ? MeasuredFormat::predicted : MeasuredFormat::unknown;
  }
  if (is_simumax(text)) return MeasuredFormat::runs;
  if (is_recording(text)) return MeasuredFormat::recording;
  if (text.find("\"pipeline_list\"") != std::string_view::npos) return MeasuredFormat::sailor;
  return MeasuredFormat::unknown;
}

}  // namespace penstock
