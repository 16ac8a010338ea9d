// SPDX-License-Identifier: Apache-2.0
// Rows of a sweep: the numbers of `simulate --format csv`, whatever is wrong with a point.
#include "sweep/evaluate.hpp"

#include "sweep/messages.hpp"
#include "tests/rig.hpp"
#include "sweep/evaluate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

namespace penstock::evaluate_test {
namespace {

namespace fs = std::filesystem;

std::string shipped(const std::string& name) {
  return (fs::path(data_folder()) / "scenarios" / (name + ".yaml")).string();
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\n') {
      cells.back() += c;
    }
  }
  return cells;
}

using Cells = std::map<std::string, std::string>;

/// `simulate --format csv`, by column.
Cells simulated(const std::string& file) {
  const std::string command = std::string("'") + std::getenv("PENSTOCK_BINARY") + "' simulate '" +
                              file + "' --engine auto --format csv";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::array<char, 4096> part;
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  pclose(pipe);
  std::istringstream lines(text);
  std::string header, values;
  std::getline(lines, header);
  std::getline(lines, values);
  const auto keys = cells_of(header), cells = cells_of(values);
  Cells row;
  for (std::size_t c = 0; c < keys.size() && c < cells.size(); ++c) row[keys[c]] = cells[c];
  return row;
}

void expect_texts(const Row& row, const Cells& expected) {
  EXPECT_EQ(row.scenario, expected.at("scenario"));
  EXPECT_EQ(row.engine, expected.at("engine"));
  EXPECT_EQ(row.schedule, expected.at("schedule"));
  EXPECT_EQ(row.transfers, expected.at("transfers"));
  EXPECT_EQ(row.width, expected.at("width"));
  EXPECT_EQ(row.replication, expected.at("replication"));
  EXPECT_EQ(row.why, expected.at("infeasible_because"));
  // Where memory is not known, nothing says that it does not fit.
  EXPECT_EQ(row.status == Row::Status::ok, expected.at("feasible") != "false");
}

void expect_measures(const Row& row, const Cells& expected) {
  for (std::size_t m = 0; m < measures().size(); ++m) {
    const auto cell = expected.find(measures()[m].name);
    if (cell == expected.end()) continue;
    if (cell->second.empty()) {
      EXPECT_TRUE(std::isnan(row.numbers[m])) << measures()[m].name;
    } else {
      EXPECT_EQ(row.numbers[m], std::strtod(cell->second.c_str(), nullptr)) << measures()[m].name;
    }
  }
}

class RowOf : public testing::TestWithParam<const char*> {};

TEST_P(RowOf, EqualsTheCsvOfSimulate) {
  ASSERT_NE(std::getenv("PENSTOCK_BINARY"), nullptr) << "names the penstock to compare with";
  const Cells expected = simulated(shipped(GetParam()));
  ASSERT_FALSE(expected.empty()) << std::getenv("PENSTOCK_BINARY") << " does not simulate";
  const Evaluator evaluator({shipped(GetParam())}, {}, EngineChoice::automatic);
  const Row row = evaluator.row({});
  expect_texts(row, expected);
  expect_measures(row, expected);
}

INSTANTIATE_TEST_SUITE_P(Shipped, RowOf,
                         testing::Values("gpt-1.3b-split", "gpt-2.2b-2bw", "gpt-2.2b-gpipe",
                                         "gpt-2.2b-mixed", "gpt-2.2b-pipedream", "gpt-355m-asp",
                                         "gpt-355m-data-parallel", "gpt-355m-uneven",
                                         "perturbed-devices", "perturbed-links", "small-1f1b",
                                         "small-asp", "small-chimera", "small-dualpipev",
                                         "small-gpipe", "small-interleaved-1f1b", "small-pipedream",
                                         "small-timeprest", "small-torchgpipe", "small-zb-h1"));

Row row_at(const std::vector<Override>& changes) {
  const Evaluator evaluator({shipped("gpt-2.2b-2bw")}, {}, EngineChoice::automatic);
  return evaluator.row({7, 0, changes});
}

TEST(Evaluator, AMistakeIsARowWithItsReason) {
  const Row row = row_at({{"pipeline.stages", "four"}});
  EXPECT_EQ(row.status, Row::Status::refused);
  EXPECT_EQ(row.point, 7U);
  EXPECT_EQ(row.scenario, "gpt-2.2b-2bw");
  EXPECT_EQ(row.why, "'stages' must be an integer >= 1, got 'four'");
  EXPECT_TRUE(std::isnan(row.numbers[0]));
}

TEST(Evaluator, WhatNeedsMoreDevicesThanThereAreSaysHowManyThereAre) {
  const Row row = row_at({{"pipeline.width", "1000"}});
  EXPECT_EQ(row.status, Row::Status::refused);
  EXPECT_EQ(row.too_few_devices, 8) << row.why;
  EXPECT_EQ(row_at({{"pipeline.stages", "four"}}).too_few_devices, 0);
}

TEST(Evaluator, WhatDoesNotFitIsSimulatedAndSaysWhy) {
  const Evaluator evaluator({shipped("small-1f1b")}, {}, EngineChoice::exact);
  const Row fits = evaluator.row(Point{});
  EXPECT_EQ(fits.status, Row::Status::ok) << fits.why;
  const Row row =
      evaluator.row({0, 0, {{"model.parameters", "900 GB"}, {"cluster.device", "A100-40"}}});
  EXPECT_EQ(row.status, Row::Status::infeasible) << row.why;
  EXPECT_TRUE(row.why.starts_with("device 0 needs")) << row.why;
  EXPECT_EQ(row.why.find('\n'), std::string::npos);
}

TEST(Evaluator, WhatWouldFitWithOtherLayersSaysWhich) {
  const Evaluator evaluator({shipped("llama-3-70b-h100")}, {{"stack", "none"}},
                            EngineChoice::automatic);
  const Point balanced{0, 0, {{"pipeline.split", "balanced"}}};
  EXPECT_EQ(evaluator.row(balanced).status, Row::Status::infeasible);
  EXPECT_EQ(evaluator.fitting_split(balanced), "[18, 21, 21, 20]");
  const Point listed{0, 0, {{"pipeline.split", "[20, 20, 20, 20]"}}};
  EXPECT_EQ(evaluator.row(listed).status, Row::Status::infeasible);
  EXPECT_EQ(evaluator.fitting_split(listed), std::nullopt) << "somebody wants these layers";
}

TEST(Evaluator, OverridesOfTheSweepComeBeforeThoseOfThePoint) {
  const Evaluator evaluator({shipped("small-1f1b"), shipped("small-gpipe")},
                            {{"pipeline.microbatches", "3"}}, EngineChoice::exact);
  EXPECT_EQ(evaluator.row({0, 0, {}}).numbers[2], 3);
  const Row row = evaluator.row({5, 1, {{"pipeline.microbatches", "6"}}});
  EXPECT_EQ(row.numbers[2], 6);
  EXPECT_EQ(row.schedule, "gpipe");
  EXPECT_EQ(row.point, 5U);
}

/// Of every schedule, with costs that differ, and one that cannot run.
std::vector<Point> points_that_share_programs() {
  std::vector<Point> points;
  for (const char* schedule : {"gpipe", "1f1b", "pipedream-2bw", "interleaved-1f1b", "zb-h1"}) {
    for (const char* transfers : {"overlapped", "coupled"}) {
      for (const char* latency : {"0 s", "0.25 s"}) {
        points.push_back({points.size(),
                          0,
                          {{"schedule", schedule},
                           {"transfers", transfers},
                           {"cluster.link.latency", latency}}});
      }
    }
  }
  return points;
}

TEST(Evaluator, ARowIsTheSameWhateverWasEvaluatedBefore) {
  const std::vector<std::string> files{shipped("small-1f1b")};
  const Evaluator evaluator(files, {}, EngineChoice::exact);
  int refused = 0;
  for (int round = 0; round < 2; ++round) {
    for (const Point& point : points_that_share_programs()) {
      const Row row = evaluator.row(point);
      const Row alone = Evaluator(files, {}, EngineChoice::exact).row(point);
      EXPECT_EQ(encode(row), encode(alone)) << point.number << ": " << row.why;
      if (row.status == Row::Status::refused) ++refused;
    }
  }
  EXPECT_EQ(refused, 4);  // interleaved, coupled: both latencies, both rounds
}

TEST(Evaluator, ThrowsWhenAFileCannotBeRead) {
  EXPECT_THROW(Evaluator({"no-such-file.yaml"}, {}, EngineChoice::exact), InputError);
}

}  // namespace
}  // namespace penstock::evaluate_test
