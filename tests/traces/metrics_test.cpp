// SPDX-License-Identifier: Apache-2.0
#include "traces/metrics.hpp"

#include "hand_made.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace penstock::metrics_test {
namespace {

void expect_gap(const Gap& gap, double start, double end, Cause cause, std::uint32_t op) {
  EXPECT_DOUBLE_EQ(gap.span.start_s, start);
  EXPECT_DOUBLE_EQ(gap.span.end_s, end);
  EXPECT_EQ(gap.cause, cause);
  EXPECT_EQ(gap.op, op);
}

TEST(Gaps, SplitIntoImbalanceUntilThePeerIsDoneThenTransferWait) {
  const HandMade run(two_stages());
  const auto gaps = run.gaps(0);
  ASSERT_EQ(gaps.size(), 2u);
  expect_gap(gaps[0], 1, 5, Cause::imbalance, 1);
  expect_gap(gaps[1], 5, 6, Cause::transfer_wait, 1);
  EXPECT_EQ(gaps[0].message, kNoOp);
  EXPECT_EQ(gaps[1].message, 1u);
}

TEST(Gaps, BeforeTheFirstOpAreWarmupAndAfterTheLastDrain) {
  const HandMade run(two_stages());
  const auto gaps = run.gaps(1);
  ASSERT_EQ(gaps.size(), 2u);
  expect_gap(gaps[0], 0, 2, Cause::warmup, 2);
  expect_gap(gaps[1], 5, 8, Cause::drain, kNoOp);
}

TEST(Gaps, OfADeviceWithoutOpsAreAllDrain) {
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 1}}, {}});
  const auto gaps = run.gaps(1);
  ASSERT_EQ(gaps.size(), 1u);
  expect_gap(gaps[0], 0, 1, Cause::drain, kNoOp);
}

// The receiver is busy until 2, so the rendezvous of F 0's output lasts from 2 to 3.
std::vector<std::vector<TimedOp>> held_sender() {
  return {{{OpKind::forward, 0, 0, kOut, 0, 1}, {OpKind::forward, 0, 1, 0, 3, 4}},
          {{OpKind::backward, 1, 1, 0, 0, 2}, {OpKind::forward, 1, 0, kIn, 3, 4, {2, 3}}}};
}

TEST(Gaps, OfAHeldSenderAreImbalanceUntilItsMessageLeavesThenTransferWait) {
  for (const Transfers transfers : {Transfers::coupled, Transfers::blocking}) {
    HandMade run(held_sender());
    run.program.transfers = transfers;
    const auto gaps = run.gaps(0);
    ASSERT_EQ(gaps.size(), 2u);
    expect_gap(gaps[0], 1, 2, Cause::imbalance, 1);
    expect_gap(gaps[1], 2, 3, Cause::transfer_wait, 1);
    EXPECT_EQ(gaps[1].message, 3u) << "its own send is what holds it";
  }
}

TEST(Gaps, OfAnOverlappedSenderAreNotItsOwnMessage) {
  const HandMade run(held_sender());
  const auto gaps = run.gaps(0);
  ASSERT_EQ(gaps.size(), 1u);
  expect_gap(gaps[0], 1, 3, Cause::imbalance, 1);
}

TEST(Gaps, TwoMessagesInOneGapNeverCountTwice) {
  // Stage 0's B 0 waits for its message (3 to 5) while its own send of F 0 lasts from 1 to 4.
  HandMade run(
      {{{OpKind::forward, 0, 0, kOut, 0, 1}, {OpKind::backward, 0, 1, kIn, 6, 7, {3, 5}}},
       {{OpKind::backward, 1, 1, kOut, 0, 3}, {OpKind::forward, 1, 0, kIn, 4, 5, {1, 4}}}});
  run.program.transfers = Transfers::blocking;
  const auto gaps = run.gaps(0);
  ASSERT_EQ(gaps.size(), 3u);
  expect_gap(gaps[0], 1, 4, Cause::transfer_wait, 1);
  expect_gap(gaps[1], 4, 5, Cause::transfer_wait, 1);
  expect_gap(gaps[2], 5, 6, Cause::imbalance, 1);
}

std::vector<std::vector<TimedOp>> with_reduction() {
  return {{{OpKind::backward, 0, 0, 0, 0, 2},
           {OpKind::reduce_grad, 0, 0, 0, 4, 5},
           {OpKind::step, 0, 0, 0, 5, 6}}};
}

TEST(Gaps, BeforeAndDuringTheReductionAreGradientReduction) {
  const HandMade run(with_reduction());
  const auto gaps = run.gaps(0);
  ASSERT_EQ(gaps.size(), 2u);
  expect_gap(gaps[0], 2, 4, Cause::gradient_reduction, 1);
  expect_gap(gaps[1], 4, 5, Cause::gradient_reduction, 1);
}

TEST(DeviceMetrics, OptimizerStepsAreBusyAndReductionsAreNot) {
  const HandMade run(with_reduction());
  const DeviceMetrics metrics = device_metrics(run.view(), 0);
  EXPECT_DOUBLE_EQ(metrics.busy_s, 3);
  EXPECT_DOUBLE_EQ(metrics.stage_time_s, 6);
  EXPECT_DOUBLE_EQ(metrics.idle_s[static_cast<std::size_t>(Cause::gradient_reduction)], 3);
}

TEST(DeviceMetrics, BusyAndIdleAddUpToTheMakespan) {
  for (const auto& ops : {two_stages(), held_sender(), with_reduction()}) {
    for (const Transfers transfers :
         {Transfers::free, Transfers::overlapped, Transfers::coupled, Transfers::blocking}) {
      HandMade run(ops);
      run.program.transfers = transfers;
      for (int d = 0; d < run.program.ops.devices(); ++d) {
        const DeviceMetrics metrics = device_metrics(run.view(), d);
        const double idle = std::accumulate(metrics.idle_s.begin(), metrics.idle_s.end(), 0.0);
        EXPECT_DOUBLE_EQ(metrics.busy_s + idle, run.timeline->makespan_s) << "device " << d;
      }
    }
  }
}

void expect_segment(const PathSegment& s, PathSegment::Kind kind, int device, std::uint32_t first,
                    std::uint32_t last, double start, double end) {
  EXPECT_EQ(s.kind, kind);
  EXPECT_EQ(s.device, device);
  EXPECT_EQ(s.first, first);
  EXPECT_EQ(s.last, last);
  EXPECT_DOUBLE_EQ(s.start_s, start);
  EXPECT_DOUBLE_EQ(s.end_s, end);
}

TEST(CriticalPath, FollowsOpsAndMessagesAndJoinsOpsOfOneDevice) {
  using Kind = PathSegment::Kind;
  const HandMade run(two_stages());
  const auto path = critical_path(run.view());
  ASSERT_EQ(path.size(), 5u);
  expect_segment(path[0], Kind::compute, 0, 0, 0, 0, 1);
  expect_segment(path[1], Kind::transfer, 1, 2, 2, 1, 2);
  expect_segment(path[2], Kind::compute, 1, 2, 3, 2, 5);
  expect_segment(path[3], Kind::transfer, 0, 1, 1, 5, 6);
  expect_segment(path[4], Kind::compute, 0, 1, 1, 6, 8);
}

TEST(CriticalPath, OfAMeasuredRunFollowsWhatCameLastAndShowsTheDelayAsAWait) {
  using Kind = PathSegment::Kind;
  auto ops = two_stages();
  ops[1][0].start_s = 2.25;  // its message was there at 2
  const HandMade run(ops);
  const auto path = critical_path(run.view());
  ASSERT_EQ(path.size(), 6u);
  expect_segment(path[0], Kind::compute, 0, 0, 0, 0, 1);
  expect_segment(path[1], Kind::transfer, 1, 2, 2, 1, 2);
  expect_segment(path[2], Kind::wait, 1, 2, 2, 2, 2.25);
  expect_segment(path[3], Kind::compute, 1, 2, 3, 2.25, 5);
}

TEST(CriticalPath, OfARendezvousComesFromTheReceiverThatWasLate) {
  using Kind = PathSegment::Kind;
  HandMade run(held_sender());
  run.program.transfers = Transfers::coupled;
  const auto path = critical_path(run.view());
  ASSERT_EQ(path.size(), 3u);
  expect_segment(path[0], Kind::compute, 1, 2, 2, 0, 2);
  expect_segment(path[1], Kind::transfer, 1, 3, 3, 2, 3);
  EXPECT_EQ(path[2].kind, Kind::compute);
}

TEST(CriticalPath, ShowsAStartThatNothingExplainsAsAWaitAndTheReductionByItself) {
  using Kind = PathSegment::Kind;
  const HandMade run(with_reduction());
  const auto path = critical_path(run.view());
  ASSERT_EQ(path.size(), 4u);
  expect_segment(path[0], Kind::compute, 0, 0, 0, 0, 2);
  expect_segment(path[1], Kind::wait, 0, 1, 1, 2, 4);
  expect_segment(path[2], Kind::reduction, 0, 1, 1, 4, 5);
  expect_segment(path[3], Kind::compute, 0, 2, 2, 5, 6);
}

TEST(CriticalPath, SegmentsAreContiguousAndEndWithTheRun) {
  for (const auto& ops : {two_stages(), with_reduction()}) {
    const HandMade run(ops);
    const auto path = critical_path(run.view());
    EXPECT_DOUBLE_EQ(path.front().start_s, 0);
    for (std::size_t i = 1; i < path.size(); ++i)
      EXPECT_DOUBLE_EQ(path[i - 1].end_s, path[i].start_s);
    EXPECT_DOUBLE_EQ(path.back().end_s, run.timeline->makespan_s);
  }
}

}  // namespace
}  // namespace penstock::metrics_test
