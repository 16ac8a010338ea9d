// SPDX-License-Identifier: Apache-2.0
// Asynchronous data parallelism, against times computed by hand: F = 1 s, B = 2 s, 1 GB of
// gradients and as much of weights, links of 1 GB/s. Replica 0's GPU is the parameter server.
#include "tests/rig.hpp"

#include <gtest/gtest.h>

namespace penstock::asynchronous_test {
namespace {

RigSpec asp(int width, std::uint32_t batches, std::uint32_t microbatches = 1) {
  StageCosts c = unit_costs(1, 2);
  c.reduced_bytes = 1'000'000'000;
  RigSpec spec{
      .schedule = "asp", .shape = {1, microbatches, batches}, .width = width, .costs = {c}};
  spec.link = {.latency_s = 0, .bytes_per_s = 1e9};
  spec.reduction = {.algorithm = ReductionAlgorithm::server};
  return spec;
}

/// Ends of the last op of every device.
std::vector<double> ends(const Rig& rig, const Timeline& t) {
  std::vector<double> out;
  for (int d = 0; d < rig.program.ops.devices(); ++d)
    out.push_back(t.op(rig.program.ops.end(d) - 1).end_s);
  return out;
}

void expect_near(const std::vector<double>& times, const std::vector<double>& expected) {
  ASSERT_EQ(times.size(), expected.size());
  for (std::size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], expected[i], 1e-9) << i;
}

/// Every replica behind a port of 1 GB/s per direction.
void share_ports(Rig& rig) {
  rig.cluster.link.reset();
  rig.cluster.attachment = Attachment::port;
  rig.cluster.intra = {.latency_s = 0, .bytes_per_s = 1e9};
  rig.connect();
}

TEST(Asynchronous, ReplicasOnLinksOfTheirOwnGoOnAtTheirOwnPace) {
  // 3 s of compute, 1 s each to push and pull; the server's own replica moves nothing.
  for (const std::uint32_t batches : {1U, 4U}) {
    const Rig rig(asp(3, batches));
    EXPECT_TRUE(check(rig.program, rig.table).empty());
    const double n = batches;
    const std::vector<double> expected{3 * n, 5 * n, 5 * n};
    expect_near(ends(rig, simulate_exact(rig.input())), expected);
    for (const bool flows : {false, true}) {
      expect_near(ends(rig, simulate_simgrid(rig.input(), {.every_message_a_flow = flows})),
                  expected);
    }
  }
}

TEST(Asynchronous, PushesAfterAllMicrobatchesOfAnUpdate) {
  const Rig rig(asp(2, 2, 4));
  expect_near(ends(rig, simulate_exact(rig.input())), {2 * 12, 2 * 14});
}

TEST(Asynchronous, PaysALatencyEachWay) {
  RigSpec spec = asp(2, 3);
  spec.link.latency_s = 0.25;
  const Rig rig(spec);
  expect_near(ends(rig, simulate_exact(rig.input())), {9, 3 * 5.5});
}

TEST(Asynchronous, SeveralServersShareTheBytes) {
  // Each of two servers has half: replicas 0 and 1 move the other half only, replica 2 both halves,
  // over links of their own.
  RigSpec spec = asp(3, 1);
  spec.reduction.servers = 2;
  const Rig rig(spec);
  expect_near(ends(rig, simulate_exact(rig.input())), {4, 4, 4});
}

TEST(Asynchronous, TheServersPortIsShared) {
  // Three replicas push at 3 and share the server's port until 6, then pull until 9.
  Rig rig(asp(4, 1));
  share_ports(rig);
  EXPECT_NE(why_not_exact(rig.input()).find("the update of replica"), std::string::npos);
  expect_near(ends(rig, simulate_simgrid(rig.input())), {3, 9, 9, 9});
}

TEST(Asynchronous, AFasterReplicaDoesNotWaitForASlowerOne) {
  // Bulk-synchronous, all would wait for replica 1, whose compute takes four times as long.
  Rig rig(asp(3, 4));
  Perturbation slow;
  slow.slowdown = {1, 4, 1};
  slow.speed.resize(3);
  const SimulationInput input{rig.program, rig.table, rig.costs, *rig.traffic, &slow};
  expect_near(ends(rig, simulate_exact(input)), {12, 4 * 14, 4 * 5});
}

}  // namespace
}  // namespace penstock::asynchronous_test
