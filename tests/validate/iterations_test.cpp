// SPDX-License-Identifier: Apache-2.0
#include "tests/rig.hpp"
#include "validate/iterations.hpp"
#include "base/statistics.hpp"

#include <gtest/gtest.h>

namespace penstock::iterations_test {
namespace {

std::vector<double> samples(const Rig& rig) {
  return iteration_samples(rig.program, simulate_exact(rig.input()), compared_updates(rig.program));
}

TEST(Iterations, SkipTwoWarmUpBatchesOfFourOneOfTwoNoneOfOne) {
  const auto first = [](std::uint32_t batches) {
    return compared_updates(Rig({.shape = {4, 8, batches}}).program).first;
  };
  EXPECT_EQ(first(1), 0U);
  EXPECT_EQ(first(2), 1U);
  EXPECT_EQ(first(3), 1U);
  EXPECT_EQ(first(4), 2U);
  EXPECT_EQ(first(9), 2U);
  EXPECT_TRUE(compared_updates(Rig({.shape = {4, 8, 1}}).program).whole_run);
}

TEST(Iterations, OfFlushingSchedulesTakeTheirClosedForm) {
  // (m + p - 1)(F + B)
  const std::vector<double> times = samples(Rig({.shape = {4, 8, 5}}));
  ASSERT_EQ(times.size(), 3U);
  for (const double t : times) EXPECT_DOUBLE_EQ(t, 33);
  EXPECT_EQ(samples(Rig({.shape = {4, 8, 1}})), std::vector<double>{33});
}

TEST(Iterations, WithoutAFlushHaveNoBubble) {
  // An update of PipeDream is a microbatch, F + B; of 2BW it is m of them.
  const Rig pipedream({.schedule = "pipedream", .shape = {4, 1, 40}});
  const SteadyUpdates steady = compared_updates(pipedream.program);
  EXPECT_EQ(steady.first, 8U);  // 2p microbatches
  EXPECT_EQ(steady.step, 4U);   // p microbatches
  EXPECT_LT(steady.end, 40U);   // the drain is left out
  const auto times = samples(pipedream);
  ASSERT_GE(times.size(), 6U);
  for (const double t : times) EXPECT_DOUBLE_EQ(t, 3);
  for (const double t : samples(Rig({.schedule = "pipedream-2bw", .shape = {4, 8, 8}})))
    EXPECT_DOUBLE_EQ(t, 24);
}

TEST(Iterations, OfARunTooShortForASteadyStateAreTheWholeRun) {
  const Rig rig({.schedule = "pipedream", .shape = {4, 1, 5}});
  EXPECT_TRUE(compared_updates(rig.program).whole_run);
  const Timeline t = simulate_exact(rig.input());
  EXPECT_DOUBLE_EQ(samples(rig).at(0), t.op(rig.program.ops.end(0) - 1).end_s / 5);
}

TEST(Iterations, ThatMissAnOpAreLeftOut) {
  const Rig rig({.shape = {2, 2, 6}});
  Timeline t = simulate_exact(rig.input());
  const SteadyUpdates steady = compared_updates(rig.program);
  EXPECT_EQ(iteration_samples(rig.program, t, steady).size(), 4U);
  t.op(rig.table.backward(0, 2 * 5)) = {-1, -1};  // of the last batch
  EXPECT_EQ(iteration_samples(rig.program, t, steady).size(), 3U);
  t.op(rig.table.forward(1, 2 * 3)) = {-1, -1};  // an end is missing on both of its sides
  EXPECT_EQ(iteration_samples(rig.program, t, steady).size(), 1U);
}

TEST(Iterations, DoNotNeedStepsThatTakeNoTime) {
  const Rig rig({.shape = {2, 2, 6}});
  Timeline t = simulate_exact(rig.input());
  const auto whole = iteration_samples(rig.program, t, compared_updates(rig.program));
  for (std::uint32_t g = 0; g < rig.program.ops.size(); ++g) {
    if (rig.program.ops[g].kind == OpKind::step) t.op(g) = {-1, -1};
  }
  EXPECT_EQ(iteration_samples(rig.program, t, compared_updates(rig.program)), whole);
}

}  // namespace
}  // namespace penstock::iterations_test
