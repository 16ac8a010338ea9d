// SPDX-License-Identifier: Apache-2.0
// Which links messages cross inside nodes and between them, and what latency they add up to; all of
// it by hand.
#include "models/cluster.hpp"
#include "models/collectives.hpp"

#include "tests/links.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace penstock::topology_test {
namespace {

using Names = std::vector<std::string>;

Names path(Network& network, int from, int to) {
  Names names;
  for (const int l : network.route(from, to, false).links)
    names.push_back(network.links().at(static_cast<std::size_t>(l)).name);
  return names;
}

double latency(Network& network, int from, int to) {
  return network.route(from, to, false).latency_s;
}

std::map<std::string, double> rates(const Network& network) {
  std::map<std::string, double> found;
  for (const NetworkLink& link : network.links()) found[link.name] = link.bytes_per_s;
  return found;
}

/// Nodes of GPUs with one port each; NICs of 10 bytes/s and a latency of 1 s.
Cluster cluster(int nodes, int gpus, int nics = 1) {
  Cluster c;
  c.nodes = nodes;
  c.devices_per_node = gpus;
  c.attachment = Attachment::port;
  c.intra = wire(0.5, 100);
  c.inter = wire(1, 10);
  c.nics_per_node = c.fabric.most_nics = nics;
  return c;
}

// --- inside a node ------------------------------------------------------------------------------

/// Eight GPUs, two to a PCIe switch, two switches to a socket.
Cluster pcie_tree() {
  Cluster c = cluster(1, 8);
  c.attachment = Attachment::pcie;
  c.pcie = PcieTree{2, 2, wire(1, 12), wire(2, 14), wire(4, 9)};
  return c;
}

TEST(PcieTree, TwoGpusOfASwitchMeetThere) {
  const Cluster c = pcie_tree();
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), (Names{"gpu0 pcie out", "gpu1 pcie in"}));
  EXPECT_EQ(latency(n, 0, 1), 2);
}

TEST(PcieTree, TwoSwitchesOfASocketMeetOverTheirUplinks) {
  const Cluster c = pcie_tree();
  Network n(c);
  EXPECT_EQ(path(n, 1, 2),
            (Names{"gpu1 pcie out", "node0 pcie0 out", "node0 pcie1 in", "gpu2 pcie in"}));
  EXPECT_EQ(path(n, 0, 3), (Names{"gpu0 pcie out", "node0 pcie0 out", "node0 pcie1 in",
                                  "gpu3 pcie in"}));  // the same uplinks
  EXPECT_EQ(latency(n, 1, 2), 1 + 2 + 2 + 1);
}

TEST(PcieTree, TwoSocketsMeetOverTheirOwnLink) {
  const Cluster c = pcie_tree();
  Network n(c);
  EXPECT_EQ(path(n, 7, 0),
            (Names{"gpu7 pcie out", "node0 pcie3 out", "node0 socket1->node0 socket0",
                   "node0 pcie0 in", "gpu0 pcie in"}));
  EXPECT_EQ(latency(n, 7, 0), 1 + 2 + 4 + 2 + 1);
  const std::map<std::string, double> expected{{"gpu7 pcie out", 12},
                                               {"node0 pcie3 out", 14},
                                               {"node0 socket1->node0 socket0", 9},
                                               {"node0 pcie0 in", 14},
                                               {"gpu0 pcie in", 12}};
  EXPECT_EQ(rates(n), expected);
}

TEST(PcieTree, HalfDuplexLinksHaveOneNameForBothDirections) {
  Cluster c = pcie_tree();
  c.pcie->link.full_duplex = c.pcie->uplink.full_duplex = c.pcie->host.full_duplex = false;
  Network n(c);
  Names there = path(n, 0, 7), back = path(n, 7, 0);
  std::ranges::reverse(back);
  EXPECT_EQ(there, back);
}

TEST(Mesh, HasAsManyNvlinksAsListedAndPcieElsewhere) {
  Cluster c = pcie_tree();
  c.attachment = Attachment::mesh;
  c.intra = wire(0.25, 25);
  c.mesh = {{0, 1, 2}, {3, 0, 1}};
  Network n(c);
  EXPECT_EQ(path(n, 1, 0), Names{"gpu1->gpu0"});
  EXPECT_EQ(path(n, 0, 3), Names{"gpu0->gpu3"});
  EXPECT_EQ(path(n, 1, 3),
            (Names{"gpu1 pcie out", "node0 pcie0 out", "node0 pcie1 in", "gpu3 pcie in"}));
  EXPECT_EQ(latency(n, 1, 0), 0.25);
  EXPECT_EQ(rates(n).at("gpu1->gpu0"), 50);
  EXPECT_EQ(rates(n).at("gpu0->gpu3"), 25);
}

TEST(Mesh, NamesTheFirstGapThatNothingFills) {
  Cluster c = cluster(1, 3);
  c.attachment = Attachment::mesh;
  c.mesh = {{0, 1, 1}, {2, 0, 1}};
  EXPECT_EQ(unjoined_in_mesh(c), std::pair(1, 2));
  c.pcie = PcieTree{};
  EXPECT_EQ(unjoined_in_mesh(c), std::nullopt);
  c.pcie.reset();
  c.mesh.push_back({1, 2, 1});
  EXPECT_EQ(unjoined_in_mesh(c), std::nullopt);
}

// --- NICs ---------------------------------------------------------------------------------------

TEST(Nics, OnAPcieSwitchAreReachedOverTheLinkOfTheGpu) {
  Cluster c = pcie_tree();
  c.attachment = Attachment::port;
  c.nodes = 2;
  c.nics_per_node = 4;  // one to a switch
  c.nic_place = NicPlace::pcie_switch;
  Network n(c);
  EXPECT_EQ(path(n, 3, 8),
            (Names{"gpu3 pcie out", "node0 nic1 out", "node1 nic0 in", "gpu8 pcie in"}));
  EXPECT_EQ(latency(n, 3, 8), 1 + 1 + 1);  // both GPU links and from NIC to NIC
}

TEST(Nics, OneForAllHangsOnTheFirstSwitch) {
  Cluster c = pcie_tree();
  c.nodes = 2;
  c.nic_place = NicPlace::pcie_switch;
  Network n(c);
  EXPECT_EQ(path(n, 6, 9),
            (Names{"gpu6 pcie out", "node0 pcie3 out", "node0 socket1->node0 socket0",
                   "node0 pcie0 in", "node0 nic0 out", "node1 nic0 in", "gpu9 pcie in"}));
}

TEST(Nics, OnTheSocketsAreReachedOverTheUplinks) {
  Cluster c = pcie_tree();
  c.nodes = 2;
  c.nics_per_node = 2;
  c.nic_place = NicPlace::host;
  Network n(c);
  EXPECT_EQ(path(n, 0, 15), (Names{"gpu0 pcie out", "node0 pcie0 out", "node0 nic0 out",
                                   "node1 nic1 in", "node1 pcie3 in", "gpu15 pcie in"}));
  EXPECT_EQ(latency(n, 0, 15), 1 + 2 + 1 + 2 + 1);
}

// --- rails --------------------------------------------------------------------------------------

TEST(Rails, AMessageOfOneRailStaysOnIt) {
  Cluster c = cluster(2, 4, 4);
  c.fabric.rails = true;
  Network n(c);
  EXPECT_EQ(path(n, 2, 6), (Names{"node0 nic2 out", "node1 nic2 in"}));
}

TEST(Rails, AnotherRailIsChangedToInsideTheSendingNode) {
  Cluster c = cluster(2, 4, 4);
  c.fabric.rails = true;
  Network n(c);
  EXPECT_EQ(path(n, 0, 7), (Names{"gpu0 out", "gpu3 in", "node0 nic3 out", "node1 nic3 in"}));
  EXPECT_EQ(latency(n, 0, 7), 0.5 + 1);
  // Two GPUs share a NIC: GPU 1 needs no step to send over its own, GPU 2 one to GPU 0.
  c = cluster(2, 4, 2);
  c.fabric.rails = true;
  Network shared(c);
  EXPECT_EQ(path(shared, 1, 4), (Names{"node0 nic0 out", "node1 nic0 in"}));
  EXPECT_EQ(path(shared, 2, 5), (Names{"gpu2 out", "gpu0 in", "node0 nic0 out", "node1 nic0 in"}));
}

TEST(Rails, OrOverTheSpine) {
  Cluster c = cluster(2, 4, 4);
  c.fabric.rails = true;
  c.fabric.cross_inside = false;
  c.fabric.link = wire(0.125, 5);
  Network n(c);
  EXPECT_EQ(path(n, 0, 7), (Names{"node0 nic0 out", "rail0 out", "rail3 in", "node1 nic3 in"}));
  EXPECT_EQ(latency(n, 0, 7), 1.25);
  EXPECT_EQ(path(n, 0, 4), (Names{"node0 nic0 out", "node1 nic0 in"}));
}

TEST(Rails, ARailThatTheSenderLacksIsChangedToInTheReceiver) {
  Cluster c = cluster(2, 4, 4);
  NodeSpec few = c;
  few.devices_per_node = 2;
  few.nics_per_node = 1;
  c.groups = {{1, few}, {1, c}};
  c.fabric.rails = true;
  Network n(c);
  EXPECT_EQ(path(n, 1, 5), (Names{"node0 nic0 out", "node1 nic0 in", "gpu2 out", "gpu5 in"}));
  EXPECT_EQ(path(n, 5, 1), (Names{"gpu5 out", "gpu2 in", "node1 nic0 out", "node0 nic0 in"}));
}

// --- fat trees ----------------------------------------------------------------------------------

/// Leaves of two nodes with two uplinks each.
Cluster fat_tree(int nodes, std::vector<FatTreeLevel> levels) {
  Cluster c = cluster(nodes, 1);
  c.fabric.topology = Topology::fat_tree;
  c.fabric.levels = std::move(levels);
  return c;
}

TEST(FatTree, NodesOfALeafMeetThere) {
  const Cluster c = fat_tree(4, {{2, 2, wire(0.25, 5)}});
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), (Names{"node0 nic0 out", "node1 nic0 in"}));
  EXPECT_EQ(latency(n, 0, 1), 1);
}

TEST(FatTree, TheDestinationDecidesTheUplink) {
  const Cluster c = fat_tree(4, {{2, 2, wire(0.25, 5)}});
  Network n(c);
  EXPECT_EQ(path(n, 0, 2),
            (Names{"node0 nic0 out", "leaf0 up0 out", "leaf1 up0 in", "node2 nic0 in"}));
  EXPECT_EQ(path(n, 1, 2),
            (Names{"node1 nic0 out", "leaf0 up0 out", "leaf1 up0 in", "node2 nic0 in"}));
  EXPECT_EQ(path(n, 0, 3),
            (Names{"node0 nic0 out", "leaf0 up1 out", "leaf1 up1 in", "node3 nic0 in"}));
  EXPECT_EQ(latency(n, 0, 3), 1.5);
  EXPECT_EQ(rates(n).at("leaf0 up1 out"), 5);
}

TEST(FatTree, ThreeLevelsAreClimbedAsFarAsNeeded) {
  // Leaves of 2 nodes, pods of 2 leaves, 2 uplinks everywhere: 8 nodes. Node 7 = 111 in binary:
  // uplink 7 mod 2 = 1, then floor(7 / 2) mod 2 = 1; node 5: 1, then 0.
  const FatTreeLevel level{2, 2, wire(0.25, 5)};
  const Cluster c = fat_tree(8, {level, level});
  Network n(c);
  EXPECT_EQ(path(n, 0, 7), (Names{"node0 nic0 out", "leaf0 up1 out", "pod0.1 up1 out",
                                  "pod1.1 up1 in", "leaf3 up1 in", "node7 nic0 in"}));
  EXPECT_EQ(path(n, 1, 5), (Names{"node1 nic0 out", "leaf0 up1 out", "pod0.1 up0 out",
                                  "pod1.1 up0 in", "leaf2 up1 in", "node5 nic0 in"}));
  EXPECT_EQ(path(n, 0, 2),
            (Names{"node0 nic0 out", "leaf0 up0 out", "leaf1 up0 in", "node2 nic0 in"}));
  EXPECT_EQ(latency(n, 0, 7), 2);
}

TEST(FatTree, AShiftUsesNoUplinkTwice) {
  // What D-mod-k is made for: with as many uplinks as nodes, all i -> i + k are free of conflicts.
  const FatTreeLevel level{4, 4, wire(0, 5)};
  const Cluster c = fat_tree(64, {level, level});
  for (int k = 1; k < 64; ++k) {
    Network n(c);
    std::set<std::string> used;
    for (int i = 0; i < 64; ++i) {
      for (const std::string& name : path(n, i, (i + k) % 64))
        EXPECT_TRUE(used.insert(name).second) << name << " in a shift of " << k;
    }
  }
}

TEST(FatTree, EveryRailHasLeavesOfItsOwn) {
  Cluster c = cluster(4, 2, 2);
  c.fabric.topology = Topology::fat_tree;
  c.fabric.rails = true;
  c.fabric.levels = {{2, 1, wire(0, 5)}};
  Network n(c);
  EXPECT_EQ(path(n, 1, 3), (Names{"node0 nic1 out", "node1 nic1 in"}));
  EXPECT_EQ(path(n, 0, 4),
            (Names{"node0 nic0 out", "leaf0 up0 out", "leaf2 up0 in", "node2 nic0 in"}));
  EXPECT_EQ(path(n, 1, 5),
            (Names{"node0 nic1 out", "leaf1 up0 out", "leaf3 up0 in", "node2 nic1 in"}));
  c.fabric.cross_inside = false;
  Network spine(c);
  EXPECT_EQ(path(spine, 0, 3),
            (Names{"node0 nic0 out", "leaf0 up0 out", "leaf1 up0 in", "node1 nic1 in"}));
}

// --- dragonflies and tori -----------------------------------------------------------------------

/// Three groups of two routers with two nodes each. Cables: group 0's router 0 to group 1, 1 to 2;
/// group 1: 0 to 0, 1 to 2; group 2: 0 to 0, 1 to 1.
Cluster dragonfly() {
  Cluster c = cluster(12, 1);
  c.fabric.topology = Topology::dragonfly;
  c.fabric.groups = 3;
  c.fabric.routers = 2;
  c.fabric.nodes_per_router = 2;
  c.fabric.link = wire(0.25, 20);
  c.fabric.global = wire(2, 30);
  return c;
}

TEST(Dragonfly, AGroupNeedsOneHop) {
  const Cluster c = dragonfly();
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), (Names{"node0 nic0 out", "node1 nic0 in"}));
  EXPECT_EQ(path(n, 0, 3), (Names{"node0 nic0 out", "router0->router1", "node3 nic0 in"}));
  EXPECT_EQ(latency(n, 0, 3), 1.25);
}

TEST(Dragonfly, GroupsAreJoinedOverTheRoutersThatHaveTheCable) {
  const Cluster c = dragonfly();
  Network n(c);
  EXPECT_EQ(path(n, 0, 4), (Names{"node0 nic0 out", "group0->group1", "node4 nic0 in"}));
  EXPECT_EQ(path(n, 2, 11),
            (Names{"node2 nic0 out", "group0->group2", "router4->router5", "node11 nic0 in"}));
  EXPECT_EQ(path(n, 0, 11), (Names{"node0 nic0 out", "router0->router1", "group0->group2",
                                   "router4->router5", "node11 nic0 in"}));
  EXPECT_EQ(path(n, 8, 7),
            (Names{"node8 nic0 out", "router4->router5", "group2->group1", "node7 nic0 in"}));
  EXPECT_EQ(latency(n, 0, 11), 1 + 0.25 + 2 + 0.25);
}

Cluster torus(std::vector<int> shape) {
  Cluster c = cluster(std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>()), 1);
  c.fabric.topology = Topology::torus;
  c.fabric.shape = std::move(shape);
  c.fabric.link = wire(0.25, 20);
  return c;
}

TEST(Torus, GoesDimensionByDimension) {
  const Cluster c = torus({4, 3});  // node = x + 4 y
  Network n(c);
  EXPECT_EQ(path(n, 0, 5),
            (Names{"node0 nic0 out", "router0->router1", "router1->router5", "node5 nic0 in"}));
  EXPECT_EQ(path(n, 5, 0),
            (Names{"node5 nic0 out", "router5->router4", "router4->router0", "node0 nic0 in"}));
  EXPECT_EQ(latency(n, 0, 5), 1.5);
}

TEST(Torus, TakesTheShorterWayRound) {
  const Cluster c = torus({4, 3});
  Network n(c);
  EXPECT_EQ(path(n, 0, 3), (Names{"node0 nic0 out", "router0->router3", "node3 nic0 in"}));
  EXPECT_EQ(path(n, 0, 2), (Names{"node0 nic0 out", "router0->router1", "router1->router2",
                                  "node2 nic0 in"}));  // both are as short
  EXPECT_EQ(path(n, 0, 8), (Names{"node0 nic0 out", "router0->router8", "node8 nic0 in"}));
}

TEST(Torus, HasThreeDimensionsToo) {
  const Cluster c = torus({2, 2, 2});
  Network n(c);
  EXPECT_EQ(path(n, 0, 7), (Names{"node0 nic0 out", "router0->router1", "router1->router3",
                                  "router3->router7", "node7 nic0 in"}));
  Cluster half = c;
  half.fabric.link.full_duplex = false;
  Network both(half);
  EXPECT_EQ(path(both, 1, 0), (Names{"node1 nic0 out", "router0--router1", "node0 nic0 in"}));
}

// --- uneven nodes -------------------------------------------------------------------------------

/// Two nodes of four A, three of two B.
Cluster uneven() {
  Cluster c = cluster(5, 4);
  c.device.name = "A";
  NodeSpec b = c;
  b.device.name = "B";
  b.devices_per_node = 2;
  b.inter = wire(3, 2);
  c.groups = {{2, c}, {3, b}};
  return c;
}

TEST(UnevenNodes, AreNumberedNodeByNode) {
  const Cluster c = uneven();
  EXPECT_EQ(c.devices(), 14);
  const std::vector<int> nodes{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4};
  for (int gpu = 0; gpu < 14; ++gpu) {
    EXPECT_EQ(c.node_of(gpu), nodes[static_cast<std::size_t>(gpu)]) << gpu;
    EXPECT_EQ(c.device_of(gpu).name, gpu < 8 ? "A" : "B") << gpu;
  }
  EXPECT_EQ(c.node(3).first_gpu, 10);
  EXPECT_EQ(device_names(c), "A, B");
}

TEST(UnevenNodes, HaveTheirOwnNicsAndTheMeanOfTheirLatencies) {
  const Cluster c = uneven();
  Network n(c);
  EXPECT_EQ(path(n, 7, 13), (Names{"node1 nic0 out", "node4 nic0 in"}));
  EXPECT_EQ(latency(n, 7, 13), 2);
  EXPECT_EQ(rates(n).at("node1 nic0 out"), 10);
  EXPECT_EQ(rates(n).at("node4 nic0 in"), 2);
  EXPECT_EQ(path(n, 12, 13), (Names{"gpu12 out", "gpu13 in"}));
}

// --- the whole cluster --------------------------------------------------------------------------

TEST(Clusters, ScalingWidensEveryLink) {
  Cluster c = dragonfly();
  c.pcie = PcieTree{1, 1, wire(0, 1), wire(0, 2), wire(0, 3)};
  c.fabric.levels = {{1, 1, wire(0, 4)}};
  c.groups = {{1, c}};
  scale_bandwidth(c, 2);
  EXPECT_EQ(c.intra.bytes_per_s, 200);
  EXPECT_EQ(c.inter.bytes_per_s, 20);
  EXPECT_EQ(c.groups[0].node.inter.bytes_per_s, 20);
  EXPECT_EQ(c.pcie->link.bytes_per_s, 2);
  EXPECT_EQ(c.pcie->uplink.bytes_per_s, 4);
  EXPECT_EQ(c.pcie->host.bytes_per_s, 6);
  EXPECT_EQ(c.fabric.levels[0].uplink.bytes_per_s, 8);
  EXPECT_EQ(c.fabric.link.bytes_per_s, 40);
  EXPECT_EQ(c.fabric.global.bytes_per_s, 60);
  scale_bandwidth(c, 10, LinkClass::within_nodes);
  EXPECT_EQ(c.intra.bytes_per_s, 2000);
  EXPECT_EQ(c.pcie->host.bytes_per_s, 60);
  EXPECT_EQ(c.inter.bytes_per_s, 20);
  EXPECT_EQ(c.fabric.global.bytes_per_s, 60);
  scale_bandwidth(c, 10, LinkClass::between_nodes);
  EXPECT_EQ(c.intra.bytes_per_s, 2000);
  EXPECT_EQ(c.inter.bytes_per_s, 200);
  EXPECT_EQ(c.groups[0].node.inter.bytes_per_s, 200);
  EXPECT_EQ(c.fabric.levels[0].uplink.bytes_per_s, 80);
  EXPECT_EQ(c.fabric.global.bytes_per_s, 600);
}

TEST(Clusters, NoMessageIsSlowerThanTheSlowestWay) {
  for (const Cluster& c : {pcie_tree(), dragonfly(), torus({5, 4, 3}), uneven(),
                           fat_tree(8, {{2, 1, wire(1, 2)}, {2, 1, wire(1, 1)}})}) {
    Network n(c);
    const LinkSpec slowest = slowest_route(c);
    for (int a = 0; a < c.devices(); ++a) {
      for (int b = 0; b < c.devices(); ++b) {
        if (a == b) continue;
        EXPECT_LE(latency(n, a, b), slowest.latency_s);
      }
    }
    for (const NetworkLink& link : n.links()) EXPECT_GE(link.bytes_per_s, slowest.bytes_per_s);
  }
}

TEST(Clusters, ARingOverAnOversubscribedTreeIsHeldByItsUplinks) {
  // Ring 0 -> 1 -> 2 -> 3 -> 0: one hop leaves each leaf over its uplink of 5, in whichever order
  // they are named: the ring keeps neighbours together.
  const Cluster c = fat_tree(4, {{2, 1, wire(0, 5)}});
  EXPECT_DOUBLE_EQ(price({}, {{0, 1, 2, 3}}, c).seconds(40), 6 * (1 + 0 + 40.0 / 4 / 5));
  EXPECT_DOUBLE_EQ(price({}, {{0, 2, 1, 3}}, c).seconds(40), 6 * (1 + 40.0 / 4 / 5));
}

TEST(Clusters, RoutesOfAThousandGpusAreOnlyThoseAskedFor) {
  Cluster c = cluster(128, 8, 8);
  c.fabric.topology = Topology::fat_tree;
  c.fabric.levels = {{16, 32, wire(0, 10)}, {2, 16, wire(0, 10)}};
  Network n(c);
  for (int gpu = 0; gpu < 1024; ++gpu) n.route(gpu, (gpu + 8) % 1024, false);
  // A NIC out and in for every GPU; 8 leaves and 4 pods send 8 messages up and take 8.
  std::size_t nics = 0;
  for (const NetworkLink& link : n.links()) nics += link.name.find("nic") != std::string::npos;
  EXPECT_EQ(nics, 2048U);
  EXPECT_EQ(n.links().size(), 2048U + 2 * 8 * 8 + 2 * 4 * 8);
}

}  // namespace
}  // namespace penstock::topology_test
