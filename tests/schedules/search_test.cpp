// SPDX-License-Identifier: Apache-2.0
// The search of our own: never worse than what it could have taken, and within every device's own
// limit.
#include "program/check.hpp"
#include "program/program.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/lowering.hpp"
#include "tests/schedules/recorded.hpp"

#include <random>

namespace penstock::search_test {
namespace {

const Schedule& named(std::string_view name) { return *find_schedule(name); }

OpLists order_of(std::string_view name, const ScheduleShape& shape) {
  OpLists order;
  named(name).generate(shape, order);
  return order;
}

Evaluation run(std::string_view name, const ScheduleShape& shape) {
  const Placement where = layout(Layout::snake, std::vector<int>(shape.depth, 1), shape.chunks,
                                 shape.microbatches_per_update);
  return evaluate(order_of(name, shape), where, shape);
}

/// Stages that all differ in times and activations.
ScheduleShape random_shape(std::mt19937_64& random, std::uint32_t chunks) {
  const auto any = [&](double least, double most) {
    return least + (most - least) * static_cast<double>(random() % 1000) / 1000;
  };
  ScheduleShape shape{.depth = static_cast<std::uint32_t>(2 + random() % 5),
                      .microbatches_per_update = static_cast<std::uint32_t>(1 + random() % 20),
                      .chunks = chunks};
  for (std::uint32_t s = 0; s < shape.stages(); ++s) {
    const double activation = any(0.5, 1.5);
    shape.times.push_back(
        {any(0.5, 2), any(0.5, 2), any(0.2, 2), activation, activation * any(0, 1)});
  }
  shape.transfer = random() % 2 == 0 ? 0 : any(0, 0.5);
  return shape;
}

void expect_no_worse(const Evaluation& ours, const Evaluation& other, const std::string& what) {
  EXPECT_LE(ours.stage_time, other.stage_time * (1 + 1e-9)) << what;
  if (ours.stage_time >= other.stage_time * (1 - 1e-9)) {
    EXPECT_LE(ours.makespan, other.makespan * (1 + 1e-9)) << what;
  }
}

void expect_within(const Evaluation& found, const ScheduleShape& shape, const std::string& what) {
  EXPECT_TRUE(found.stuck.empty()) << what;
  for (std::size_t d = 0; d < shape.memory_limits.size(); ++d)
    EXPECT_LE(found.peaks[d], shape.memory_limits[d] * one_f_one_b_peak(shape) * (1 + 3e-9))
        << what << " device " << d;
}

/// Random limits, other ones on each device, that leave room for a microbatch.
std::vector<double> random_limits(std::mt19937_64& random, const ScheduleShape& shape) {
  std::vector<double> limits;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    double one = 0;
    for (std::uint32_t v = 0; v < shape.chunks; ++v)
      one += shape.time(v == 0 ? d : 2 * shape.depth - 1 - d).activation;
    const double more = 1 + static_cast<double>(random() % 8) * shape.depth / 6;
    limits.push_back(one * more / one_f_one_b_peak(shape));
  }
  return limits;
}

TEST(Search, IsNeverWorseThanThePublishedSearchesWithinTheSameLimits) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 12; ++i) {
    ScheduleShape shape = random_shape(random, 1 + i % 2);
    shape.memory_limits = random_limits(random, shape);
    ASSERT_EQ(named("search").refuse(shape).why, "");
    const Evaluation ours = run("search", shape);
    const std::string what = fmt::format("case {}", i);
    expect_within(ours, shape, what);
    if (shape.chunks == 1) {
      expect_no_worse(ours, run("zb", shape), what);
    } else {
      expect_no_worse(ours, run("zb-v-search", shape), what);
      expect_no_worse(ours, run("v-search", shape), what);
    }
  }
}

void expect_no_worse_than(const std::vector<const char*>& schedules, ScheduleShape shape) {
  for (const char* name : schedules) {
    const Evaluation theirs = run(name, shape);
    ASSERT_TRUE(theirs.stuck.empty()) << name;
    shape.memory_limits.clear();
    for (const double peak : theirs.peaks)
      shape.memory_limits.push_back(peak / one_f_one_b_peak(shape));
    const Evaluation ours = run("search", shape);
    expect_no_worse(ours, theirs, name);
    expect_within(ours, shape, name);
  }
}

TEST(Search, IsNeverWorseThanSchedulesInClosedFormThatHoldAsMuch) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 3; ++i) {
    expect_no_worse_than({"gpipe", "gpipe-fifo", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"},
                         random_shape(random, 1));
    expect_no_worse_than({"v-min", "v-half", "v-zb", "zb-v", "1f1b-v", "hanayo"},
                         random_shape(random, 2));
  }
}

/// The same layers in one stage per device.
ScheduleShape one_stage_per_device(const ScheduleShape& shape) {
  ScheduleShape merged = shape;
  merged.chunks = 1;
  merged.times.assign(shape.depth, {0, 0, 0, 0, 0});
  for (std::uint32_t s = 0; s < shape.stages(); ++s) {
    StageTimes& to = merged.times[s / shape.chunks];
    to.forward += shape.time(s).forward;
    to.backward_input += shape.time(s).backward_input;
    to.backward_weight += shape.time(s).backward_weight;
    to.activation += shape.time(s).activation;
    to.activation_after_input += shape.time(s).activation_after_input;
  }
  return merged;
}

TEST(MemoryLimit, IsInTheLargestPeakOfOneFOneBWithTheSameLayers) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 60; ++i) {
    ScheduleShape shape = random_shape(random, 1 + i % 3);
    shape.microbatches_per_update = shape.depth + 3;
    if (i % 2 == 0) shape.times.back().activation *= 20;
    const Evaluation found = run("1f1b", one_stage_per_device(shape));
    EXPECT_NEAR(std::ranges::max(found.peaks), one_f_one_b_peak(shape), 1e-9) << i;
  }
}

/// Models keep most on their last stage, for the logits.
ScheduleShape dear_last_stage(std::uint32_t chunks) {
  ScheduleShape shape{.depth = 4, .microbatches_per_update = 12, .chunks = chunks};
  shape.times.assign(shape.stages(), {1, 1, 1, 1, 0.5});
  shape.times.back().activation = 10;
  shape.times.back().activation_after_input = 5;
  return shape;
}

TEST(MemoryLimit, OfADearLastStageAdmitsEverySearchWhereOneFOneBRuns) {
  for (const char* name : {"zb-1p", "zb-2p", "zb", "search", "zb-v-search", "v-search"}) {
    const Schedule& schedule = named(name);
    ScheduleShape shape = dear_last_stage(schedule.chunks.usual);
    EXPECT_EQ(schedule.refuse(shape).why, "") << name;
    // One microbatch of the V's first device, 11, is all that 1F1B holds.
    const double limit = name == std::string_view("v-search") ? 1 : schedule.usual_limit;
    const Evaluation found = run(name, shape);
    EXPECT_TRUE(found.stuck.empty()) << name;
    for (const double peak : found.peaks)
      EXPECT_LE(peak, limit * one_f_one_b_peak(shape) * (1 + 3e-9)) << name;
  }
}

TEST(MemoryLimit, OfEveryDeviceIsInTheSameUnit) {
  for (const std::uint32_t chunks : {1U, 2U}) {
    ScheduleShape shape = dear_last_stage(chunks);
    shape.memory_limits = {1.5, 0.5, 0.5, 1};
    ASSERT_EQ(named("search").refuse(shape).why, "");
    expect_within(run("search", shape), shape, fmt::format("{} chunks", chunks));
  }
}

TEST(ZbSearch, TakesNoLongerOnADeviceThanTheHandcraftedOrdersThatFit) {
  std::mt19937_64 random(14);
  int compared = 0;
  for (int i = 0; i < 40; ++i) {
    const ScheduleShape shape = random_shape(random, 1);
    for (const auto& [search, form] : {std::pair{"zb-1p", "zb-h1"}, {"zb-2p", "zb-h2"}}) {
      const Evaluation published = run(form, shape);
      const double limit = named(search).usual_limit * one_f_one_b_peak(shape);
      if (std::ranges::max(published.peaks) > limit) continue;
      ++compared;
      EXPECT_LE(run(search, shape).stage_time, published.stage_time * (1 + 1e-9)) << form << i;
    }
  }
  EXPECT_GT(compared, 20);
}

TEST(Search, UsesTheMemoryOfTheDeviceThatHasMore) {
  ScheduleShape shape{.depth = 4, .microbatches_per_update = 16, .chunks = 2};
  shape.memory_limits = {0.5, 0.5, 0.5, 0.5};
  const double even = run("search", shape).stage_time;
  shape.memory_limits = {1.5, 1, 1, 0.75};
  const Evaluation more = run("search", shape);
  EXPECT_LT(more.stage_time, even);
  expect_within(more, shape, "uneven");
}

TEST(Search, HoldsAsMuchAsOneFOneBWhenNothingIsSaid) {
  for (const std::uint32_t chunks : {1U, 2U}) {
    const ScheduleShape shape{.depth = 4, .microbatches_per_update = 16, .chunks = chunks};
    for (const double peak : run("search", shape).peaks) EXPECT_LE(peak, 4 * chunks);
  }
  EXPECT_EQ(named("search").chunks.usual, 2U);
  EXPECT_EQ(named("search").usual_limit, 1);
}

TEST(Search, PassesTheCheckerWithOneAndWithTwoChunks) {
  for (const std::uint32_t chunks : {1U, 2U}) {
    const ScheduleShape shape{.depth = 3, .microbatches_per_update = 7, .chunks = chunks};
    const Program program = lower(named("search"), shape, {Transfers::overlapped});
    const DependencyTable table(program.ops, program.placement, program.microbatches());
    EXPECT_TRUE(check(program, table).empty()) << chunks;
  }
}

TEST(Search, RefusesLimitsBelowOneMicrobatchAndNamesTheLeast) {
  ScheduleShape shape{.depth = 4, .microbatches_per_update = 8, .chunks = 1};
  shape.memory_limit = 0.2;
  for (const std::uint32_t chunks : {1U, 2U}) {
    shape.chunks = chunks;
    const Refusal refusal = named("search").refuse(shape);
    EXPECT_EQ(refusal.key, "memory_limit");
    EXPECT_NE(refusal.why.find("0.25"), std::string::npos) << refusal.why;
    ScheduleShape least = shape;
    least.memory_limit = 0.25;
    EXPECT_EQ(named("search").refuse(least).why, "");
  }
}

TEST(Search, RefusesOtherNumbersOfLimitsChunksAndReplicas) {
  ScheduleShape shape{.depth = 4, .microbatches_per_update = 8, .chunks = 2};
  shape.memory_limits = {1, 1};
  EXPECT_NE(named("search").refuse(shape).why.find("2 values for 4 devices"), std::string::npos);
  shape.memory_limits.clear();
  shape.chunks = 3;
  EXPECT_EQ(named("search").refuse(shape).key, "chunks");
  shape.chunks = 1;
  shape.replicas = PerStage<int>(std::vector<int>{1, 2, 1, 1});
  EXPECT_EQ(named("search").refuse(shape).key, "width");
}

TEST(Search, FindsTheSameOrderEveryTime) {
  for (const std::uint32_t chunks : {1U, 2U}) {
    const ScheduleShape shape{.depth = 3, .microbatches_per_update = 8, .chunks = chunks};
    const OpLists once = order_of("search", shape), again = order_of("search", shape);
    for (int d = 0; d < 3; ++d) EXPECT_EQ(tokens_of(once, d), tokens_of(again, d));
  }
}

}  // namespace
}  // namespace penstock::search_test
