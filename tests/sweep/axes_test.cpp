// SPDX-License-Identifier: Apache-2.0
// Axes as they are typed: lists, ranges in exact decimals, brackets, zips, and what is refused.
#include "base/error.hpp"
#include "sweep/axes.hpp"
#include "sweep/decimal.hpp"

#include <gtest/gtest.h>

namespace penstock::axes_test {
namespace {

using Texts = std::vector<std::string>;

Texts values(const std::string& text) {
  Texts out;
  for (const auto& value : parse_axis(text).values) out.push_back(value.at(0));
  return out;
}

template <class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string axis_error(const std::string& text) {
  return error_of([&] { parse_axis(text); });
}

std::string axes_error(const Texts& over, const Texts& zips = {},
                       const std::vector<Override>& changes = {}) {
  return error_of([&] { parse_axes(over, zips, changes); });
}

TEST(SweepAxis, ListsKeepWhatWasTyped) {
  EXPECT_EQ(values("stages=2,4, 8"), (Texts{"2", "4", "8"}));
  EXPECT_EQ(values("forward=1 ms,2.50 ms"), (Texts{"1 ms", "2.50 ms"}));
  EXPECT_EQ(values("name=it's, 5\" x,\"a, \\\"b\", 'c, d'"),
            (Texts{"it's", "5\" x", "\"a, \\\"b\"", "'c, d'"}));
  EXPECT_EQ(values("split=[1,2],[2,1],balanced"), (Texts{"[1,2]", "[2,1]", "balanced"}));
  EXPECT_EQ(values("model={base: gpt-2.2b, num_layers: 4},bert"),
            (Texts{"{base: gpt-2.2b, num_layers: 4}", "bert"}));
  EXPECT_EQ(values("name=\"a, b\",c:d"), (Texts{"\"a, b\"", "c:d"}));
}

TEST(SweepAxis, KeysAreNamedInFull) {
  EXPECT_EQ(parse_axis("stages=1").keys, (Texts{"pipeline.stages"}));
  EXPECT_EQ(parse_axis("depth=1").keys, (Texts{"pipeline.stages"}));
  EXPECT_EQ(parse_axis("pipeline.depth=1").keys, (Texts{"pipeline.stages"}));
  EXPECT_EQ(parse_axis("model.forward=1 s").keys, (Texts{"model.forward"}));
}

TEST(SweepAxis, RangesIncludeTheirEndWhenItIsHit) {
  EXPECT_EQ(values("stages=1:4"), (Texts{"1", "2", "3", "4"}));
  EXPECT_EQ(values("stages=1:32:*2"), (Texts{"1", "2", "4", "8", "16", "32"}));
  EXPECT_EQ(values("stages=1:10:+4"), (Texts{"1", "5", "9"}));
  EXPECT_EQ(values("stages=7:7"), (Texts{"7"}));
  EXPECT_EQ(values("stages=1,4:6,32"), (Texts{"1", "4", "5", "6", "32"}));
}

TEST(SweepAxis, RangesKeepTheirUnit) {
  EXPECT_EQ(values("model.forward=1ms:9ms:+4ms"), (Texts{"1ms", "5ms", "9ms"}));
  EXPECT_EQ(values("link.bandwidth=1 GB/s:4 GB/s:*2"), (Texts{"1GB/s", "2GB/s", "4GB/s"}));
  EXPECT_EQ(values("model.forward=1ms:3ms"), (Texts{"1ms", "2ms", "3ms"}));
}

TEST(SweepAxis, StepsOfATenthDoNotDrift) {
  const Texts steps = values("model.forward=0.1ms:100ms:+0.1ms");
  ASSERT_EQ(steps.size(), 1000U);
  EXPECT_EQ(steps[2], "0.3ms");
  EXPECT_EQ(steps[9], "1ms");
  EXPECT_EQ(steps.back(), "100ms");
  const Texts factors = values("model.forward=0.001ms:1000ms:*10");
  EXPECT_EQ(factors, (Texts{"0.001ms", "0.01ms", "0.1ms", "1ms", "10ms", "100ms", "1000ms"}));
}

TEST(SweepAxis, ProductsKeepFifteenDigits) {
  const Texts steps = values("model.forward=1ms:1000ms:*1.1");
  ASSERT_EQ(steps.size(), 73U);
  EXPECT_EQ(steps[2], "1.21ms");
  EXPECT_EQ(steps[40].substr(0, 9), "45.259255");
}

TEST(SweepAxis, WrongOnesSayWhatIsAllowed) {
  EXPECT_NE(axis_error("stages").find("expected KEY=VALUES"), std::string::npos);
  EXPECT_NE(axis_error("stagse=1").find("did you mean 'stages'"), std::string::npos);
  EXPECT_NE(axis_error("pipeline.stagse=1").find("did you mean 'stages'"), std::string::npos);
  EXPECT_NE(axis_error("stages=1,,2").find("an empty value"), std::string::npos);
  EXPECT_NE(axis_error("stages=").find("an empty value"), std::string::npos);
  EXPECT_NE(axis_error("split=[1,2").find("a ']' is missing"), std::string::npos);
  EXPECT_NE(axis_error("split=1]").find("closes nothing"), std::string::npos);
  EXPECT_NE(axis_error("stages=1:8:2").find("needs a step such as +2 or *2"), std::string::npos);
  EXPECT_NE(axis_error("stages=8:1").find("is empty"), std::string::npos);
  EXPECT_NE(axis_error("stages=1:8:+0").find("no step above 0"), std::string::npos);
  EXPECT_NE(axis_error("stages=1:8:*1").find("not above 1"), std::string::npos);
  EXPECT_NE(axis_error("stages=0:8:*2").find("cannot multiply from 0"), std::string::npos);
  EXPECT_NE(axis_error("stages=1:x").find("which is no number"), std::string::npos);
  EXPECT_NE(axis_error("stages=1:2:+1:3").find("more than three parts"), std::string::npos);
  EXPECT_NE(axis_error("forward=1ms:2s:+1ms").find("the units 'ms' and 's'"), std::string::npos);
  EXPECT_NE(axis_error("stages=1:99999999").find("more than a million"), std::string::npos);
}

TEST(Axes, ZippedAxesMoveTogetherWhereTheLastOfThemStood) {
  const auto axes =
      parse_axes({"stages=2,4", "microbatches=1,2,3", "width=8,4"}, {"width,stages"}, {});
  ASSERT_EQ(axes.size(), 2U);
  const auto& zipped = axes[0].keys.size() == 2 ? axes[0] : axes[1];
  EXPECT_EQ(zipped.keys, (Texts{"pipeline.width", "pipeline.stages"}));
  EXPECT_EQ(zipped.values, (std::vector<Texts>{{"8", "2"}, {"4", "4"}}));
}

TEST(Axes, WrongOnesAreAllReported) {
  const std::string both = axes_error({"stagse=1", "stages=1", "stages=2"});
  EXPECT_NE(both.find("did you mean 'stages'"), std::string::npos);
  EXPECT_NE(both.find("is an axis already"), std::string::npos);
  EXPECT_NE(axes_error({"stages=1,2", "width=1,2,3"}, {"stages,width"})
                .find("'pipeline.stages' has 2 values and 'pipeline.width' 3"),
            std::string::npos);
  EXPECT_NE(axes_error({"stages=1,2"}, {"stages,width"}).find("is no axis"), std::string::npos);
  EXPECT_NE(axes_error({"stages=1,2"}, {"stages"}).find("at least two"), std::string::npos);
  EXPECT_NE(axes_error({"stages=1,2,1"}).find("has 1 twice"), std::string::npos);
  EXPECT_NE(axes_error({"stages=1,2"}, {}, {{"depth", "4"}}).find("is also an axis"),
            std::string::npos);
  EXPECT_NE(axes_error({"model.num_layers=1,2", "model=a,b"}).find("give 'model' first"),
            std::string::npos);
  EXPECT_EQ(axes_error({"model=a,b", "model.num_layers=1,2"}), "no error");
}

TEST(Decimal, ReadsAndWritesWhatPeopleWrite) {
  for (const char* text : {"0", "1", "-1", "0.001", "1500", "12.5", "100000000000000"})
    EXPECT_EQ(to_string(parse_decimal(text).value()), text);
  EXPECT_EQ(to_string(parse_decimal("1.50e3").value()), "1500");
  EXPECT_EQ(to_string(parse_decimal("5e-3").value()), "0.005");
  for (const char* text : {"", ".", "x", "1x", "1e", "12345678901234567"})
    EXPECT_FALSE(parse_decimal(text)) << text;
}

TEST(Decimal, ComparesAcrossExponents) {
  EXPECT_TRUE(less({1, -3}, {1, 0}));
  EXPECT_TRUE(less({-1, 0}, {1, -300}));
  EXPECT_TRUE(less({1, -300}, {1, 300}));
  EXPECT_TRUE(less({-1, 300}, {-1, -300}));
  EXPECT_FALSE(less({10, 0}, {1, 1}));
}

}  // namespace
}  // namespace penstock::axes_test
