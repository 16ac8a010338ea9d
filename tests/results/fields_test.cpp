// SPDX-License-Identifier: Apache-2.0
// One table says what a result has; what is made from it must agree, and it with the code's lists.
#include "results/fields.hpp"

#include "tests/golden.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace penstock {
namespace {

std::filesystem::path in_source(const char* path) {
  return std::filesystem::path(std::getenv("PENSTOCK_SOURCE")) / path;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(Fields, OfTheDocumentationAreThoseOfTheTable) {
  const auto path = in_source("docs/metrics.md");
  std::string page = text_of(path);
  constexpr std::string_view kBegin = "<!-- fields -->\n", kEnd = "<!-- end of fields -->";
  const std::size_t begin = page.find(kBegin), end = page.find(kEnd);
  ASSERT_NE(begin, page.npos);
  ASSERT_NE(end, page.npos);
  page.replace(begin + kBegin.size(), end - begin - kBegin.size(), fields_as_markdown());
  expect_golden(path, page);
}

TEST(Fields, WhetherItFitsIsNotKnownWhereNoMemoryIsGiven) {
  const auto feasible = [](const char* cluster) {
    const Simulation s = simulate(
        parse_scenario(fmt::format("model: {{forward: 1 ms, backward: 2 ms, activation: 2 GiB}}\n"
                                   "cluster: {}\nschedule: gpipe\n"
                                   "pipeline: {{stages: 2, microbatches: 4}}\n",
                                   cluster),
                       "test.yaml"),
        EngineChoice::exact);
    const Result r = summarize(s);
    return to_json({s.scenario, &s, &r}).at("feasible");
  };
  EXPECT_EQ(feasible("{devices: 2}"), Json(nullptr));
  EXPECT_EQ(feasible("{devices: 2, device: {memory: 64 GiB}}"), Json(true));
  EXPECT_EQ(feasible("{devices: 2, device: {memory: 4 GiB}}"), Json(false));
}

/// A column's place is where files that were begun by an older penstock have it.
TEST(Fields, HaveAPlaceOfTheirOwnAmongTheColumnsOfSweeps) {
  std::set<std::string> names;
  for (std::size_t m = 0; m < measures().size(); ++m) {
    EXPECT_EQ(measures()[m].column.place, static_cast<int>(m)) << measures()[m].name;
    EXPECT_TRUE(names.insert(measures()[m].name).second) << measures()[m].name << " stands twice";
  }
  EXPECT_EQ(measures()[8].name, "throughput_samples_per_s");
  EXPECT_EQ(measures()[31].name, "chunks");
}

TEST(Fields, ThatAreColumnsAreNumbers) {
  for (const Measure& m : measures()) {
    const bool number =
        m.of_device != nullptr ? m.of_device->number != nullptr : m.of_result->number != nullptr;
    EXPECT_TRUE(number) << m.name;
  }
}

TEST(Fields, CarryTheirUnitInTheirNames) {
  const auto expect_unit = [](const auto& fields) {
    for (const auto& field : fields) {
      const std::string_view name = field.name;
      const bool time = name.ends_with("_s") && !name.ends_with("_per_s");
      EXPECT_EQ(name.ends_with("_bytes"), field.unit == Unit::bytes && !name.starts_with("memory."))
          << name;
      EXPECT_TRUE(!name.ends_with("_fraction") || field.unit == Unit::fraction) << name;
      EXPECT_TRUE(!time || field.unit == Unit::seconds) << name;
    }
  };
  expect_unit(result_fields());
  expect_unit(device_fields());
}

template <class Fields, class Names>
void expect_each(const Fields& fields, const std::string& object, const Names& names) {
  for (const std::string_view name : names)
    EXPECT_EQ(std::ranges::count(fields, object + std::string(name),
                                 [](const auto& f) { return std::string(f.name); }),
              1)
        << object << name;
}

TEST(Fields, HaveEveryCauseAndEveryOwner) {
  expect_each(result_fields(), "bubble.", kCauseNames);
  expect_each(device_fields(), "memory.", kOwnerNames);
}

}  // namespace
}  // namespace penstock
