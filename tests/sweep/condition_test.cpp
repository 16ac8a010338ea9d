// SPDX-License-Identifier: Apache-2.0
// Conditions, and the walk over the points that they leave.
#include "base/error.hpp"
#include "sweep/axes.hpp"
#include "sweep/space.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace penstock::condition_test {
namespace {

/// A scenario in a file of its own, removed at the end.
class ScenarioFile {
 public:
  ScenarioFile() {
    std::ofstream(path_) << "model: {forward: 3 ms, backward: 6 ms, output: 48 MiB}\n"
                            "cluster: {devices: 4, link: {latency: 1 us, bandwidth: 25 GB/s}}\n"
                            "schedule: gpipe\npipeline: {depth: 4, microbatches: 8}\n";
  }
  ~ScenarioFile() { std::filesystem::remove(path_); }
  ScenarioFile(const ScenarioFile&) = delete;
  ScenarioFile& operator=(const ScenarioFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() /
                      ("penstock-condition-" + std::to_string(::getpid()) + ".yaml");
};

Space space(const std::vector<std::string>& over, const std::vector<std::string>& where,
            std::size_t files = 1) {
  const ScenarioFile file;
  Documents documents;
  return Space(std::vector<std::string>(files, file.path()), parse_axes(over, {}, {}), where, {},
               documents);
}

/// Every number from the definition: all conditions asked of all points, by skipping nothing.
std::vector<std::uint64_t> numbers(const Space& s) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t at = s.next(0); at < s.size(); at = s.next(at + 1)) out.push_back(at);
  return out;
}

bool holds(const std::string& condition) {
  return !numbers(space({"width=2,3"}, {condition + " && width == 2"})).empty();
}

std::string error_of(const std::string& condition) {
  try {
    space({"stages=1,2"}, {condition});
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Condition, CalculatesAsUsual) {
  for (const char* truth :
       {"1+2*3 == 7", "(1+2)*3 == 9", "7 % 4 == 3", "2-3-4 == -5", "8/4/2 == 1", "-2*3 == -6",
        "1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3 && 1 != 2", "1 > 2 || 2 > 1", "!(1 > 2)",
        "1 > 2 && 1 > 2 || 1 == 1", "0.1+0.2 == 0.3", "!(0.1+0.2 > 0.3)", "1e3 == 1000"})
    EXPECT_TRUE(holds(truth)) << truth;
  for (const char* lie : {"1 == 2", "1 % 0 == 0", "1 / 0 > 0", "1 / 0 != 1", "!(1 == 1)"})
    EXPECT_FALSE(holds(lie)) << lie;
}

TEST(Condition, KnowsUnitsAndWhatTheScenarioSays) {
  for (const char* truth :
       {"model.forward == 3ms", "forward*2 == backward", "forward == 0.003 s", "output > 1 MiB",
        "output == 48 MiB", "link.bandwidth >= 25 GB/s", "link.bandwidth == 200 Gbps",
        "stages*2 == 8", "microbatches % stages == 0", "schedule == 'gpipe'",
        "schedule != \"1f1b\"", "backward/forward == 2", "forward > 0", "recompute == 'none'"})
    EXPECT_TRUE(holds(truth)) << truth;
}

TEST(Condition, ErrorsPointAtTheirPlace) {
  EXPECT_NE(error_of("stages * == 4").find("--where:1:10: '==' was not expected"),
            std::string::npos);
  EXPECT_NE(error_of("stages * == 4").find("^~"), std::string::npos);
  EXPECT_NE(error_of("stages = 4").find("is written '=='"), std::string::npos);
  EXPECT_NE(error_of("stagse == 4").find("did you mean 'stages'"), std::string::npos);
  EXPECT_NE(error_of("(stages == 4").find("this '(' is not closed"), std::string::npos);
  EXPECT_NE(error_of("stages == 4)").find("')' was not expected"), std::string::npos);
  EXPECT_NE(error_of("stages").find("is no condition"), std::string::npos);
  EXPECT_NE(error_of("").find("something is missing"), std::string::npos);
  EXPECT_NE(error_of("1 < stages < 4").find("join two comparisons"), std::string::npos);
  EXPECT_NE(error_of("stages == 1 and stages == 2").find("write '&&'"), std::string::npos);
  EXPECT_NE(error_of("stages == 1 & stages == 2").find("write '&&'"), std::string::npos);
  EXPECT_NE(error_of("schedule == 4").find("compares a text with a number"), std::string::npos);
  EXPECT_NE(error_of("schedule < 'x'").find("== or != only"), std::string::npos);
  EXPECT_NE(error_of("schedule == 'x").find("is not closed"), std::string::npos);
  EXPECT_NE(error_of("forward == 3").find("compares a time with a number without a unit"),
            std::string::npos);
  EXPECT_NE(error_of("forward > 3 MB").find("compares a time with a size"), std::string::npos);
  EXPECT_NE(error_of("forward + output > 3 s").find("combines a time with a size"),
            std::string::npos);
  EXPECT_NE(error_of("stages == 3 parsecs").find("is no unit"), std::string::npos);
  EXPECT_NE(error_of("width == 1").find("give it: --set pipeline.width"), std::string::npos);
  EXPECT_NE(error_of("stages == $").find("cannot be part"), std::string::npos);
  EXPECT_NE(error_of(std::string(500, '(') + "1").find("nested too deeply"), std::string::npos);
  EXPECT_NE(error_of("(stages == 1) + 2 == 3").find("cannot calculate with a condition"),
            std::string::npos);
}

TEST(Space, TheLastAxisVariesFastestAndScenariosSlowest) {
  const Space s = space({"stages=1,2", "width=1,2,3"}, {}, 2);
  EXPECT_EQ(s.size(), 12U);
  const Point point = s.point(6 + 3 + 2);
  EXPECT_EQ(point.scenario, 1U);
  EXPECT_EQ(point.changes[0].key, "pipeline.stages");
  EXPECT_EQ(point.changes[0].value, "2");
  EXPECT_EQ(point.changes[1].value, "3");
}

TEST(Space, SkipsExactlyThePointsThatDoNotHold) {
  const Space s = space({"stages=1:64:*2", "width=1:64:*2", "microbatches=1:5"},
                        {"stages*width == 64", "microbatches % 2 == 1 || stages > 8"});
  std::vector<std::uint64_t> expected;
  for (std::uint64_t n = 0; n < s.size(); ++n) {
    const auto at = s.digits(n);
    const bool first = at[1] + at[2] == 6;
    const bool second = (at[3] + 1) % 2 == 1 || at[1] > 3;
    if (first && second) expected.push_back(n);
  }
  EXPECT_EQ(numbers(s), expected);
  EXPECT_EQ(s.count(), expected.size());
}

TEST(Space, AConditionOnTheScenariosChoosesAmongThem) {
  EXPECT_EQ(space({"width=1:10"}, {"stages == 4"}, 2).count(), 20U);
  EXPECT_EQ(space({"width=1:10"}, {"stages == 5"}, 2).count(), 0U);
}

TEST(Space, WalksAHugeProductOfWhichLittleIsLeft) {
  const Space s = space({"stages=1:1000", "microbatches=1:1000", "microbatch_size=1:1000"},
                        {"stages == 500", "microbatches*microbatch_size == 1000"});
  EXPECT_EQ(s.size(), 1'000'000'000U);
  EXPECT_EQ(s.count(), 16U) << "divisors of 1000";
}

TEST(Space, MoreThanABillionPointsAreRefused) {
  try {
    space({"stages=1:1001", "microbatches=1:1000", "microbatch_size=1:1000"}, {});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("1001 of pipeline.stages"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::condition_test
