// SPDX-License-Identifier: Apache-2.0
#include "program/check.hpp"
#include "program/dependencies.hpp"
#include "schedules/blocks.hpp"
#include "schedules/catalog/v_blocks.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/lowering.hpp"
#include "tests/schedules/recorded.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock::v_schedules_test {
namespace {

ScheduleShape shape_of(std::uint32_t p, std::uint32_t m) {
  return {.depth = p, .microbatches_per_update = m, .chunks = 2};
}

Evaluation evaluated(const Schedule& schedule, const ScheduleShape& shape) {
  OpLists order;
  schedule.generate(shape, order);
  return evaluate(
      order, layout(schedule.layout, std::vector<int>(shape.depth, 1), 2, shape.total()), shape);
}

/// Slots that the longest device is idle.
double idle(const Evaluation& found, std::uint32_t m) { return found.stage_time - 6.0 * m; }

void expect_recorded(const RecordedCase& one, const Schedule& schedule) {
  OpLists order;
  schedule.generate(one.shape(2 * one.p), order);
  ASSERT_EQ(order.devices(), static_cast<int>(one.p));
  for (std::size_t d = 0; d < one.p; ++d)
    EXPECT_EQ(tokens_of(order, static_cast<int>(d)), one.order[d]) << one.name() << " device " << d;
}

TEST(VSchedules, OrdersOfVHalfAndVMinEqualThoseOfThePublishedGreedyReordering) {
  const char* file = "sail_vhalf_vmin_greedy.jsonl.gz";
  SKIP_WITHOUT_RECORDED(file);
  int compared = 0;
  for (const RecordedCase& one : recorded_cases(file)) {
    expect_recorded(one, *find_schedule(one.schedule));
    ++compared;
  }
  EXPECT_EQ(compared, 82);
}

TEST(ZbV, OrderEqualsPyTorchs) {
  const char* file = "torch_pipelining_2.14.1.jsonl.gz";
  SKIP_WITHOUT_RECORDED(file);
  int compared = 0;
  for (const RecordedCase& one : recorded_cases(file)) {
    if (one.schedule != "ZBVZeroBubble") continue;
    expect_recorded(one, *find_schedule(one.schedule));
    ++compared;
  }
  EXPECT_EQ(compared, 18);
}

TEST(ZbV, FollowsThePhasesOfThePaper) {
  OpLists order;
  find_schedule("zb-v")->generate(shape_of(2, 3), order);
  EXPECT_EQ(tokens_of(order, 0),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2");
  EXPECT_EQ(tokens_of(order, 1),
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2");
}

// All p <= 8, m <= 24: the checker finds nothing, under every rule of transfers.
class EveryV : public testing::TestWithParam<const char*> {};

TEST_P(EveryV, PassesTheCheckForEveryShape) {
  const Schedule& schedule = *find_schedule(GetParam());
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t m = 1; m <= 24; ++m) {
      ASSERT_TRUE(schedule.refuse(shape_of(p, m)).empty());
      for (const Transfers transfers : {Transfers::overlapped, Transfers::blocking}) {
        const Program program = lower(schedule, shape_of(p, m), {transfers});
        const DependencyTable table(program.ops, program.placement, program.microbatches());
        const auto problems = check(program, table);
        ASSERT_TRUE(problems.empty()) << p << " " << m << " " << problems[0];
      }
    }
  }
}

TEST_P(EveryV, KeepsTheBubbleAndThePeaksItClaims) {
  const Schedule& schedule = *find_schedule(GetParam());
  int claimed = 0;
  for (std::uint32_t p = 1; p <= 16; ++p) {
    for (std::uint32_t m = 1; m <= 3 * p + 3; ++m) {
      const ScheduleShape shape = shape_of(p, m);
      const Evaluation found = evaluated(schedule, shape);
      ASSERT_TRUE(found.stuck.empty()) << p << " " << m;
      const double bubble = schedule.ideal_bubble(shape);
      if (!std::isnan(bubble)) {
        ++claimed;
        EXPECT_NEAR(idle(found, m) / found.stage_time, bubble, 1e-12) << p << " " << m;
      }
      for (std::uint32_t d = 0; d < p; ++d) {
        const double peak = schedule.peak(shape, d);
        if (std::isnan(peak)) continue;
        EXPECT_EQ(found.peaks[d], peak) << p << " " << m << " " << d;
      }
    }
  }
  EXPECT_GT(claimed, 100);
}

TEST_P(EveryV, RunsOnTwoChunksOnly) {
  ScheduleShape shape = shape_of(4, 8);
  shape.chunks = 3;
  const Refusal refusal = find_schedule(GetParam())->refuse(shape);
  EXPECT_EQ(refusal.key, "chunks");
  EXPECT_NE(refusal.why.find("nearest legal value is 2"), std::string::npos) << refusal.why;
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryV,
                         testing::Values("zb-v", "v-min", "v-half", "v-zb", "1f1b-v"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase(name, '-');
                           return name;
                         });

/// The most that any device may hold by equation 1.
std::uint32_t bound_of(const BuildingBlock& block) {
  std::uint32_t bound = 0;
  for (std::uint32_t d = 0; d < block.depth(); ++d) bound = std::max(bound, memory_bound(block, d));
  return bound;
}

TEST(VBlocks, MeetNobodyModuloTheIntervalForTwoTo39Devices) {
  for (std::uint32_t p = 1; p < 40; ++p) {
    for (const auto make : {v_min_block, v_half_block, v_zb_block, one_f_one_b_v_block}) {
      const auto found = problems(make(p));
      EXPECT_TRUE(found.empty()) << p << ": " << found[0].why;
    }
    const VShape half_of_the_paper{{2, 1, 2, 1}, {2, p % 2 == 0 ? 4U : 1U, 1}};
    EXPECT_TRUE(problems(v_block(p, half_of_the_paper)).empty()) << p;
  }
}

TEST(VBlocks, PeaksAreThoseOfTheTableAndWithinTheBoundOfTheLifespans) {
  for (std::uint32_t p = 1; p < 40; ++p) {
    const std::map<const char*, std::pair<BuildingBlock, std::uint32_t>> families = {
        {"v-min", {v_min_block(p), 2 * ((p + 4) / 3)}},
        {"v-half", {v_half_block(p), 2 * ((p + 2) / 2)}},
        {"v-zb", {v_zb_block(p), 2 * p}},
        {"1f1b-v", {one_f_one_b_v_block(p), 2 * ((2 * p + 3) / 3)}}};
    for (const auto& [name, family] : families) {
      const auto& [block, expected] = family;
      const auto peaks = evaluated(*find_schedule(name), shape_of(p, 2 * p + 2)).peaks;
      EXPECT_EQ(*std::ranges::max_element(peaks), expected) << name << " " << p;
      EXPECT_LE(expected, bound_of(block)) << name << " " << p;
    }
  }
}

TEST(VBlocks, ReorderedIdleReachesThePapersLowerBound) {
  for (std::uint32_t p = 3; p <= 32; ++p) {
    const std::uint32_t m = 2 * p + 2;
    const double half = 6.0 * p - 1 - 3 * (2 * ((p + 2) / 2));
    EXPECT_EQ(idle(evaluated(*find_schedule("v-half"), shape_of(p, m)), m), half) << p;
    const double min = 6.0 * p - 1 - 3 * (2 * ((p + 4) / 3));
    EXPECT_EQ(idle(evaluated(*find_schedule("v-min"), shape_of(p, m)), m),
              min + (p % 3 == 2 ? 4 : 0))
        << p;
    EXPECT_EQ(idle(evaluated(*find_schedule("v-zb"), shape_of(p, m)), m), 0) << p;
  }
}

TEST(VBlocks, IdleOfEightDevicesIsThePublishedOne) {
  const std::map<std::string, std::pair<double, double>> published = {
      {"zb-v", {0, 16}}, {"v-half", {17, 10}}, {"v-min", {27, 8}}, {"1f1b-v", {33, 12}}};
  for (const auto& [name, numbers] : published) {
    const Evaluation found = evaluated(*find_schedule(name), shape_of(8, 24));
    EXPECT_EQ(idle(found, 24), numbers.first) << name;
    EXPECT_EQ(*std::ranges::max_element(found.peaks), numbers.second) << name;
  }
}

}  // namespace
}  // namespace penstock::v_schedules_test
