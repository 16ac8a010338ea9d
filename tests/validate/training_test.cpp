// Published iteration times: the reader's messages, the fits on runs made by the model itself.
#include "base/error.hpp"
#include "validate/calibration.hpp"
#include "validate/measured_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace penstock::training_test {
namespace {

const std::string kHeader =
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor "
    "parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n";

std::string errors_of(const std::string& text) {
  try {
    parse_training_runs(text, "runs.csv");
  } catch (const InputError& error) {
    std::string all;
    for (const Diagnostic& d : error.diagnostics())
      all += std::to_string(d.where.line) + ":" + std::to_string(d.where.column) + ": " +
             d.message + "\n";
    return all;
  }
  return "none";
}

TEST(TrainingRuns, AreReadByTheNamesOfTheirColumns) {
  const auto runs = parse_training_runs(
      "iteration time (ms),# GPUs,Parameters (billion),global batch,micro batch,hidden size,"
      "attention heads,# layers,sequence length,tensor parallelism,data parallelism,pipeline "
      "parallelism\r\n 250.5 ,8,3.6,32,4,1024,16,24,1024,2,2,2\r\n\r\n",
      "runs.csv");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_DOUBLE_EQ(runs[0].measured_s, 0.2505);
  EXPECT_EQ(runs[0].microbatches(), 4);
  EXPECT_EQ(runs[0].name(), "line 2: 8 GPUs, h 1024, 24 layers, b 4, t 2, d 2, p 2, m 4");
}

TEST(TrainingRuns, WrongCellsAreNamedAllAtOnce) {
  EXPECT_EQ(errors_of(kHeader + "8,32,4,1024,16,24,1024,2,2,2,220\n"
                                "8,32,4,many,16,24,1024,2,2,2,-1\n"
                                "8,32,4,1024,16,24,1024,2,2,1,220\n"
                                "8,30,4,1024,16,24,1024,2,2,2,220\n"
                                "8,32,4,1024,16,1.5,1024,2,2,2\n"),
            "3:8: 'hidden size' must be an integer from 1 to 16777216, got 'many'\n"
            "3:30: 'iteration time (ms)' must be a number of milliseconds > 0, got '-1'\n"
            "4:1: tensor x data x pipeline parallelism is 4, not the 8 GPUs of the row\n"
            "5:3: the global batch must be a multiple of micro batch x data parallelism, 8; got "
            "30\n"
            "6:29: has 10 cells, the header names 11 columns\n");
}

TEST(TrainingRuns, ImpossibleShapesAreRefused) {
  EXPECT_EQ(errors_of(kHeader + "4,32,4,1024,16,2,1024,1,1,4,220\n"),
            "2:16: 2 layers cannot be spread over 4 stages\n");
  EXPECT_EQ(errors_of(kHeader + "2,16000000,1,1024,16,2,1024,1,1,2,220\n"),
            "2:33: at most 4096 stages and 4194304 microbatches x stages; got 2 and 32000000\n");
}

TEST(TrainingRuns, ManyWrongRowsAreRefusedAndTheFirstAreNamed) {
  std::string rows = kHeader;
  for (int i = 0; i < 40; ++i) rows += "8,32,0,1024,16,24,1024,2,0,2,220\n";
  EXPECT_EQ(std::ranges::count(errors_of(rows), '\n'), 20);
}

TEST(TrainingRuns, MissingColumnsAreNamedWithASuggestion) {
  std::string header = kHeader;
  header.replace(header.find("micro batch"), 11, "microbatch");
  EXPECT_EQ(errors_of(header + "8,32,4,1024,16,24,1024,2,2,2,220\n"),
            "1:1: column 'micro batch' is missing; did you mean 'microbatch'?\n");
  EXPECT_EQ(errors_of(""), "0:0: is empty; its first line must name the columns\n");
  EXPECT_EQ(errors_of(kHeader), "0:0: holds no row below its header\n");
}

TEST(MeasuredFormat, IsToldByNameAndContent) {
  EXPECT_EQ(measured_format("a.csv", kHeader), MeasuredFormat::iteration_times);
  EXPECT_EQ(measured_format("a.csv", "x,y\n"), MeasuredFormat::unknown);
  EXPECT_EQ(measured_format("a.json", "{\"zone\": 1, \"pipeline_list\": []}"),
            MeasuredFormat::sailor);
}

TEST(RandomParts, AreTheSameForASeedAndEquallyLarge) {
  const auto parts = random_parts(101, 10, 7);
  EXPECT_EQ(parts, random_parts(101, 10, 7));
  EXPECT_NE(parts, random_parts(101, 10, 8));
  for (int part = 1; part < 10; ++part) EXPECT_EQ(std::ranges::count(parts, part), 10);
  EXPECT_EQ(random_parts(8, 2, 1), (std::vector<int>{0, 0, 1, 1, 1, 1, 0, 0}));
}

TEST(LeastSquares, FindsWhatExplainsTheRowsAndLeavesTheRest) {
  const std::vector<FitRange> ranges = {{1, 0.01, 100}, {1, 0.01, 100}, {5, 0.01, 100}};
  const Residuals line = [](const std::vector<double>& x) {
    std::vector<double> out;
    for (int i = 1; i <= 20; ++i)
      out.push_back(std::log((x[0] + x[1] * i) / (i == 7 ? 50 : 3.0 + 0.5 * i)));  // 7: disturbed
    return out;
  };
  const auto x = fit_least_squares(line, ranges, {1, 1, 5}, {0.001, 1e-5, 100});
  EXPECT_NEAR(x[0], 3, 0.01);
  EXPECT_NEAR(x[1], 0.5, 0.002);
  EXPECT_DOUBLE_EQ(x[2], 5);
}

TEST(LeastSquares, StaysWithinItsRanges) {
  const Residuals two = [](const std::vector<double>& x) {
    return std::vector<double>{std::log(x[0] / 7), std::log(x[0] * x[1] / 21)};
  };
  const auto x = fit_least_squares(two, {{1, 0.1, 6}, {1, 0.1, 100}}, {1, 1}, {1, 1e-5, 100});
  EXPECT_NEAR(x[0], 6, 1e-9);
  EXPECT_NEAR(x[1], 3.5, 1e-3);
}

TrainingRun run_of(int micro, int hidden, int layers, int tensor, int data, int pipeline, int m) {
  TrainingRun run;
  run.gpus = tensor * data * pipeline;
  run.micro_batch = micro;
  run.global_batch = m * micro * data;
  run.hidden = hidden;
  run.heads = 16;
  run.layers = layers;
  run.sequence = 1024;
  run.tensor = tensor;
  run.data = data;
  run.pipeline = pipeline;
  return run;
}

TEST(TrainingModel, OneStageRunsItsMicrobatchesOneAfterTheOther) {
  TrainingModel model;
  const auto parameters = TrainingParameters::nominal();
  const auto seconds = [&](int m) {
    return model.iteration_s(run_of(2, 2048, 16, 2, 1, 1, m), parameters);
  };
  EXPECT_NEAR(seconds(9) - seconds(5), 4 * (seconds(2) - seconds(1)), 1e-9);
}

TEST(TrainingModel, HostTimeIsTheFloorOfSmallLayers) {
  TrainingModel model;
  const auto parameters = TrainingParameters::nominal();
  const auto per_layer = [&](int hidden) {
    return (model.iteration_s(run_of(1, hidden, 32, 1, 1, 1, 1), parameters) -
            model.iteration_s(run_of(1, hidden, 16, 1, 1, 1, 1), parameters)) /
           16;
  };
  // 4 launches of 0.8 ms; the device adds little below, and all of it above.
  EXPECT_NEAR(per_layer(128), 3.2e-3, 0.02 * 3.2e-3);
  EXPECT_GT(per_layer(4096), 2 * 3.2e-3);
}

TEST(TrainingModel, ReplicasOfANodeShareItsNetwork) {
  TrainingModel model;
  const auto parameters = TrainingParameters::nominal();
  // Twice the tensor parallelism halves each replica's gradients and doubles the groups of a node:
  // the reduction takes as long. Same tensor group, one replica: what is not reduction.
  const auto reduction = [&](int tensor) {
    return model.iteration_s(run_of(1, 4096, 16, tensor, 32, 1, 1), parameters) -
           model.iteration_s(run_of(1, 4096, 16, tensor, 1, 1, 1), parameters);
  };
  EXPECT_NEAR(reduction(4), reduction(2), 1e-9);
}

/// Runs that the model itself made, with parameters unlike the nominal ones; `odd` shapes' layers
/// take this times as long.
std::vector<TrainingRun> synthetic_runs(TrainingModel& model, double odd = 1) {
  auto parameters = TrainingParameters::nominal();
  for (std::size_t i = 0; i < kTrainingParameters; ++i) {
    const auto& spec = training_parameters()[i];
    parameters.values[i] =
        std::clamp(spec.start * (i % 2 == 0 ? 1.2 : 0.8), spec.lowest, spec.highest);
  }
  std::vector<TrainingRun> runs;
  for (const int hidden : {1024, 2048})
    for (const int micro : {1, 4})
      for (const int tensor : {1, 2, 4})
        for (const int pipeline : {1, 2, 4})
          for (const int m : {2, 8}) {
            runs.push_back(run_of(micro, hidden, 16, tensor, pipeline == 1 ? 2 : 1, pipeline, m));
            const ShapeFactors factors{tensor == 2 && micro == 4 ? odd : 1, 1};
            runs.back().measured_s = model.iteration_s(runs.back(), parameters, factors);
          }
  return runs;
}

double largest_error(TrainingModel& model, const std::vector<TrainingRun>& runs,
                     const TrainingCalibration& calibration) {
  double largest = 0;
  for (const TrainingRun& run : runs) {
    const double s = model.iteration_s(run, calibration.parameters, calibration.factors(run));
    largest = std::max(largest, std::abs(s / run.measured_s - 1));
  }
  return largest;
}

TEST(Calibration, RecoversTheRunsOfAModelOfItsOwn) {
  TrainingModel model;
  const auto runs = synthetic_runs(model);
  const TrainingCalibration nominal{"", TrainingParameters::nominal(), {}, {}};
  EXPECT_GT(largest_error(model, runs, nominal), 0.1);
  EXPECT_LT(largest_error(model, runs, fit_training(model, runs, false)), 0.01);
}

TEST(Calibration, ATableTakesUpWhatTheShapesHaveOfTheirOwn) {
  TrainingModel model;
  const auto runs = synthetic_runs(model, 0.8);
  EXPECT_GT(largest_error(model, runs, fit_training(model, runs, false)), 0.05);
  EXPECT_LT(largest_error(model, runs, fit_training(model, runs, true)), 0.02);
}

TEST(Calibration, IsTheSameAfterAFile) {
  TrainingModel model;
  TrainingCalibration calibration = fit_training(model, synthetic_runs(model), false);
  calibration.name = "made up";
  calibration.shapes[{1024, 512, 16, 2, 4}] = {1.25, 0.5};
  const auto again = parse_training_calibration(to_json_text(calibration), "c.json");
  EXPECT_EQ(again.name, "made up");
  EXPECT_EQ(again.parameters.values, calibration.parameters.values);
  EXPECT_EQ(again.fitted_on, calibration.fitted_on);
  EXPECT_DOUBLE_EQ(again.shapes.at({1024, 512, 16, 2, 4}).layer, 1.25);
  EXPECT_DOUBLE_EQ(again.shapes.at({1024, 512, 16, 2, 4}).head, 0.5);
}

TEST(Calibration, OtherFilesAreRefused) {
  for (const char* text : {"", "[]", "{}", "{\"format\": \"penstock training calibration\"}"})
    EXPECT_THROW(parse_training_calibration(text, "c.json"), InputError) << text;
  TrainingModel model;
  TrainingCalibration negative;
  negative.parameters.values[0] = -1;
  EXPECT_THROW(parse_training_calibration(to_json_text(negative), "c.json"), InputError);
}

TEST(MeasuredSummary, RowsThatWereFittedOnDoNotCountAsPredicted) {
  MeasuredReport report;
  report.rows = {{"a", 1, 10.0, 11.0, {}, {}, false, ""},
                 {"b", 4, 10.0, 8.0, 100, 90, false, ""},
                 {"c", 4, 10.0, 15.0, {}, {}, true, ""}};
  const MeasuredSummary s = summarize(report, RowChoice::predicted);
  EXPECT_EQ(s.time.n, 2U);
  EXPECT_NEAR(s.time.mape, 0.15, 1e-12);
  EXPECT_NEAR(s.time_of_pipelines.bias, -0.2, 1e-12);
  EXPECT_NEAR(s.memory.bias, -0.1, 1e-12);
  EXPECT_EQ(s.time_by_depth.at(4).n, 1U);
  EXPECT_NEAR(summarize(report, RowChoice::calibrated).time.max, 0.5, 1e-12);
  EXPECT_EQ(summarize(report, RowChoice::all).time.n, 3U);
}

}  // namespace
}  // namespace penstock::training_test
