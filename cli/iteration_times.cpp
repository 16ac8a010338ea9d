#include "cli/iteration_times.hpp"

#include "base/error.hpp"
#include "cli/measured_output.hpp"
#include "cli/output.hpp"
#include "scenarios/scenario.hpp"
#include "traces/byte_sink.hpp"
#include "validate/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr int kNodeGpus = 8;
constexpr int kFolds = 10;
constexpr const char* kTimesFormat =
    "iteration times of tensor x data x pipeline parallel training";

/// A cluster's runs: of one node, or of many.
struct ClusterName {
  const char* name;
  const char* file;
  bool one_node;
};
constexpr ClusterName kNode = {"A100, one node", "megatron-a100-node.json", true};
constexpr ClusterName kNodes = {"A100, many nodes", "megatron-a100-nodes.json", false};

bool in_one_node(const TrainingRun& run) { return run.gpus <= kNodeGpus; }

TrainingCalibration shipped(const ClusterName& cluster, const Arguments& arguments) {
  const std::string path = arguments.flag("calibration")
                               ? arguments.value("calibration")
                               : data_folder() + "/models/calibrations/" + cluster.file;
  return parse_training_calibration(read_file(path), path);
}

std::string shape_note(const TrainingRun& run, const TrainingCalibration& calibration) {
  if (calibration.shapes.empty() || calibration.shapes.contains(shape_of(run))) return "";
  return "; its layer shape is not in the table";
}

/// What the rows of its kind suggest: guesses, discussed in docs/validation.md.
std::string hypothesis(const TrainingRun& run, const TrainingCalibration& calibration,
                       double error) {
  std::string why;
  if (in_one_node(run) && error > 0)
    why = "the host launches this shape's kernels faster than its neighbours'";
  else if (in_one_node(run))
    why = run.tensor == kNodeGpus ? "small all-reduces of 8 GPUs wait for the slowest host"
                                  : "the host launches this shape's kernels more slowly";
  else if (error < 0 && run.tensor < kNodeGpus)
    why =
        "slower per layer than its model with more tensor parallelism: tensor groups not on "
        "NVLink, or a disturbed node";
  else
    why = "not understood";
  return why + shape_note(run, calibration);
}

MeasuredRowResult row_of(const TrainingRun& run, const TrainingCalibration& calibration,
                         TrainingModel& model) {
  MeasuredRowResult row;
  row.name = run.name();
  row.pipeline_depth = run.pipeline;
  row.measured_s = run.measured_s;
  row.predicted_s = model.iteration_s(run, calibration.parameters, calibration.factors(run));
  row.calibrated = calibration.fitted_on.contains(run.fingerprint());
  const double error = row.error().value_or(0);
  if (std::abs(error) > kLargeError) row.hypothesis = hypothesis(run, calibration, error);
  return row;
}

void list_parameters(MeasuredReport& report, const TrainingCalibration& calibration) {
  for (std::size_t i = 0; i < kTrainingParameters; ++i) {
    const auto& spec = training_parameters()[i];
    report.parameters.push_back(
        {spec.name, calibration.parameters.values[i], spec.unit, spec.meaning});
  }
  report.table_entries = 2 * calibration.shapes.size();
}

/// One cluster's runs under one protocol.
class Protocol {
 public:
  Protocol(std::vector<TrainingRun> runs, const ClusterName& cluster, const Arguments& arguments)
      : runs_(std::move(runs)),
        cluster_(cluster),
        arguments_(arguments),
        with_table_(!arguments.flag("physical")),
        fit_(arguments.value("fit", "auto")) {
    if (fit_ == "auto") choose_fit();
  }

  MeasuredReport report() {
    if (fit_ == "folds") {
      in_folds();
    } else {
      const TrainingCalibration calibration = fit_ == "none" ? given() : fitted();
      list_parameters(report_, calibration);
      for (const TrainingRun& run : runs_) add(run, calibration);
      if (arguments_.flag("save-calibration")) save(calibration);
    }
    report_.format = fmt::format("{} ({})", kTimesFormat, cluster_.name);
    return std::move(report_);
  }

 private:
  void add(const TrainingRun& run, const TrainingCalibration& calibration) {
    report_.rows.push_back(row_of(run, calibration, model_));
  }
  std::string with_what() const {
    return with_table_ ? "a table of layer shapes over 12 shared parameters"
                       : "12 shared parameters, no table";
  }

  std::size_t seen_by(const TrainingCalibration& calibration) const {
    return static_cast<std::size_t>(std::ranges::count_if(runs_, [&](const TrainingRun& run) {
      return calibration.fitted_on.contains(run.fingerprint());
    }));
  }
  std::string rows_text(std::size_t seen) const {
    return fmt::format("{} of {}", seen, counted(static_cast<std::int64_t>(runs_.size()), "row"));
  }

  /// A calibration that has seen every row would only show how well it was fitted.
  void choose_fit() {
    const std::size_t seen = seen_by(shipped(cluster_, arguments_));
    fit_ = seen < runs_.size() ? "none" : "folds";
    if (fit_ == "folds")
      report_.notes.push_back(
          fmt::format("the calibration was fitted on {}; tested by cross-validation "
                      "instead (--fit none uses it as it is)",
                      rows_text(seen)));
  }

  TrainingCalibration given() {
    TrainingCalibration calibration = shipped(cluster_, arguments_);
    if (!with_table_) calibration.shapes.clear();
    report_.protocol = fmt::format("calibration '{}' as it is: {}", calibration.name, with_what());
    const std::size_t seen = seen_by(calibration);
    if (seen > 0)
      report_.notes.push_back(fmt::format(
          "{} are among those that this calibration was fitted on: their errors are those of a "
          "fit. --fit pp1, half or folds tests on others",
          rows_text(seen)));
    return calibration;
  }

  TrainingCalibration fitted() {
    std::vector<TrainingRun> chosen;
    if (fit_ == "pp1") {
      std::ranges::copy_if(runs_, std::back_inserter(chosen),
                           [](const TrainingRun& run) { return run.pipeline == 1; });
      report_.protocol = "fitted on the rows of pipeline depth 1, the others predicted: ";
    } else if (fit_ == "half") {
      const auto part = random_parts(runs_.size(), 2, seed_of(arguments_));
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (part[i] == 0) chosen.push_back(runs_[i]);
      }
      report_.protocol =
          fmt::format("fitted on a random half of the rows (seed {}), the others predicted: ",
                      seed_of(arguments_));
    } else {
      chosen = runs_;
      report_.protocol = "fitted on all rows: ";
    }
    report_.protocol += with_what();
    if (chosen.empty()) throw InputError("--fit", "leaves no row to fit on");
    return fit_training(model_, chosen, with_table_);
  }

  /// Each row is predicted by a fit on the nine tenths it is not in; parameters are those of a fit
  /// on all.
  void in_folds() {
    const auto part = random_parts(runs_.size(), kFolds, seed_of(arguments_));
    report_.protocol = fmt::format(
        "{}-fold cross-validation (seed {}), every row predicted by a fit on the other "
        "folds: {}; the values are of a fit on all rows",
        kFolds, seed_of(arguments_), with_what());
    report_.rows.resize(runs_.size());
    for (int fold = 0; fold < kFolds; ++fold) {
      std::vector<TrainingRun> others;
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (part[i] != fold) others.push_back(runs_[i]);
      }
      if (others.empty()) throw InputError("--fit", "folds needs more than one row");
      const TrainingCalibration calibration = fit_training(model_, others, with_table_);
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (part[i] != fold) continue;
        report_.rows[i] = row_of(runs_[i], calibration, model_);
        report_.rows[i].calibrated = false;  // a repeated measurement may be in the other folds
      }
    }
    list_parameters(report_, fit_training(model_, runs_, with_table_));
  }

  void save(TrainingCalibration calibration) const {
    calibration.name = cluster_.name;
    write_file(arguments_.value("save-calibration"), to_json_text(calibration));
  }

  std::vector<TrainingRun> runs_;
  ClusterName cluster_;
  const Arguments& arguments_;
  bool with_table_;
  std::string fit_;
  TrainingModel model_;
  MeasuredReport report_;
};

}  // namespace

std::vector<MeasuredReport> iteration_times_reports(const std::string& path,
                                                    const Arguments& arguments) {
  const auto runs = parse_training_runs(read_file(path), path);
  std::vector<MeasuredReport> reports;
  for (const ClusterName& cluster : {kNode, kNodes}) {
    std::vector<TrainingRun> of_cluster;
    std::ranges::copy_if(runs, std::back_inserter(of_cluster), [&](const TrainingRun& run) {
      return in_one_node(run) == cluster.one_node;
    });
    if (of_cluster.empty()) continue;
    reports.push_back(Protocol(std::move(of_cluster), cluster, arguments).report());
    reports.back().file = path;
  }
  return reports;
}

}  // namespace penstock
