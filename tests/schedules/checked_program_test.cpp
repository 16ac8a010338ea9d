// SPDX-License-Identifier: Apache-2.0
// Programs that are made once for all who ask: the same as made anew, and not too many of them.
#include "schedules/checked_program.hpp"

#include "program/check.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::checked_program_test {
namespace {

const Schedule& named(const char* name) { return *find_schedule(name); }

ScheduleShape shape_of(std::uint32_t depth, std::uint32_t microbatches) {
  return {.depth = depth, .microbatches_per_update = microbatches};
}

TEST(CheckedProgram, IsWhatLoweringAndTheCheckerSay) {
  ScheduleShape shape = shape_of(4, 6);
  shape.replicas = 2;
  const LoweringOptions options;
  const CheckedProgram made(named("1f1b"), shape, options);
  const Program program = lower(named("1f1b"), shape, options);
  ASSERT_EQ(made.program.ops.size(), program.ops.size());
  for (int d = 0; d < program.ops.devices(); ++d) {
    EXPECT_TRUE(std::ranges::equal(made.program.ops.of_device(d), program.ops.of_device(d))) << d;
    EXPECT_EQ(made.facts[static_cast<std::size_t>(d)].stash_peak,
              order_facts(program, d).stash_peak);
  }
  EXPECT_TRUE(made.problems.empty());
  EXPECT_TRUE(made.deadlock().empty());
}

TEST(CheckedProgram, OneThatDeadlocksSaysSoWhenAsked) {
  ScheduleShape shape = shape_of(2, 4);
  shape.chunks = 2;
  const CheckedProgram made(named("looped-bfs"), shape, {.transfers = Transfers::coupled});
  EXPECT_TRUE(made.problems.empty());
  EXPECT_FALSE(made.deadlock().empty());
  EXPECT_EQ(made.deadlock(), check(made.program, made.table));
}

TEST(ProgramCache, WhoAsksForTheSameSharesOneProgram) {
  ProgramCache cache;
  const auto first = cache.get(named("1f1b"), shape_of(4, 8), {});
  EXPECT_EQ(cache.get(named("1f1b"), shape_of(4, 8), {}), first);
}

TEST(ProgramCache, AnythingThatChangesTheProgramMakesAnother) {
  ProgramCache cache;
  const ScheduleShape shape = shape_of(4, 8);
  const auto first = cache.get(named("1f1b"), shape, {});
  EXPECT_NE(cache.get(named("gpipe"), shape, {}), first);
  EXPECT_NE(cache.get(named("1f1b"), shape_of(4, 9), {}), first);
  EXPECT_NE(cache.get(named("1f1b"), shape, {.transfers = Transfers::blocking}), first);
  ScheduleShape timed = shape;
  timed.times.assign(4, {.forward = 1.5});
  EXPECT_NE(cache.get(named("1f1b"), timed, {}), first);
  ScheduleShape twice = shape, uneven = shape;
  twice.replicas = 2;
  uneven.replicas = PerStage<int>(std::vector<int>{1, 2, 1, 1});
  const auto replicated = cache.get(named("1f1b"), twice, {});
  EXPECT_NE(replicated, first);
  EXPECT_NE(cache.get(named("1f1b"), uneven, {}), replicated);
  EXPECT_EQ(cache.get(named("1f1b"), shape, {}), first);
}

TEST(ProgramCache, ForgetsWhatNobodyAskedForTheLongest) {
  ProgramCache cache;
  const std::weak_ptr<const CheckedProgram> asked = cache.get(named("1f1b"), shape_of(4, 8), {});
  const std::weak_ptr<const CheckedProgram> left = cache.get(named("gpipe"), shape_of(4, 8), {});
  for (std::uint32_t m = 9; m < 40; ++m) {
    cache.get(named("1f1b"), shape_of(4, m), {});
    cache.get(named("1f1b"), shape_of(4, 8), {});
  }
  EXPECT_FALSE(asked.expired());
  EXPECT_TRUE(left.expired());
}

TEST(ProgramCache, KeepsNoProgramOfManyOps) {
  ProgramCache cache;
  const std::weak_ptr<const CheckedProgram> large =
      cache.get(named("1f1b"), shape_of(8, 16'000), {});
  EXPECT_TRUE(large.expired());
}

}  // namespace
}  // namespace penstock::checked_program_test
