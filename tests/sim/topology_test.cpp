// SPDX-License-Identifier: Apache-2.0
// Contention on real topologies through the SimGrid engine: when messages that share ports, PCIe
// switches, NICs, rails and uplinks arrive, computed by hand, to 1e-9 relative.
//
// All runs are `flows` pipelines of two stages: every stage 0 sends `bytes` at time 1.
#include "tests/rig.hpp"

#include "tests/links.hpp"

#include <gtest/gtest.h>

namespace penstock::topology_test {
namespace {

constexpr double kGB = 1e9;
using Pairs = std::vector<std::pair<int, int>>;  // sender, receiver

/// Arrival of each pair's activation of 1 GB, all sent at time 1.
std::vector<double> arrivals(const Cluster& cluster, const Pairs& pairs) {
  StageCosts c = unit_costs();
  c.output_bytes = 1'000'000'000;
  Rig rig({.schedule = "gpipe",
           .shape = {2, 1, 1},
           .width = static_cast<int>(pairs.size()),
           .costs = {c, unit_costs()}});
  rig.cluster = cluster;
  std::vector<int> gpus;
  for (const auto& [from, to] : pairs) {
    gpus.push_back(from);
    gpus.push_back(to);
  }
  rig.traffic = std::make_unique<Traffic>(rig.program, rig.cluster, one_gpu_each(gpus));
  const auto flat = run_simgrid(rig, {.every_message_a_flow = true});
  std::vector<double> at;
  for (std::size_t r = 0; r < pairs.size(); ++r)
    at.push_back(flat.at(4 + 4 * rig.table.forward(1, static_cast<std::uint32_t>(r))));
  return at;
}

void expect_times(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-9 * expected[i]) << "flow " << i;
}

/// Nodes with a port of 100 GB/s per GPU and NICs of 1 GB/s.
Cluster nodes(int count, int gpus, int nics = 1) {
  Cluster c;
  c.nodes = count;
  c.devices_per_node = gpus;
  c.attachment = Attachment::port;
  c.intra = wire(0, 100 * kGB);
  c.inter = wire(0.25, kGB);
  c.nics_per_node = c.fabric.most_nics = nics;
  return c;
}

/// Four GPUs below two PCIe switches: links of 2 GB/s, uplinks of 1.
Cluster pcie(bool full_duplex = true) {
  Cluster c = nodes(1, 4);
  c.attachment = Attachment::pcie;
  c.pcie = PcieTree{2, 1, wire(0, 2 * kGB), wire(0, kGB, full_duplex), LinkSpec{}};
  return c;
}

TEST(Contention, TwoGpusOfAPcieSwitchHalveItsUplink) {
  expect_times(arrivals(pcie(), {{0, 2}}), {1 + 1});
  expect_times(arrivals(pcie(), {{0, 2}, {1, 3}}), {1 + 2, 1 + 2});
  // A message inside the switch does not cross its uplink.
  expect_times(arrivals(pcie(), {{0, 1}, {2, 3}}), {1 + 0.5, 1 + 0.5});
}

TEST(Contention, OppositeMessagesShareOnlyAHalfDuplexUplink) {
  expect_times(arrivals(pcie(true), {{0, 2}, {3, 1}}), {1 + 1, 1 + 1});
  expect_times(arrivals(pcie(false), {{0, 2}, {3, 1}}), {1 + 2, 1 + 2});
}

TEST(Contention, IncastOnANicIsSharedBySendersOfSeveralNodes) {
  for (int flows = 2; flows <= 8; ++flows) {
    Pairs pairs;
    for (int f = 0; f < flows; ++f) pairs.emplace_back(8 * (f + 1), f);  // all into node 0
    const Cluster c = nodes(flows + 1, 8);
    expect_times(arrivals(c, pairs),
                 std::vector<double>(static_cast<std::size_t>(flows), 1 + flows + 0.25));
  }
}

TEST(Contention, RailsKeepMessagesApart) {
  Cluster c = nodes(2, 4, 4);
  const Pairs pairs{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  c.fabric.rails = true;
  expect_times(arrivals(c, pairs), std::vector<double>(4, 1 + 1 + 0.25));
  c.nics_per_node = c.fabric.most_nics = 1;
  expect_times(arrivals(c, pairs), std::vector<double>(4, 1 + 4 + 0.25));
}

TEST(Contention, AMessageThatChangesItsRailSharesTheOtherOne) {
  Cluster c = nodes(2, 4, 4);
  c.fabric.rails = true;
  expect_times(arrivals(c, {{0, 5}, {1, 6}}), {2.25, 2.25});  // rails 1 and 2
  expect_times(arrivals(c, {{0, 5}, {1, 4}, {2, 7}}), {2.25, 2.25, 2.25});
  c.nics_per_node = c.fabric.most_nics = 2;  // GPUs 0, 1 on rail 0, GPUs 2, 3 on rail 1
  expect_times(arrivals(c, {{0, 6}, {2, 7}}), {1 + 2 + 0.25, 1 + 2 + 0.25});
  c.fabric.cross_inside = false;
  c.fabric.link = wire(0.5, 0.5 * kGB);
  // Over the spine at half the rate and with 1 s more; the other has the other half of node 1's
  // NIC.
  expect_times(arrivals(c, {{0, 6}, {2, 7}}), {1 + 2 + 1.25, 1 + 2 + 0.25});
}

/// Two leaves of four nodes with one GPU each.
Cluster fat_tree(int uplinks, double uplink_bytes_per_s) {
  Cluster c = nodes(8, 1);
  c.fabric.topology = Topology::fat_tree;
  c.fabric.levels = {{4, uplinks, wire(0.125, uplink_bytes_per_s)}};
  return c;
}

TEST(Contention, AnOversubscribedLeafDividesItsUplink) {
  const Pairs all{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  // 4 : 1 on one uplink: four messages at a quarter; both uplinks add their latency.
  expect_times(arrivals(fat_tree(1, kGB), all), std::vector<double>(4, 1 + 4 + 0.5));
  // 2 : 1 on two of them: destinations 4 and 6 take one, 5 and 7 the other.
  expect_times(arrivals(fat_tree(2, kGB), all), std::vector<double>(4, 1 + 2 + 0.5));
  expect_times(arrivals(fat_tree(4, kGB), all), std::vector<double>(4, 1 + 1 + 0.5));
  // D-mod-k routes statically: 4 and 6 collide while the other uplink is idle.
  expect_times(arrivals(fat_tree(2, kGB), {{0, 4}, {1, 6}}), {1 + 2 + 0.5, 1 + 2 + 0.5});
}

TEST(Contention, UnequalLatenciesDoNotSkewTheShares) {
  // Into node 0 from its own leaf, and from the other one over 20 s more. TCP would give the near
  // sender nearly everything; here both have half of the NIC until both end.
  Cluster c = nodes(4, 2);
  c.fabric.topology = Topology::fat_tree;
  c.fabric.levels = {{2, 1, wire(10, 4 * kGB)}};
  expect_times(arrivals(c, {{2, 0}, {4, 1}}), {1 + 2 + 0.25, 1 + 2 + 0.25 + 20});
}

TEST(Contention, ATorusSharesTheCablesOfItsDimensions) {
  // 4 x 1 nodes: 0 -> 2 crosses 0->1 and 1->2, 1 -> 2 only the latter, 3 -> 0 goes round the back.
  Cluster c = nodes(4, 1);
  c.inter = wire(0, 10 * kGB);
  c.fabric.topology = Topology::torus;
  c.fabric.shape = {4};
  c.fabric.link = wire(0.25, kGB);
  expect_times(arrivals(c, {{0, 2}, {1, 3}}), {1 + 2 + 0.5, 1 + 2 + 0.5});  // both over 1->2
  expect_times(arrivals(c, {{3, 0}, {1, 2}}), {1 + 1 + 0.25, 1 + 1 + 0.25});
}

TEST(Contention, ADragonflyHasOneCableBetweenTwoGroups) {
  // Two groups of two routers with two nodes each; the cable is at routers 0 and 2.
  Cluster c = nodes(8, 1);
  c.inter = wire(0, 10 * kGB);
  c.fabric.topology = Topology::dragonfly;
  c.fabric.groups = c.fabric.routers = c.fabric.nodes_per_router = 2;
  c.fabric.link = wire(0, 10 * kGB);
  c.fabric.global = wire(0.5, 2 * kGB);
  expect_times(arrivals(c, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}), std::vector<double>(4, 1 + 2 + 0.5));
}

TEST(Contention, ANvlinkOfTheMeshIsNotShared) {
  Cluster c = nodes(1, 4);
  c.attachment = Attachment::mesh;
  c.intra = wire(0, kGB);
  c.pcie = PcieTree{4, 1, wire(0, 0.5 * kGB), LinkSpec{}, LinkSpec{}};
  c.mesh = {{0, 1, 2}, {2, 3, 1}};
  expect_times(arrivals(c, {{0, 1}, {2, 3}}), {1 + 0.5, 1 + 1});
  expect_times(arrivals(c, {{0, 2}, {1, 3}}), {1 + 2, 1 + 2});  // no link: PCIe
}

}  // namespace
}  // namespace penstock::topology_test
