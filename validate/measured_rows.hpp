// SPDX-License-Identifier: Apache-2.0
// Published measurements: tables in which somebody states how long an iteration took (and how much
// memory it used) for each of many configurations, beside what is predicted for them.
//
// One report per file. A prediction has parameters; those that were fitted on measured rows are
// listed with the result, and the rows they were fitted on are marked: their errors say how well
// the model can be bent to them, only the others' how well it predicts.
#pragma once

#include "base/statistics.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// One configuration, measured and predicted. What was not measured is left out.
struct MeasuredRowResult {
  std::string name;        ///< the configuration, and its line where rows have no name of their own
  int pipeline_depth = 1;  ///< the error is counted under it in `time_by_pp`; 0: it has none
  std::optional<double> measured_s, predicted_s;                ///< of an iteration
  std::optional<std::int64_t> measured_bytes, predicted_bytes;  ///< peak of the fullest device
  bool fitted = false;  ///< a parameter of the prediction was fitted on this row
  std::optional<bool> finished = {}, predicted_finished = {};  ///< did it run; does it fit
  std::string row_class = {};  ///< as the table calls it; may be empty

  std::optional<double> error() const;  ///< of the time
  std::optional<double> memory_error() const;
};

/// A number the prediction rests on.
struct ReportedParameter {
  std::string name;
  double value = 0;
  std::string unit;     ///< "s", "bytes/s", "" for a share
  std::string meaning;  ///< half a sentence
};

/// A file of measurements with its predictions under one protocol.
struct MeasuredReport {
  std::string file;
  std::string format;    ///< what the file is, e.g. "vTrain iteration times"
  std::string protocol;  ///< one sentence: what was fitted on which rows, and what was predicted
  std::vector<ReportedParameter> parameters;
  std::vector<MeasuredRowResult> rows;
  std::vector<std::string> notes;
  std::vector<std::string> stacks =
      {};                    ///< what the stacks of the predictions were fitted on, if anything
  std::size_t left_out = 0;  ///< rows that should have been predicted and could not; notes say why
};

/// Of runs that are known to have finished or not, which of them were said to fit the memory.
struct FinishSummary {
  std::size_t finished = 0, stopped = 0;     ///< measured
  std::size_t false_alarms = 0, missed = 0;  ///< finished but said not to fit; the other way round
  std::size_t count() const { return finished + stopped; }
  std::size_t right() const { return count() - false_alarms - missed; }
};
FinishSummary finish_summary(const MeasuredReport& report);

/// Which rows a summary counts.
enum class RowChoice { predicted, fitted, all };

struct MeasuredSummary {
  ErrorSummary time, memory;
  std::map<int, ErrorSummary> time_by_depth;
  std::map<std::string, ErrorSummary> time_by_class;  ///< of rows that have one
  ErrorSummary time_of_pipelines;                     ///< rows of depth > 1
};
MeasuredSummary summarize(const MeasuredReport& report, RowChoice choice);

/// What a file that `penstock validate` is given holds.
enum class MeasuredFormat {
  recording,  ///< of our own runs (traces/recording.hpp)
  sailor,     ///< JSON of Sailor: one configuration with times and memory
  runs,       ///< training runs, a scenario per row (validate/run_table.hpp)
  kernels,    ///< kernels, a shape per row (validate/kernel_table.hpp)
  predicted,  ///< CSV of rows that somebody predicted (`parse_predicted_rows`)
  unknown
};

/// Rows that were predicted elsewhere, by another tool or by fits that had not seen them: columns
/// name, measured_s, predicted_s, [depth, class, measured_bytes, predicted_bytes], which are among
/// those of `penstock validate --format csv`. Empty cells are unknown. Throws InputError with
/// everything that is wrong.
MeasuredReport parse_predicted_rows(const std::string& text, const std::string& origin);

/// Tells by name and content. `text` may be the file's beginning alone.
MeasuredFormat measured_format(std::string_view path, std::string_view text);

}  // namespace penstock
