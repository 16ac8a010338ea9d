#include "validate/measured_rows.hpp"

#include "traces/recording.hpp"
#include "validate/run_table.hpp"

namespace penstock {
namespace {

bool chosen(const MeasuredRowResult& row, RowChoice choice) {
  return choice == RowChoice::all || row.calibrated == (choice == RowChoice::calibrated);
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
  for (const MeasuredRowResult& row : report.rows) {
    if (!chosen(row, choice)) continue;
    if (const auto e = row.memory_error()) memory.push_back(*e);
    const auto e = row.error();
    if (!e) continue;
    time.push_back(*e);
    by_depth[row.pipeline_depth].push_back(*e);
    if (row.pipeline_depth > 1) pipelines.push_back(*e);
  }
  MeasuredSummary out{
      summarize_errors(time), summarize_errors(memory), {}, summarize_errors(pipelines)};
  for (const auto& [depth, errors] : by_depth) out.time_by_depth[depth] = summarize_errors(errors);
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

MeasuredFormat measured_format(std::string_view path, std::string_view text) {
  if (path.ends_with(".csv")) {
    const std::string_view header = text.substr(0, text.find('\n'));
    return is_run_table(csv_cells(header)) ? MeasuredFormat::runs : MeasuredFormat::unknown;
  }
  if (is_recording(text)) return MeasuredFormat::recording;
  if (text.find("\"pipeline_list\"") != std::string_view::npos) return MeasuredFormat::sailor;
  return MeasuredFormat::unknown;
}

}  // namespace penstock
