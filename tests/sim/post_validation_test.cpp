// SPDX-License-Identifier: Apache-2.0
// Optimizer post-validation: a STEP waits for the partial norm of the position before.
#include "tests/random_shape.hpp"
#include "tests/rig.hpp"
#include "traces/metrics.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::post_validation_test {
namespace {

constexpr auto kPostValidation = StepSync::post_validation;

/// When each device steps, update by update.
std::vector<std::vector<double>> steps(const Rig& rig, const Timeline& timeline) {
  std::vector<std::vector<double>> starts;
  const OpLists& ops = rig.program.ops;
  for (int d = 0; d < ops.devices(); ++d) {
    auto& mine = starts.emplace_back();
    for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g)
      if (ops[g].kind == OpKind::step) mine.push_back(timeline.op(g).start_s);
  }
  return starts;
}

std::vector<std::vector<double>> steps(const RigSpec& spec) {
  const Rig rig(spec);
  return steps(rig, simulate_exact(rig.input()));
}

/// Of one microbatch with F = 1, B = 2 everywhere, but the last backward of each stage as given.
std::vector<StageCosts> backwards(const std::vector<double>& backward_s) {
  std::vector<StageCosts> costs;
  for (const double b : backward_s) costs.push_back(unit_costs(1, b));
  return costs;
}

TEST(PostValidation, ADeviceThatIsDoneEarlyWaitsForTheNorm) {
  // The backwards end at 4 on device 1 and at 6 on device 0, where the norm begins.
  EXPECT_EQ(steps({.shape = {2, 1, 1}}), (std::vector<std::vector<double>>{{6}, {4}}));
  EXPECT_EQ(steps({.shape = {2, 1, 1}, .step_sync = kPostValidation}),
            (std::vector<std::vector<double>>{{6}, {6}}));
}

TEST(PostValidation, TheNormGoesFromPositionToPositionAndTakesTheLatencyOfEachLink) {
  // Latency 0.5: forwards end at 1, 2.5, 4; backwards of 2, 3 and 4 s at 8, 11.5, 14.
  const RigSpec spec{.shape = {3, 1, 1},
                     .step_sync = kPostValidation,
                     .costs = backwards({2, 3, 4}),
                     .link = {.latency_s = 0.5}};
  EXPECT_EQ(steps(spec), (std::vector<std::vector<double>>{{14}, {14.5}, {15}}));
}

TEST(PostValidation, ADeviceThatIsReadyLaterHandsOnWhatItGotWhenItSteps) {
  // Zero bubble: W runs after the input gradient has left. W of 9 s on device 1 makes it the last,
  // and device 2 waits for it, a latency of 0.25 s later.
  auto costs = backwards({2, 2, 2});
  for (StageCosts& c : costs)
    c[OpKind::backward_input].seconds = c[OpKind::backward_weight].seconds = 1;
  costs[1][OpKind::backward_weight].seconds = 9;
  const auto by_itself =
      steps({.schedule = "zb-h1", .shape = {3, 1, 1}, .costs = costs, .link = {.latency_s = 0.25}});
  // F ends at 1, 2.25, 3.5; I at 4.5, 5.75, 7; W at 5.5, 14.75, 8.
  EXPECT_EQ(by_itself, (std::vector<std::vector<double>>{{8}, {14.75}, {5.5}}));
  const auto chained = steps({.schedule = "zb-h1",
                              .shape = {3, 1, 1},
                              .step_sync = kPostValidation,
                              .costs = costs,
                              .link = {.latency_s = 0.25}});
  EXPECT_EQ(chained, (std::vector<std::vector<double>>{{8}, {14.75}, {15}}));
}

TEST(PostValidation, ANormTakesNoBandwidthAndWaitsBehindNoMessage) {
  auto costs = backwards({2, 2});
  for (StageCosts& c : costs) c.output_bytes = 10;
  const auto at = steps({.shape = {2, 1, 1},
                         .step_sync = kPostValidation,
                         .costs = costs,
                         .link = {.latency_s = 1, .bytes_per_s = 10}});
  // F0 1, message 2, F1 ends at 4, B1 at 6, message 2, B0 ends at 10; the norm takes 1 s.
  EXPECT_EQ(at, (std::vector<std::vector<double>>{{10}, {11}}));
}

TEST(PostValidation, WithFreeTransfersTheNormTakesNoTime) {
  const auto at = steps({.shape = {4, 1, 1},
                         .transfers = Transfers::free,
                         .step_sync = kPostValidation,
                         .link = {.latency_s = 7}});
  for (const auto& device : at) EXPECT_EQ(device, std::vector<double>{12});
}

TEST(PostValidation, EveryReplicaHasANormOfItsOwnAfterTheReduction) {
  auto costs = backwards({2, 2});
  costs[0].reduce_grad_s = 4;
  const auto at = steps({.shape = {2, 1, 1},
                         .width = 2,
                         .step_sync = kPostValidation,
                         .costs = costs,
                         .link = {.latency_s = 0.5}});
  // Backwards end at 7 and 4.5, the reduction of position 0 at 11.
  EXPECT_EQ(at, (std::vector<std::vector<double>>{{11}, {11.5}, {11}, {11.5}}));
}

TEST(PostValidation, ReplicasOfUnlikeNumberTakeTheNormFromWhomTheirMessagesComeFrom) {
  RigSpec spec{.schedule = "gpipe", .shape = {2, 1, 1}, .step_sync = kPostValidation};
  spec.shape.replicas = PerStage<int>(std::vector<int>{2, 4});
  const Rig rig(spec);
  const Placement& placement = rig.program.placement;
  for (std::uint32_t r = 0; r < 4; ++r)
    EXPECT_EQ(placement.norm_from(placement.device_at(r, 1)), placement.device_at(r % 2, 0));
  const auto at = steps(rig, simulate_exact(rig.input()));
  for (const auto& device : at) EXPECT_EQ(device.size(), 1U);
}

TEST(PostValidation, MirroredTheNormGoesFromEitherEndToTheMiddle) {
  const Rig rig({.schedule = "chimera", .shape = {4, 4, 1}, .step_sync = kPostValidation});
  const Placement& placement = rig.program.placement;
  EXPECT_EQ(placement.norm_from(0), -1);
  EXPECT_EQ(placement.norm_from(1), 0);
  EXPECT_EQ(placement.norm_from(2), 3);
  EXPECT_EQ(placement.norm_from(3), -1);
}

TEST(PostValidation, AStageThatGoesThereAndBackIsCountedWithItsDevice) {
  const Rig rig({.schedule = "zb-v",
                 .shape = {.depth = 3, .microbatches_per_update = 6, .batches = 1, .chunks = 2},
                 .step_sync = kPostValidation});
  const auto at = steps(rig, simulate_exact(rig.input()));
  ASSERT_EQ(at.size(), 3U);
  for (const auto& device : at) EXPECT_EQ(device.size(), 1U);
  EXPECT_LE(at[0][0], at[1][0]);
  EXPECT_LE(at[1][0], at[2][0]);
}

TEST(PostValidation, TheWaitForTheNormCountsAsGradientReduction) {
  const Rig rig({.shape = {2, 1, 1}, .step_sync = kPostValidation});
  const Timeline timeline = simulate_exact(rig.input());
  const TimelineView view{rig.program, rig.table, timeline};
  const auto idle = device_metrics(view, 1).idle_s;
  EXPECT_EQ(idle[static_cast<std::size_t>(Cause::gradient_reduction)], 2);
  EXPECT_EQ(idle[static_cast<std::size_t>(Cause::drain)], 0);
}

TEST(PostValidation, TheCriticalPathFollowsTheNorm) {
  auto costs = backwards({2, 2});
  costs[1].step_s = 3;
  const Rig rig({.shape = {2, 1, 1},
                 .step_sync = kPostValidation,
                 .costs = costs,
                 .link = {.latency_s = 0.5}});
  const Timeline timeline = simulate_exact(rig.input());
  const auto path = critical_path({rig.program, rig.table, timeline}, {});
  // Device 0's backward ends at 7, the norm is at device 1 at 7.5, whose step ends at 10.5.
  ASSERT_GE(path.size(), 3U);
  const PathSegment& step = path.back();
  const PathSegment& norm = path[path.size() - 2];
  EXPECT_EQ(step.device, 1);
  EXPECT_EQ(step.start_s, 7.5);
  EXPECT_EQ(step.end_s, 10.5);
  EXPECT_EQ(norm.kind, PathSegment::Kind::transfer);
  EXPECT_EQ(norm.start_s, 7);
  EXPECT_EQ(path[path.size() - 3].device, 0);
  EXPECT_EQ(path[path.size() - 3].end_s, 7);
}

/// Every STEP starts when the later of its own gradients and the norm is there.
TEST(PostValidation, LiesBetweenStepsByThemselvesAndABarrierWhereLatencyIsNothing) {
  std::mt19937_64 random(5);
  int later = 0, earlier = 0;
  for (int run = 0; run < 300; ++run) {
    const Schedule& schedule = random_schedule(random);
    if (!schedule.flushes()) continue;
    RigSpec spec{.schedule = std::string(schedule.name),
                 .shape = random_shape(schedule, random, 8, 16)};
    spec.transfers = random_transfers(schedule, spec.shape, random);
    spec.width = static_cast<int>(random_between(random, 1, 2));
    for (std::uint32_t s = 0; s < stages_of(schedule, spec.shape); ++s) {
      StageCosts c = unit_costs(random_between(random, 1, 9), random_between(random, 2, 20));
      c.step_s = random_between(random, 0, 4);
      c.reduce_grad_s = random_between(random, 0, 4);
      spec.costs.push_back(c);
    }
    SCOPED_TRACE(spec.schedule + " run " + std::to_string(run));
    double makespan_s[3];
    for (const StepSync sync : {StepSync::device, kPostValidation, StepSync::global}) {
      spec.step_sync = sync;
      const Rig rig(spec);
      makespan_s[static_cast<std::size_t>(sync)] = simulate_exact(rig.input()).makespan_s;
    }
    const auto [by_itself, global, chained] = makespan_s;
    ASSERT_LE(by_itself, chained);
    ASSERT_LE(chained, global);
    later += by_itself < chained;
    earlier += chained < global;
  }
  EXPECT_GT(later, 5);
  EXPECT_GT(earlier, 5);
}

}  // namespace
}  // namespace penstock::post_validation_test
