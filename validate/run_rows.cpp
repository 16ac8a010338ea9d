// SPDX-License-Identifier: Apache-2.0
#include "validate/run_rows.hpp"

#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "scenarios/documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

namespace penstock {
namespace {

/// Returns what nvidia-smi shows of a GPU whose job has `bytes` allocated at most.
std::int64_t of_whole_gpu(const DeviceSpec& device, std::int64_t bytes) {
  return std::llround(static_cast<double>(bytes) / (1 - device.allocator_slack)) +
         device.reserved_bytes;
}

/// Returns the peak of each stage's first replica; the others are alike.
std::vector<std::int64_t> peaks_of_stages(const Simulation& s) {
  const MemoryInput input = s.memory();
  std::vector<std::int64_t> peaks;
  for (int d = 0; d < s.program.placement.depth(); ++d)
    peaks.push_back(memory_over_time(input, d).use.total());
  return peaks;
}

void predict_memory(const Simulation& s, const RunRow& row, MeasuredRowResult& result) {
  const std::vector<std::int64_t> peaks = peaks_of_stages(s);
  const std::int64_t most = std::ranges::max(peaks);
  const DeviceSpec& device = s.scenario.cluster.device;
  const std::int64_t measured = row.peak_of == PeakOf::first_stage ? peaks.front() : most;
  result.predicted_bytes = row.of_whole_gpu ? of_whole_gpu(device, measured) : measured;
  result.finished = row.finished;
  if (device.capacity_bytes() > 0) result.predicted_finished = most <= device.capacity_bytes();
}

/// Returns the predicted TFLOP/s per GPU of the FLOPs that the row's stated rate counts.
double counted_tflops(const RunRow& row, const Rates& predicted) {
  const double full = predicted.tflops_per_gpu.value_or(0);
  if (!row.attention_by_half || predicted.mfu.value_or(0) <= 0) return full;
  return full * predicted.mfu_causal.value_or(*predicted.mfu) / *predicted.mfu;
}

/// Returns the first line of a refusal, which says what is wrong.
std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Returns why no row of a table has a prediction, each row's reason in a line.
std::vector<Diagnostic> nothing_predicted(const std::string& path,
                                          const std::vector<std::string>& notes) {
  std::vector<Diagnostic> reasons;
  for (const std::string& note : notes) reasons.push_back({{path, 0, 0}, note, "", 1});
  return reasons;
}

}  // namespace

MeasuredRowResult predict_row(const RunRow& row, Scenario scenario, EngineChoice engine) {
  const Simulation s = simulate(std::move(scenario), engine);
  MeasuredRowResult result;
  result.name = row.id;
  result.row_class = row.row_class;
  result.pipeline_depth = row.pipeline_depth;
  result.measured_s = row.measured_s;
  const Rates predicted = rates(s);
  result.predicted_s = predicted.iteration_time_s;
  // As many FLOPs at the measured rate.
  if (row.measured_tflops.value_or(0) > 0 && predicted.iteration_time_s)
    result.measured_s =
        *predicted.iteration_time_s * counted_tflops(row, predicted) / *row.measured_tflops;
  if (row.measured_bytes) result.measured_bytes = std::llround(*row.measured_bytes);
  predict_memory(s, row, result);
  return result;
}

MeasuredReport rows_report(const std::vector<RunRow>& rows, const std::string& path,
                           const RowOptions& options) {
  MeasuredReport report;
  report.file = path;
  report.format = "training runs";
  report.protocol = "each row as a scenario (--print N shows it), predicted as `simulate` does";
  const auto documents = std::make_shared<Documents>();
  std::set<std::string> fitted;
  for (const RunRow& row : rows) {
    if (!row.note.empty() && std::ranges::count(report.notes, row.note) == 0)
      report.notes.push_back(row.note);
    if (!row.left_out.empty()) {
      report.notes.push_back(fmt::format("{} left out: {}", row.id, row.left_out));
      if (row.unsupported) ++report.left_out;
      continue;
    }
    try {
      Scenario scenario =
          ScenarioTemplate(row.scenario, fmt::format("{}:{}", path, row.line), documents)
              .resolve(options.changes);
      if (!scenario.stack.fitted_on.empty())
        fitted.insert(fmt::format("stack '{}' was fitted on {}", scenario.stack.name,
                                  scenario.stack.fitted_on));
      report.rows.push_back(predict_row(row, std::move(scenario), options.engine));
    } catch (const InputError& error) {
      report.notes.push_back(fmt::format("{} left out: {}", row.id, first_line_of(error.what())));
      ++report.left_out;
    }
  }
  if (report.rows.empty()) throw InputError(nothing_predicted(path, report.notes));
  report.stacks.assign(fitted.begin(), fitted.end());
  return report;
}

std::string scenario_of_row(const std::vector<RunRow>& rows, const std::string& row) {
  const auto scenario_in = [&](const RunRow& chosen) {
    if (!chosen.left_out.empty())
      throw InputError("--print", fmt::format("{} has no scenario: {}", row, chosen.left_out));
    return chosen.scenario;
  };
  const auto named = std::ranges::find(rows, row, &RunRow::id);
  if (named != rows.end()) return scenario_in(*named);
  const auto number = parse_number<std::size_t>(row).value_or(0);
  if (number >= 1 && number <= rows.size()) return scenario_in(rows[number - 1]);
  std::vector<std::string> ids;
  for (const RunRow& known : rows) ids.push_back(known.id);
  throw InputError("--print", fmt::format("must be a row from 1 to {}, or its id, got '{}'{}",
                                          rows.size(), row, did_you_mean(row, ids)));
}

}  // namespace penstock
