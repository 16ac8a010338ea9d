// What is shown of a sweep: the best rows, the counts with their reasons, the pictures.
#include "base/error.hpp"
#include "sweep/overview.hpp"
#include "tests/sweep/space_rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

const Canvas kPlain{120, false, false};
const Canvas kBlocks{120, false, true};

Overview overview_of(const SpaceRig& rig, const TableOptions& options = {}) {
  Overview overview(rig.space, rig.columns, options);
  for (std::uint64_t n = 0; n < rig.space.size(); ++n)
    overview.add(rig.columns.cells(made_up_row(n)));
  return overview;
}

TEST(Overview, CountsWhatBecameOfPointsWithTheMostFrequentReason) {
  const SpaceRig rig;
  EXPECT_EQ(overview_of(rig).counts(),
            "20 points: 17 ok, 2 infeasible (because: device 6 needs 92.4 GiB, has 80.0 GiB), 1 "
            "refused (because: 48 layers do not divide evenly into 5 stages), 0 failed");
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

TEST(Overview, NoLineIsWiderThanTheTerminal) {
  const SpaceRig rig({"stages=1:60", "microbatches=1:200", "batches=1:2"});
  const std::string text = overview_of(rig).table(kBlocks);
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from);
    const std::string line = text.substr(from, end - from);
    const auto width = std::ranges::count_if(
        line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    EXPECT_LE(width, 120) << line;
    from = end + 1;
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
  const HeatMap map{"a", "b", {"1", "2"}, {"x", "y"}, {{1, 2}, {3, std::nan("")}}};
  EXPECT_EQ(draw(map, kPlain), "      x  y\n   1  1  2\n   2  3  -\n");
  const std::string coloured = draw(map, {120, true, true});
  EXPECT_NE(coloured.find("\x1b[97;48;5;17m 1\x1b[0m"), std::string::npos) << "the least is dark";
  EXPECT_NE(coloured.find("\x1b[30;48;5;226m 3\x1b[0m"), std::string::npos) << "the most is bright";
}

TEST(Pictures, AWideHeatMapShowsTheBestOfNeighbours) {
  HeatMap map{"a", "b", {"1"}, {}, {{}}};
  for (int c = 0; c < 500; ++c) {
    map.column_labels.push_back(std::to_string(c));
    map.values[0].push_back(c == 250 ? 10 : 1);
  }
  const std::string line = draw(map, kBlocks);
  EXPECT_NE(line.find("█"), std::string::npos);
  EXPECT_EQ(line.find("█"), line.rfind("█"));
}

}  // namespace
}  // namespace penstock
