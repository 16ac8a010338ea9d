// SPDX-License-Identifier: Apache-2.0
// Gradient reductions and uneven replication, against times computed by hand.
#include "tests/rig.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::reduction_test {
namespace {

constexpr double kBandwidth = 1e9;
constexpr double kLatency = 1e-3;

/// One stage with n replicas on private links; F = 1 s, B = 2 s, no step.
RigSpec data_parallel(int n, std::int64_t bytes, std::uint32_t batches = 1) {
  StageCosts c = unit_costs(1, 2);
  c.reduced_bytes = bytes;
  RigSpec spec{.schedule = "1f1b", .shape = {1, 1, batches}, .width = n, .costs = {c}};
  spec.link = {.latency_s = kLatency, .bytes_per_s = kBandwidth};
  spec.reduction.priced = false;
  return spec;
}

/// Makespan of both engines, simgrid with every message as a flow.
std::vector<double> makespans(const Rig& rig) {
  return {simulate_exact(rig.input()).makespan_s,
          simulate_simgrid(rig.input(), {.every_message_a_flow = true}).makespan_s};
}

/// A device with two stages has the gradient of the one before that of the other.
TEST(Reduction, OfAStageBeginsWhenItsOwnLastBackwardHasEnded) {
  RigSpec spec{"interleaved-1f1b", {2, 2, 1, false, 0}};
  spec.shape.chunks = 2;
  spec.width = 2;
  spec.costs.assign(4, unit_costs(1, 2));
  for (StageCosts& c : spec.costs) c.reduce_grad_s = 1, c.reduced_bytes = 1;
  const double after_s = makespans(Rig(spec))[0];  // both, 2 s, after the last backward
  spec.reduction.buckets = {{{1, 0.5, 0}, {1, 0.5, 2}}, {{1, 0.5, 1}, {1, 0.5, 3}}};
  for (const double t : makespans(Rig(spec)))
    EXPECT_DOUBLE_EQ(t, after_s - 1);  // that of stage 2 is hidden
  // Half of each before its backward has ended, which takes 2 s.
  spec.reduction.buckets = {{{0.5, 0.25, 0}, {1, 0.25, 0}, {0.5, 0.25, 2}, {1, 0.25, 2}},
                            {{0.5, 0.25, 1}, {1, 0.25, 1}, {0.5, 0.25, 3}, {1, 0.25, 3}}};
  for (const double t : makespans(Rig(spec))) EXPECT_DOUBLE_EQ(t, after_s - 1.5);
}

TEST(Reduction, ARingTakesTheTextbookTime) {
  for (const int n : {2, 3, 4, 8, 16}) {
    const double bytes = 48e6;
    const double ring = 2 * (n - 1) * kLatency + 2.0 * (n - 1) / n * bytes / kBandwidth;
    for (const double t : makespans(Rig(data_parallel(n, 48'000'000))))
      EXPECT_NEAR(t, 3 + ring, 1e-9 * (3 + ring)) << n;
  }
}

TEST(Reduction, AServerSendsAndReceivesForEverybody) {
  // On links of their own all pushes go at once, then all pulls.
  RigSpec spec = data_parallel(4, 1'000'000'000);
  spec.reduction.algorithm = ReductionAlgorithm::server;
  for (const double t : makespans(Rig(spec))) EXPECT_NEAR(t, 3 + 2 * (1 + kLatency), 1e-9);
}

TEST(Reduction, EverybodySendsEverythingToEverybodyAtOnce) {
  // On links of their own in one step; behind a switch each port carries it for all the others.
  RigSpec spec = data_parallel(4, 1'000'000'000);
  spec.reduction.algorithm = ReductionAlgorithm::all_to_all;
  for (const double t : makespans(Rig(spec))) EXPECT_NEAR(t, 3 + 1 + kLatency, 1e-9);
  Rig rig(spec);
  rig.cluster.link.reset();
  rig.cluster.attachment = Attachment::port;
  rig.cluster.intra = {.latency_s = kLatency, .bytes_per_s = kBandwidth};
  EXPECT_NEAR(price(spec.reduction.exchange(), {{0, 1, 2, 3}}, rig.cluster).seconds(1e9),
              kLatency + 3, 1e-9);
}

TEST(Reduction, TwoTreesMoveTwiceTheBytesOverEveryPort) {
  // Behind a switch: each GPU's port carries the bytes once up and once down, in either direction.
  RigSpec spec = data_parallel(8, 1'000'000'000);
  Rig rig(spec);
  rig.cluster.link.reset();
  rig.cluster.attachment = Attachment::port;
  rig.cluster.intra = {.latency_s = kLatency, .bytes_per_s = kBandwidth};
  std::vector<int> gpus(8);
  std::iota(gpus.begin(), gpus.end(), 0);
  const Exchange tree{.algorithm = ReductionAlgorithm::tree};
  const double alone = price(tree, {gpus}, rig.cluster).seconds(1e9);
  EXPECT_GE(alone, 6 * kLatency + 1.5);
  EXPECT_LE(alone, 6 * kLatency + 2.0 + 1e-9);
}

TEST(Reduction, NodesReduceInsideFirst) {
  Cluster c;
  c.nodes = 2;
  c.devices_per_node = 4;
  c.attachment = Attachment::port;
  c.intra = {.latency_s = 1e-6, .bytes_per_s = 100e9};
  c.inter = {.latency_s = 1e-5, .bytes_per_s = 10e9};
  c.nics_per_node = 4;
  const Exchange options{.algorithm = ReductionAlgorithm::hierarchical};
  // 3/4 of the bytes inside, a quarter of them between the nodes on each NIC, 3/4 inside.
  const double inside = 3 * 1e-6 + 0.75 * 4e9 / 100e9;
  const double between = 2 * 1e-5 + 1e9 / 10e9;
  EXPECT_NEAR(price(options, {{0, 1, 2, 3, 4, 5, 6, 7}}, c).seconds(4e9), 2 * inside + between,
              1e-12);
}

TEST(Reduction, ReductionsThatShareANicTakeTwiceAsLong) {
  // Two stages of two replicas; both replicas of a stage in different nodes with one NIC each.
  StageCosts c = unit_costs(1, 2);
  c.reduced_bytes = 1'000'000'000;
  RigSpec spec{.schedule = "1f1b", .shape = {2, 1, 1}, .width = 2, .costs = {c, c}};
  spec.transfers = Transfers::free;
  spec.reduction.priced = false;
  Rig rig(spec);
  rig.cluster.link.reset();
  rig.cluster.nodes = 2;
  rig.cluster.devices_per_node = 2;
  rig.cluster.inter = {.latency_s = 0, .bytes_per_s = 1e9};
  rig.connect();
  ASSERT_TRUE(rig.traffic->contention().has_value());
  EXPECT_NE(rig.traffic->contention()->first.find("gradient reduction of stage 0"),
            std::string::npos);
  const auto last_end_s = [&](const Timeline& t, int d) {
    return t.op(rig.program.ops.end(d) - 1).end_s;
  };
  const Timeline once = simulate_simgrid(rig.input());
  // Stage 1 reduces from 4 to 5 alone: its backward ends at 4, that of stage 0 at 6.
  for (const int d : {1, 3}) EXPECT_NEAR(last_end_s(once, d), 5, 1e-9);
  for (const int d : {0, 2}) EXPECT_NEAR(last_end_s(once, d), 7, 1e-9);
  // Twice the bytes: from 6 on both share the NICs until stage 1 has its last byte.
  for (StageCosts& costs : rig.costs) costs.reduced_bytes = 3'000'000'000;
  const Timeline twice = simulate_simgrid(rig.input());
  EXPECT_NEAR(last_end_s(twice, 1), 8, 1e-8);   // 2 of 3 GB by 6, the last one at half the rate
  EXPECT_NEAR(last_end_s(twice, 0), 10, 1e-8);  // 1 GB by 8, then alone
}

TEST(Reduction, BucketsRunBesideTheBackward) {
  // F 0-1, B 1-3; parts of 1 GB are there at 2 and 3, each takes 1 s and two latencies.
  RigSpec spec = data_parallel(2, 2'000'000'000);
  spec.reduction.buckets = {{{0.5, 0.5}, {1, 0.5}}};
  const double part = 1 + 2 * kLatency;
  for (const double t : makespans(Rig(spec)))
    EXPECT_NEAR(t, std::max(3, 2 + 1) + part + 2 * kLatency, 1e-9);
}

TEST(Reduction, BesideTheNextBatchItCostsNothingThatShorterComputeWouldNot) {
  // 2BW on one stage: 3 s of compute per batch, 2 s of reduction.
  RigSpec spec = data_parallel(2, 2'000'000'000, 6);
  spec.link.latency_s = 0;
  spec.schedule = "pipedream-2bw";
  for (const double t : makespans(Rig(spec))) EXPECT_NEAR(t, 6 * 5, 1e-9);
  spec.detached = true;
  for (const double t : makespans(Rig(spec))) EXPECT_NEAR(t, 6 * 3 + 2, 1e-9);
}

TEST(Replication, WarmUpIsThatOfPipeDreamsRuntime) {
  // VGG-16 "15-1": (16 - 1) / 15 = 1 and (16 - 15 - 1) / 1 = 0 (PipeDream's runtime).
  ScheduleShape shape{2, 1, 1};
  shape.replicas = PerStage<int>(std::vector<int>{15, 1});
  EXPECT_EQ(shape.warmup(0), 1U);
  EXPECT_EQ(shape.warmup(1), 0U);
  shape.replicas = 1;
  EXPECT_EQ(shape.warmup(0), 1U);
  shape = {3, 1, 1};
  shape.replicas = PerStage<int>(std::vector<int>{13, 2, 1});
  EXPECT_EQ(shape.warmup(0), 1U);  // 15 / 13
  EXPECT_EQ(shape.warmup(1), 1U);  // 2 / 2
  EXPECT_EQ(shape.warmup(2), 0U);
}

TEST(Replication, MicrobatchesGoRoundRobinOverUnevenReplicas) {
  RigSpec spec{.schedule = "pipedream", .shape = {2, 1, 4}, .costs = {}};
  spec.shape.replicas = PerStage<int>(std::vector<int>{3, 1});
  const Rig rig(spec);
  EXPECT_TRUE(check(rig.program, rig.table).empty());
  EXPECT_EQ(rig.program.placement.devices(), 4);
  EXPECT_EQ(rig.program.microbatches(), 12U);
  EXPECT_EQ(rig.program.updates(0), 4U);   // every three microbatches, together
  EXPECT_EQ(rig.program.updates(1), 12U);  // after each
  const Op forward{.microbatch = 7, .stage = 0};
  EXPECT_EQ(rig.program.placement.replica_of(rig.table.device_of(forward)), 1U);  // 7 mod 3
  // The single second stage has 12 x 3 s to do; the first adds its F before and its B after.
  EXPECT_NEAR(simulate_exact(rig.input()).makespan_s, 1 + 36 + 2, 1e-9);
}

}  // namespace
}  // namespace penstock::reduction_test
