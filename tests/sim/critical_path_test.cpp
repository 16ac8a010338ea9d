// SPDX-License-Identifier: Apache-2.0
// The critical path of real runs: from 0 to the end of the run without a wait that nothing
// explains.
#include "tests/random_shape.hpp"
#include "tests/rig.hpp"
#include "sim/path_contention.hpp"
#include "traces/metrics.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace penstock::critical_path_test {
namespace {

std::vector<PathSegment> path_of(const Rig& rig, const Timeline& timeline) {
  return critical_path({rig.program, rig.table, timeline}, reduction_parts(rig.input()));
}

/// From 0 to the end of the run, without a wait that nothing explains.
void expect_chain(const std::vector<PathSegment>& path, double makespan_s) {
  ASSERT_FALSE(path.empty());
  EXPECT_EQ(path.front().start_s, 0);
  EXPECT_EQ(path.back().end_s, makespan_s);
  for (std::size_t i = 0; i < path.size(); ++i) {
    ASSERT_NE(path[i].kind, PathSegment::Kind::wait);
    ASSERT_LE(path[i].start_s, path[i].end_s);
    if (i > 0) {
      ASSERT_EQ(path[i - 1].end_s, path[i].start_s);
    }
  }
}

double seconds_of(const std::vector<PathSegment>& path, PathSegment::Kind kind) {
  double sum = 0;
  for (const PathSegment& p : path) sum += p.kind == kind ? p.end_s - p.start_s : 0;
  return sum;
}

/// The part of the stage that is complete first begins the chain, long before the last backward.
TEST(CriticalPath, EntersAReductionAtTheStageThatWasCompleteFirst) {
  RigSpec spec{"interleaved-1f1b", {2, 2, 1, false, 0}};
  spec.shape.chunks = 2;
  spec.width = 2;
  spec.costs.assign(4, unit_costs(1, 2));
  for (StageCosts& c : spec.costs) c.reduce_grad_s = 5, c.reduced_bytes = 1;
  spec.reduction.buckets = {{{1, 0.5, 0}, {1, 0.5, 2}}, {{1, 0.5, 1}, {1, 0.5, 3}}};
  const Rig rig(spec);
  const Timeline timeline = simulate_exact(rig.input());
  const std::vector<PathSegment> path =
      critical_path({rig.program, rig.table, timeline}, reduction_parts(rig.input()));
  const auto reduction = std::ranges::find(path, PathSegment::Kind::reduction, &PathSegment::kind);
  ASSERT_NE(reduction, path.end());
  EXPECT_DOUBLE_EQ(reduction->end_s - reduction->start_s, 10);
  ASSERT_NE(reduction, path.begin());
  EXPECT_DOUBLE_EQ((reduction - 1)->end_s, reduction->start_s);
}

TEST(CriticalPath, OfEveryPredictedRunIsAChainOfDependencies) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
  };
  for (int run = 0; run < fewer(400); ++run) {
    RigSpec spec;
    const Schedule& schedule = random_schedule(random);
    spec.schedule = schedule.name;
    spec.shape = random_shape(schedule, random, 6, 12);
    spec.width = static_cast<int>(pick(1, 3));
    spec.transfers = random_transfers(schedule, spec.shape, random);
    if (schedule.flushes()) spec.step_sync = static_cast<StepSync>(pick(0, 2));
    spec.detached = schedule.update == UpdateRule::double_buffer && pick(0, 1) == 0;
    divide_reduction(spec);
    for (std::uint32_t s = 0; s < spec.shape.depth; ++s)
      if (pick(0, 1) == 0) spec.reduction.buckets[s] = {{1, 1}};
    for (std::uint32_t s = 0; s < stages_of(schedule, spec.shape); ++s) {
      StageCosts c = unit_costs(pick(1, 5), pick(1, 9));
      c.step_s = pick(0, 4);
      c.reduce_grad_s = pick(0, 4);
      c.output_bytes = pick(0, 6);
      spec.costs.push_back(c);
    }
    spec.link = {.latency_s = static_cast<double>(pick(0, 2)), .bytes_per_s = 2};
    const Rig rig(spec);
    SCOPED_TRACE(spec.schedule + " " + std::string(to_string(spec.transfers)) + " run " +
                 std::to_string(run));
    const Timeline timeline = simulate_exact(rig.input());
    const auto path = path_of(rig, timeline);
    expect_chain(path, timeline.makespan_s);
    for (const PathSegment& p : path) EXPECT_EQ(p.contended_s, 0);
  }
}

TEST(CriticalPath, GoesThroughTheLastMemberOfABarrier) {
  // A global step, steps of 1, 1 and 5 s: device 0's last backward holds up all of them.
  std::vector<StageCosts> costs(3, unit_costs());
  costs[0].step_s = costs[1].step_s = 1;
  costs[2].step_s = 5;
  const Rig rig({.shape = {3, 3, 1}, .step_sync = StepSync::global, .costs = costs});
  const Timeline timeline = simulate_exact(rig.input());
  const auto path = path_of(rig, timeline);
  ASSERT_GE(path.size(), 2U);
  EXPECT_EQ(path.back().device, 2);
  EXPECT_EQ(path[path.size() - 2].device, 0);
  EXPECT_EQ(path[path.size() - 2].end_s, path.back().start_s);
}

TEST(CriticalPath, NamesTheReductionByItself) {
  std::vector<StageCosts> costs(2, unit_costs());
  costs[0].reduce_grad_s = costs[1].reduce_grad_s = 4;
  const Rig rig({.shape = {2, 1, 1}, .width = 2, .costs = costs});
  const auto path = path_of(rig, simulate_exact(rig.input()));
  EXPECT_EQ(seconds_of(path, PathSegment::Kind::reduction), 4);
}

/// 2BW on one stage of two replicas: 3 s of compute per batch, `reduction_s` beside the next one.
RigSpec detached(double reduction_s, std::uint32_t batches) {
  StageCosts c = unit_costs(1, 2);
  c.reduce_grad_s = reduction_s;
  return {.schedule = "pipedream-2bw",
          .shape = {1, 1, batches},
          .width = 2,
          .costs = {c},
          .detached = true};
}

TEST(CriticalPath, MeetsADetachedReductionOnlyAtTheEndWhenComputingTakesLonger) {
  const Rig rig(detached(2, 6));
  const Timeline timeline = simulate_exact(rig.input());
  const auto path = path_of(rig, timeline);
  expect_chain(path, 6 * 3 + 2);
  ASSERT_EQ(path.size(), 3U);  // all computing, the last reduction, its step
  EXPECT_EQ(path[1].kind, PathSegment::Kind::reduction);
  EXPECT_EQ(path[1].start_s, 18);
}

TEST(CriticalPath, GoesFromReductionToReductionWhenTheyTakeLonger) {
  // B 0 ends at 3, then six reductions of 10 s one after the other.
  const Rig rig(detached(10, 6));
  const Timeline timeline = simulate_exact(rig.input());
  const auto path = path_of(rig, timeline);
  expect_chain(path, timeline.makespan_s);
  EXPECT_GE(seconds_of(path, PathSegment::Kind::reduction), 10 * 3);
  EXPECT_LT(seconds_of(path, PathSegment::Kind::compute), 3 * 6);
}

TEST(CriticalPath, LeavesABackwardWhereTheFirstPartOfItsGradientWasReady) {
  // F 0-1, B 1-3, parts of 4 s from 2 on: computing until 2, then reducing until 10.
  std::vector<StageCosts> costs(1, unit_costs(1, 2));
  costs[0].reduce_grad_s = 8;
  RigSpec spec{.shape = {1, 1, 1}, .width = 2, .costs = costs};
  spec.reduction.buckets = {{{0.5, 0.5}, {1, 0.5}}};
  const Rig early(spec);
  auto path = path_of(early, simulate_exact(early.input()));
  expect_chain(path, 10);
  EXPECT_EQ(path[0].kind, PathSegment::Kind::compute);
  EXPECT_EQ(path[0].end_s, 2);
  // With parts of half a second it is the last one that is waited for.
  spec.costs[0].reduce_grad_s = 1;
  const Rig late(spec);
  path = path_of(late, simulate_exact(late.input()));
  expect_chain(path, 3.5);
  EXPECT_EQ(path[0].end_s, 3);
}

/// Two pipelines of two stages between two nodes with one NIC each; F = 1 s, B = 2 s.
Rig through_one_nic(std::int64_t output_bytes, std::int64_t reduced_bytes, bool fifo = false) {
  StageCosts c = unit_costs(1, 2);
  c.output_bytes = output_bytes;
  c.reduced_bytes = reduced_bytes;
  RigSpec spec{.schedule = "gpipe", .shape = {2, 1, 1}, .width = 2, .costs = {c, c}};
  spec.reduction.priced = reduced_bytes == 0;
  if (output_bytes == 0) spec.transfers = Transfers::free;
  Rig rig(spec);
  rig.cluster.link.reset();
  rig.cluster.nodes = 2;
  rig.cluster.devices_per_node = 2;
  const double latency_s = reduced_bytes == 0 ? 0.25 : 0;
  rig.cluster.inter = {.latency_s = latency_s, .bytes_per_s = 1e9, .fifo = fifo};
  // Messages: stage 0 in node 0, stage 1 in node 1. Reductions: a replica in each.
  std::vector<int> gpus{0, 2, 1, 3};
  if (reduced_bytes > 0) gpus = {0, 1, 2, 3};
  rig.traffic =
      std::make_unique<Traffic>(rig.program, rig.cluster, one_gpu_each(gpus), rig.reduction);
  return rig;
}

/// Start, end, loss and link of the path's segments of a kind, from a run in a child process.
std::vector<double> contended_segments(const Rig& rig, PathSegment::Kind kind) {
  std::vector<double> out;
  for (const PathSegment& p : contended_path(rig.input(), simulate_simgrid(rig.input()))) {
    if (p.kind == kind)
      out.insert(out.end(), {p.start_s, p.end_s, p.contended_s, static_cast<double>(p.link)});
  }
  return out;
}

double link_number(const Rig& rig, const std::string& name) {
  const auto& links = rig.traffic->links();
  return static_cast<double>(std::ranges::find(links, name, &NetworkLink::name) - links.begin());
}

void expect_segments(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-8) << i;
}

TEST(PathContention, IsWhatAMessageLosesToOthersOnItsLink) {
  // 1 GB at half of 1 GB/s, from 1 on: two seconds and a latency; the same for the gradients.
  const Rig rig = through_one_nic(1'000'000'000, 0);
  expect_segments(contended_segments(rig, PathSegment::Kind::transfer),
                  {1, 3.25, 1, link_number(rig, "node0 nic0 out"),  //
                   6.25, 8.5, 1, link_number(rig, "node1 nic0 out")});
}

TEST(PathContention, IsTheTimeInLineAtAFifoLink) {
  // The second message leaves when the first one has; its gradient is alone.
  const Rig rig = through_one_nic(1'000'000'000, 0, true);
  expect_segments(contended_segments(rig, PathSegment::Kind::transfer),
                  {1, 3.25, 1, link_number(rig, "node0 nic0 out"), 6.25, 7.5, 0, -1});
}

TEST(PathContention, IsWhatAReductionLosesToThatOfAnotherStage) {
  // 3 GB around a ring of two: stage 1 from 4 on, stage 0 from 6 to 10, both slow until 8.
  const Rig rig = through_one_nic(0, 3'000'000'000);
  const auto found = contended_segments(rig, PathSegment::Kind::reduction);
  ASSERT_EQ(found.size(), 4U);
  expect_segments({found[0], found[1], found[2]}, {6, 10, 1});
  EXPECT_GE(found[3], 0);  // the stages use the four ports alike
}

}  // namespace
}  // namespace penstock::critical_path_test
