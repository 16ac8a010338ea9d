// SPDX-License-Identifier: Apache-2.0
#include "report/comparison_section.hpp"
#include "report/memory_section.hpp"
#include "report/scatter_section.hpp"
#include "report/sweep_section.hpp"
#include "report/time_section.hpp"
#include "report/timeline_section.hpp"

#include <nlohmann/json.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::sections_test {
namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    static constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    group = group << 6 | static_cast<std::uint32_t>(digit);
    if ((bits += 6) < 8) continue;
    bytes.push_back(static_cast<std::uint8_t>(group >> (bits -= 8) & 255U));
  }
  return bytes;
}

template <class T>
std::vector<T> unpacked(const nlohmann::ordered_json& text) {
  const auto bytes = bytes_of(text.get<std::string>());
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

nlohmann::ordered_json parsed(const std::string& text) {
  return nlohmann::ordered_json::parse(text);
}

TEST(Base64, IsThatOfTheStandard) {
  const auto text = [](std::string_view s) {
    return base64({reinterpret_cast<const std::uint8_t*>(s.data()), s.size()});
  };
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text("f"), "Zg==");
  EXPECT_EQ(text("fo"), "Zm8=");
  EXPECT_EQ(text("foo"), "Zm9v");
  EXPECT_EQ(text("foobar"), "Zm9vYmFy");
}

TEST(Ticks, AreExactToAFewPartsInTenBillion) {
  const Ticks ticks(100);
  for (const double value : {0.0, 1e-7, 33.3, 99.999, 100.0})
    EXPECT_NEAR(ticks.tick_of(value) * ticks.step(), value, 2e-8);
  EXPECT_NE(ticks.tick_of(1e9), Ticks::none);
  EXPECT_EQ(Ticks(0).tick_of(0), 0U);
}

TimelineLane lane_of(std::vector<TimelineBar> bars) { return {"device 0", std::move(bars)}; }

TEST(TimelineSection, KeepsEveryBoxWithItsMessageAndRecomputation) {
  const nlohmann::ordered_json json =
      parsed(section_text({{"T"},
                           {lane_of({{{0, 1}, {7, 2, OpKind::forward}},
                                     {{1, 4}, {7, 2, OpKind::backward}, {0.5, 1}, 0.25}})}}));
  const double tick = json["tick_s"];
  const nlohmann::ordered_json& lane = json["lanes"][0];
  const auto start = unpacked<std::uint32_t>(lane["start"]);
  ASSERT_EQ(start.size(), 2U);
  EXPECT_NEAR(start[1] * tick, 1, 1e-8);
  EXPECT_NEAR(unpacked<std::uint32_t>(lane["end"])[1] * tick, 4, 1e-8);
  EXPECT_EQ(unpacked<std::uint32_t>(lane["microbatch"]), (std::vector<std::uint32_t>{7, 7}));
  EXPECT_EQ(unpacked<std::uint16_t>(lane["stage"]), (std::vector<std::uint16_t>{2, 2}));
  EXPECT_EQ(unpacked<std::uint8_t>(lane["kind"]), (std::vector<std::uint8_t>{0, 1}));
  EXPECT_EQ(unpacked<std::uint8_t>(lane["recompute"]), (std::vector<std::uint8_t>{0, 64}));
  EXPECT_EQ(unpacked<std::uint32_t>(lane["sent"])[0], Ticks::none);
  EXPECT_NEAR(unpacked<std::uint32_t>(lane["sent"])[1] * tick, 0.5, 1e-8);
}

TEST(TimelineSection, HalvesTheLaneForOpsThatRunTogether) {
  Op forward{0, 0, OpKind::forward, Op::paired};
  const nlohmann::ordered_json json = parsed(
      section_text({{"T"}, {lane_of({{{0, 1}, forward}, {{0, 1}, {1, 0, OpKind::backward}}})}}));
  EXPECT_EQ(unpacked<std::uint8_t>(json["lanes"][0]["kind"]),
            (std::vector<std::uint8_t>{1 << 4 | 0, 2 << 4 | 1}));
}

TEST(TimelineSection, OfTooManyOpsShowsTheBeginningAndSaysSo) {
  std::vector<TimelineBar> bars;
  for (int i = 0; i < 100; ++i) bars.push_back({{double(i), i + 1.0}, {}});
  const nlohmann::ordered_json json = parsed(section_text({{"T", "Note."}, {lane_of(bars)}}, 40));
  EXPECT_EQ(unpacked<std::uint32_t>(json["lanes"][0]["start"]).size(), 40U);
  EXPECT_EQ(json["end_s"], 40);
  EXPECT_EQ(json["note"],
            "Note. Only the first 40.0 s of 100 s: the rest has too many ops for a page (a trace "
            "has them all).");
}

TEST(TimelineSection, WritesAnUpdateThatNeverEndedAsNull) {
  TimelineSection section{{"T"}, {lane_of({})}};
  section.clocks = {{"measured", {0, 1.5, NAN}}};
  EXPECT_EQ(parsed(section_text(section))["clocks"][0]["ends"].dump(), "[0,1.5,null]");
}

TEST(MemorySection, KeepsThePeakOfALineThatIsThinned) {
  MemoryLine line{"device 3", 0, {}, "", {}};
  for (int i = 0; i < 1000; ++i) line.samples.emplace_back(i, i == 613 ? 5000 : i % 7);
  const nlohmann::ordered_json json = parsed(section_text({{"M"}, {line}, 1000}, 100));
  const auto bytes = unpacked<std::uint32_t>(json["lines"][0]["bytes"]);
  EXPECT_LE(bytes.size(), 100U);
  const double step = json["tick_bytes"];
  EXPECT_NEAR(*std::ranges::max_element(bytes) * step, 5000, 1e-3);
  EXPECT_NEAR(bytes.back() * step, 999 % 7, 1e-3);
}

TEST(TimeSection, HasAPartPerKindThatTakesTime) {
  const nlohmann::ordered_json json =
      parsed(section_text({{"T"},
                           10,
                           {{"stage 0", 4}, {"stage 1", 4}},
                           {{"compute", "computing", {6, 8}},
                            {"tensor", "tensor exchanges", {0, 1}},
                            {"context", "context exchanges", {0, 0}}}}));
  EXPECT_EQ(json["rows"].dump(),
            R"([{"name":"stage 0","devices":4},{"name":"stage 1","devices":4}])");
  EXPECT_EQ(json["parts"].dump(),
            R"([{"kind":"compute","name":"computing","seconds":[6,8]},)"
            R"({"kind":"tensor","name":"tensor exchanges","seconds":[0,1]}])");
}

TEST(ComparisonSection, WritesWhatIsUnknownAsNull) {
  const nlohmann::ordered_json json =
      parsed(section_text({{"C"}, {"a", "b"}, {{"time", "s", {{"", {1.5, NAN}}}}}}));
  EXPECT_EQ(json["panels"][0]["bars"][0]["values"].dump(), "[1.5,null]");
}

TEST(SweepSection, AddsStatusAndReasonAndWritesTextsOnce) {
  SweepSection sweep{{"S"},
                     {{{"stages"}, SweepRole::axis},
                      {{"schedule"}, SweepRole::axis},
                      {{"rate", "samples/s"}, SweepRole::measure, Better::higher}},
                     {{{2.0, "gpipe", 10.5}},
                      {{4.0, "1f1b", {}}, PointStatus::infeasible, "too large"},
                      {{8.0, "gpipe", NAN}, PointStatus::failed, "killed"}}};
  const nlohmann::ordered_json json = parsed(section_text(sweep));
  const auto& columns = json["columns"];
  ASSERT_EQ(columns.size(), 5U);
  EXPECT_EQ(columns[0]["values"].dump(), "[2,4,8]");
  EXPECT_EQ(columns[1]["values"].dump(), R"({"words":["gpipe","1f1b"],"at":[0,1,0]})");
  EXPECT_EQ(columns[2]["values"].dump(), "[10.5,null,null]");
  EXPECT_EQ(columns[2]["better"], "higher");
  EXPECT_EQ(columns[3]["values"]["words"].dump(), R"(["ok","infeasible","failed"])");
  EXPECT_EQ(columns[4]["values"]["words"][1], "too large");
}

TEST(SweepSection, SaysOnceWhatIsTheSameForAllPoints) {
  SweepSection sweep{{"S"},
                     {{{"engine"}}, {{"width"}}, {{"mfu"}}, {{"mixed"}}},
                     {{{"exact", 1.0, NAN, 2.0}}, {{"exact", 1.0, {}, "two"}}}};
  const nlohmann::ordered_json json = parsed(section_text(sweep));
  const auto values = [&](std::size_t c) { return json["columns"][c]["values"].dump(); };
  EXPECT_EQ(json["rows"], 2);
  EXPECT_EQ(values(0), R"({"all":"exact"})");
  EXPECT_EQ(values(1), R"({"all":1})");
  EXPECT_EQ(values(2), R"({"all":null})");
  EXPECT_EQ(values(3), R"({"words":["2","two"],"at":[0,1]})");
  EXPECT_EQ(values(4), R"({"all":"ok"})");
  EXPECT_EQ(values(5), R"({"all":""})");
}

TEST(SweepSection, WithoutPointsHasItsColumns) {
  const nlohmann::ordered_json json =
      parsed(section_text({{"S"}, {{{"stages"}, SweepRole::axis}}, {}}));
  EXPECT_EQ(json["rows"], 0);
  EXPECT_EQ(json["columns"].size(), 3U);
  EXPECT_EQ(json["columns"][0]["values"].dump(), "[]");
}

TEST(Sections, ReplaceWhatIsNoText) {
  EXPECT_EQ(parsed(section_text(TableSection{{"a\xff"}, {{"c"}}, {{"b\xfe"}}}))["heading"],
            "a\xef\xbf\xbd");
}

TEST(Scatter, HasARowsNameMeasuredAndPredictedAndNoneThatLogAxesCannotShow) {
  const auto json = parsed(section_text(ScatterSection{
      {"Rows"},
      {{"time", "s", {{"depth 1", {{"a", 2, 1.5}, {"b", 0, 1}, {"c", 1, NAN}, {"d", 1, -1}}}}}}}));
  EXPECT_EQ(json["kind"], "scatter");
  EXPECT_EQ(json["panels"][0]["unit"], "s");
  EXPECT_EQ(json["panels"][0]["groups"][0]["points"].dump(), R"([["a",2.0,1.5]])");
}

TEST(Scatter, LeavesOutPanelsAndClassesOfWhichNothingCanBeShown) {
  const auto json = parsed(section_text(
      ScatterSection{{"Rows"},
                     {{"time", "s", {{"none", {{"a", 0, 1}}}}},
                      {"memory", "bytes", {{"none", {{"a", 0, 1}}}, {"some", {{"b", 2, 1}}}}}}}));
  ASSERT_EQ(json["panels"].size(), 1U);
  EXPECT_EQ(json["panels"][0]["quantity"], "memory");
  EXPECT_EQ(json["panels"][0]["groups"].size(), 1U);
}

}  // namespace
}  // namespace penstock::sections_test
