// SPDX-License-Identifier: Apache-2.0
// What is shown of a sweep: the best rows, the counts with their reasons, the pictures.
#include "base/error.hpp"
#include "base/table.hpp"
#include "sweep/overview.hpp"
#include "tests/sweep/space_rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace penstock::overview_test {
namespace {

const Canvas kPlain{120, false, false};
const Canvas kBlocks{120, false, true};

Overview overview_of(const SpaceRig& rig, const TableOptions& options = {}) {
  Overview overview(rig.space, rig.columns, options);
  for (std::uint64_t n = 0; n < rig.space.size(); ++n)
    overview.add_row(rig.columns.cells(made_up_row(n)));
  return overview;
}

TEST(Overview, CountsWhatBecameOfPointsWithTheMostFrequentReason) {
  const SpaceRig rig;
  EXPECT_EQ(overview_of(rig).counts(),
            "20 points: 17 ok, 2 infeasible (because: device 6 needs 92.4 GiB, has 80.0 GiB), 1 "
            "refused (because: 48 layers do not divide evenly into 5 stages), 0 failed");
}

TEST(Overview, WhatWouldFitWithOtherLayersIsSaidBelowTheTable) {
  const SpaceRig rig;
  Overview overview(rig.space, rig.columns, {});
  for (const std::uint64_t point : {0, 1, 2}) {
    Row row = made_up_row(point);
    if (point > 0) row.status = Row::Status::infeasible;
    if (point > 0) row.why = "device 0 needs 9 GiB";
    if (point > 0) row.numbers[8] = 2.0 * static_cast<double>(point);
    overview.add_row(rig.columns.cells(row));
  }
  EXPECT_EQ(overview.counts(),
            "3 points: 1 ok, 2 infeasible (because: device 0 needs 9 GiB), 0 refused, 0 failed");
  EXPECT_EQ(overview.faster_unfit(), (std::vector<std::uint64_t>{2, 1}));
  Row split = made_up_row(2);
  split.numbers[8] = 1;
  EXPECT_FALSE(overview.would_fit(2, "[3, 5]", split)) << "no faster than what fits";
  split.numbers[8] = 3;
  EXPECT_TRUE(overview.would_fit(2, "[3, 5]", split));
  EXPECT_NE(
      overview.table(kPlain).find(
          "\nstages=1, microbatches=3 does not fit; with split: [3, 5] it does, and is faster: 3 "
          "samples/s\n"),
      std::string::npos)
      << overview.table(kPlain);
}

TEST(Overview, TooFewDevicesAreKnownByTheReasonNotByTheWords) {
  const SpaceRig rig;
  Overview overview(rig.space, rig.columns, {});
  for (const std::uint64_t point : {0, 1, 2}) {
    Row row = made_up_row(point);
    row.status = Row::Status::refused;
    row.why = point == 0 ? "needs 9 devices, the cluster 'x' has 8" : "in other words";
    if (point > 0) row.too_few_devices = 64;
    overview.add_row(rig.columns.cells(row));
    overview.add_unwritten(row);
  }
  EXPECT_EQ(overview.fixed_width(),
            "2 need more GPUs than there are, as pipeline.width is the same for all: with --over "
            "width=1:64 --where 'stages*tensor*width == 64' every row has all");
  overview.add_resumed(rig.columns.cells(made_up_row(3)));
  EXPECT_EQ(overview.fixed_width().substr(0, 20), "2 of the new points ");
}

TEST(Overview, WhatFitsAsFarAsIsModelledIsShownAndSaysWhatIsMissing) {
  const SpaceRig rig;
  Overview overview(rig.space, rig.columns, {});
  Row row = made_up_row(1);
  row.status = Row::Status::unknown;
  row.why = "without its experts";
  overview.add_row(rig.columns.cells(row));
  EXPECT_EQ(overview.best(), "0.5 samples/s (stages=1, microbatches=2)");
  EXPECT_EQ(overview.counts(),
            "1 point: 0 ok, 1 unknown (because: without its experts), 0 infeasible, 0 refused, "
            "0 failed");
  EXPECT_NE(overview.table(kPlain).find(
                "\nwhether they fit is unknown: the model is one without its experts\n"),
            std::string::npos);
}

TEST(Overview, TheBestIsFeasible) {
  const SpaceRig rig;
  EXPECT_EQ(overview_of(rig).best(), "1 samples/s (stages=1, microbatches=1)");
}

TEST(Overview, TheTopIsSortedAsAsked) {
  const SpaceRig rig;
  TableOptions options;
  options.top = 2;
  options.columns = {"point", "peak_memory_bytes"};
  const auto first_lines = [&] {
    const std::string text = overview_of(rig, options).table(kPlain);
    return text.substr(0, text.find("\n\n"));
  };
  EXPECT_EQ(first_lines(),
            "point  peak_memory_bytes\n    0                0 B\n    1            954 MiB");
  read_sort("peak_memory_bytes:desc", options);
  EXPECT_EQ(first_lines(),
            "point  peak_memory_bytes\n   19           17.7 GiB\n   18           16.8 GiB");
  read_sort("peak_memory_bytes", options);
  EXPECT_FALSE(options.descending) << "less memory is better";
}

void set_number(Row& row, std::string_view name, double value) {
  const auto at = std::ranges::find(measures(), name, &Measure::name);
  ASSERT_NE(at, measures().end()) << name;
  row.numbers[static_cast<std::size_t>(at - measures().begin())] = value;
}

/// Two models of which the one with the longer sequences is slower in samples, faster in tokens.
Overview of_lengths(const SpaceRig& rig, double other_length, double other_parameters) {
  Overview overview(rig.space, rig.columns, {});
  for (const std::uint64_t point : {0, 1}) {
    Row row = made_up_row(point);  // 1 and 0.5 samples/s
    const double length = point == 0 ? 2048 : other_length;
    set_number(row, "seq_length", length);
    set_number(row, "tokens_per_s", row.numbers[8] * length);
    set_number(row, "parameters", point == 0 ? 1e9 : other_parameters);
    overview.add_row(rig.columns.cells(row));
  }
  return overview;
}

TEST(Overview, RowsOfOtherSequenceLengthsAreRankedByTokens) {
  const SpaceRig rig;
  const Overview longer = of_lengths(rig, 8192, 1e9);
  EXPECT_EQ(longer.best(), "4096 tokens/s (stages=1, microbatches=2)");
  EXPECT_NE(longer.table(kPlain).find("best tokens/s along it"), std::string::npos);
  EXPECT_LT(longer.table(kPlain).find("4096"), longer.table(kPlain).find("2048"));
  EXPECT_EQ(longer.models(), "");
  const Overview alike = of_lengths(rig, 2048, 1e9);
  EXPECT_EQ(alike.best(), "1 samples/s (stages=1, microbatches=1)");
  EXPECT_NE(alike.table(kPlain).find("best samples/s along it"), std::string::npos);
}

TEST(Overview, RowsOfOtherModelsAreSaid) {
  const SpaceRig rig;
  EXPECT_EQ(of_lengths(rig, 2048, 7e10).models(),
            "rows are of models of 1,000,000,000 to 70,000,000,000 parameters: more tokens/s may "
            "only be a smaller model (--sort mfu)");
}

TEST(Overview, UnknownColumnsAndOrdersAreSuggested) {
  const SpaceRig rig;
  TableOptions options;
  options.columns = {"stagse"};
  try {
    Overview(rig.space, rig.columns, options);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'stages'"), std::string::npos);
  }
  EXPECT_THROW(read_sort("mfu:down", options), InputError);
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from);
    widest = std::max(widest, display_width(text.substr(from, end - from)));
    from = end + 1;
  }
  return widest;
}

TEST(Overview, NoLineIsWiderThanTheTerminal) {
  const SpaceRig rig({"stages=1:60", "microbatches=1:200", "batches=1:2"});
  EXPECT_LE(widest_line(overview_of(rig).table(kBlocks)), 120U);
}

TEST(Overview, LongLabelsAndNamesOfAxesDoNotMakeLinesWider) {
  std::string values;
  for (int i = 0; i < 60; ++i)
    values += (i > 0 ? "," : "") + std::string("a-schedule-with-a-very-long-name-number-") +
              std::to_string(i);
  for (const char* other : {"microbatches=1:9", "microbatches=1:90"}) {
    const SpaceRig rig({"schedule=" + values, "pipeline.microbatch_size=1:3",
                        "cluster.inter.bandwidth=100Gbps,200Gbps,123456789012345678901bps",
                        "batches=1,2", other});
    for (const Canvas canvas : {kPlain, kBlocks})
      EXPECT_LE(widest_line(overview_of(rig).table(canvas)), 120U);
  }
}

TEST(Overview, NothingFeasibleIsSaid) {
  const SpaceRig rig;
  EXPECT_EQ(Overview(rig.space, rig.columns, {}).table(kPlain), "no point is feasible\n");
}

TEST(Pictures, ASparklineGoesFromZeroToTheLargest) {
  EXPECT_EQ(sparkline({0, 4, 8, std::nan("")}, kBlocks), "▁▅█·");
  EXPECT_EQ(sparkline({1, 2}, kPlain), "");
}

TEST(Pictures, AHeatMapShowsNumbersWhereTheyFit) {
  const HeatMap map{
      "a", "b", {"1", "2"}, {"x", "y"}, {{1, 2}, {3, std::nan("")}}, {{3, 3}, {3, 0}}};
  EXPECT_EQ(draw(map, kPlain), "      x  y\n   1  1  2\n   2  3  x\n      x nothing fits\n");
  const std::string coloured = draw(map, {120, true, true});
  EXPECT_NE(coloured.find("\x1b[97;48;5;17m 1\x1b[0m"), std::string::npos) << "the least is dark";
  EXPECT_NE(coloured.find("\x1b[30;48;5;226m 3\x1b[0m"), std::string::npos) << "the most is bright";
}

TEST(Pictures, AHeatMapSaysWhyCellsHaveNoNumber) {
  const double none = std::nan("");
  const HeatMap map{
      "a", "b", {"1"}, {"v", "w", "x", "y", "z"}, {{7, none, none, none, none}}, {{3, 0, 1, 2, 3}}};
  EXPECT_EQ(
      draw(map, kPlain),
      "      v  w  x  y  z\n   1  7  x  r  !   \n      x nothing fits; r refused: there is no "
      "such run; ! failed; blank: no point there\n");
}

TEST(Overview, ACellWithoutANumberSaysTheBestThatBecameOfItsPoints) {
  const SpaceRig rig({"stages=1:2", "microbatches=1:2", "batches=1:2"});
  Overview overview(rig.space, rig.columns, {});
  const auto add = [&](std::uint64_t point, Row::Status status) {
    Row row = made_up_row(0);
    row.point = point;
    row.status = status;
    overview.add_row(rig.columns.cells(row));
  };
  add(0, Row::Status::refused);
  add(1, Row::Status::infeasible);  // beside the refused one, in the same cell
  add(2, Row::Status::failed);
  add(4, Row::Status::ok);
  const std::string text = overview.table(kPlain);
  EXPECT_NE(text.find("   1  x  1\n   2  !   \n"), std::string::npos) << text;
}

TEST(Pictures, AWideHeatMapShowsTheBestOfNeighbours) {
  HeatMap map{"a", "b", {"1"}, {}, {{}}, {{}}};
  for (int c = 0; c < 500; ++c) {
    map.column_labels.push_back(std::to_string(c));
    map.values[0].push_back(c == 250 ? 10 : 1);
    map.empty[0].push_back(kBlankCell);
  }
  const std::string drawn = draw(map, kBlocks);
  const std::string line = drawn.substr(0, drawn.find('\n'));
  EXPECT_NE(line.find("█"), std::string::npos);
  EXPECT_EQ(line.find("█"), line.rfind("█"));
}

}  // namespace
}  // namespace penstock::overview_test
