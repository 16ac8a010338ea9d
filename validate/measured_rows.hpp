// SPDX-License-Identifier: Apache-2.0
// Published measurements beside predictions: tables that state, for many configurations, how long
// an iteration took and how much memory it used.
//
// There is one report per file. Parameters of the prediction that were fitted on measured rows are
// listed with the result, and these rows are marked: the errors of fitted rows say how well the
// model can be fitted, and only those of the other rows how well it predicts.
#pragma once

#include "base/statistics.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// One configuration, measured and predicted. Values that were not measured are none.
struct MeasuredRowResult {
  std::string name;        ///< the configuration, and its line where rows have no name of their own
  int pipeline_depth = 1;  ///< the depth under which `time_by_pp` counts the error; 0: none
  std::optional<double> measured_s, predicted_s;                ///< the time of an iteration
  std::optional<std::int64_t> measured_bytes, predicted_bytes;  ///< the peak of the fullest device
  bool fitted = false;  ///< a parameter of the prediction was fitted on this row
  std::optional<bool> finished = {}, predicted_finished = {};  ///< whether it ran; whether it fits
  std::string row_class = {};  ///< the class that the table states; may be empty

  /// Returns the error of the time, and that of the memory: (predicted - measured) / measured.
  std::optional<double> error() const;
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
  /// what the stacks of the predictions were fitted on, if anything
  std::vector<std::string> stacks = {};
  std::size_t left_out = 0;  ///< rows that should have been predicted and could not; notes say why
};

/// How many runs that finished or ran out of memory were predicted to fit or not.
struct FinishSummary {
  std::size_t finished = 0, stopped = 0;  ///< runs that did, and did not, finish
  std::size_t false_alarms = 0;           ///< runs that finished but were predicted not to fit
  std::size_t missed = 0;                 ///< runs that did not finish but were predicted to fit
  std::size_t count() const { return finished + stopped; }
  std::size_t right() const { return count() - false_alarms - missed; }
};
FinishSummary finish_summary(const MeasuredReport& report);

/// Which rows a summary counts.
enum class RowChoice { predicted, fitted, all };

struct MeasuredSummary {
  ErrorSummary time, memory;
  std::map<int, ErrorSummary> time_by_depth;
  std::map<std::string, ErrorSummary> time_by_class;  ///< over the rows that have a class
  ErrorSummary time_of_pipelines;                     ///< over the rows of depth > 1
};
MeasuredSummary summarize(const MeasuredReport& report, RowChoice choice);

/// What a file for `penstock validate` holds.
enum class MeasuredFormat {
  recording,  ///< a recording of our own runs (traces/recording.hpp)
  sailor,     ///< JSON of Sailor: one configuration with times and memory
  runs,       ///< a table of training runs, a scenario per row (validate/run_table.hpp)
  kernels,    ///< a table of kernels, a shape per row (validate/kernel_table.hpp)
  predicted,  ///< CSV of rows that were predicted elsewhere (`parse_predicted_rows`)
  unknown
};

/// Returns rows that were predicted elsewhere, by another tool or by fits that had not seen them.
/// The columns name, measured_s, predicted_s, [depth, class, measured_bytes, predicted_bytes] are
/// among those of `penstock validate --format csv`; empty cells are unknown. Throws InputError with
/// everything that is wrong.
MeasuredReport parse_predicted_rows(const std::string& text, const std::string& origin);

/// Returns what a file holds, by its name and content. `text` may be the beginning of the content.
MeasuredFormat measured_format(std::string_view path, std::string_view text);

}  // namespace penstock
