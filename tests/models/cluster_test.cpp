// SPDX-License-Identifier: Apache-2.0
// Which links a message crosses, under which names, and which of them are one link.
#include "models/collectives.hpp"

#include "tests/links.hpp"

#include <gtest/gtest.h>

namespace penstock::cluster_test {
namespace {

using Names = std::vector<std::string>;

Names path(Network& network, int from, int to, bool backward = false) {
  Names names;
  for (const int l : network.route(from, to, backward).links)
    names.push_back(network.links().at(static_cast<std::size_t>(l)).name);
  return names;
}

Cluster abstract_cluster(bool full_duplex) {
  Cluster c;
  c.devices_per_node = 4;
  c.link = wire(0.5, 1e9, full_duplex);
  return c;
}

/// Two nodes of four GPUs.
Cluster real_cluster(Attachment attachment) {
  Cluster c;
  c.nodes = 2;
  c.devices_per_node = 4;
  c.attachment = attachment;
  c.intra = wire(1e-6, 50e9);
  c.inter = wire(1e-5, 3e9);
  return c;
}

TEST(Network, AbstractLinkIsPrivateToTheChannel) {
  const Cluster c = abstract_cluster(true);
  Network n(c);
  EXPECT_EQ(path(n, 0, 1, false), Names{"0->1 F"});
  EXPECT_EQ(path(n, 0, 1, true), Names{"0->1 B"});
  EXPECT_EQ(path(n, 1, 0, true), Names{"1->0 B"});
  EXPECT_EQ(n.links().size(), 3U);
  EXPECT_EQ(n.route(0, 3, false).latency_s, 0.5);
  EXPECT_EQ(n.links()[0].bytes_per_s, 1e9);
}

TEST(Network, AbstractHalfDuplexLinkIsSharedByAllOfAPair) {
  const Cluster c = abstract_cluster(false);
  Network n(c);
  EXPECT_EQ(path(n, 0, 1, false), Names{"0--1"});
  EXPECT_EQ(path(n, 1, 0, true), Names{"0--1"});
  EXPECT_EQ(path(n, 2, 1, true), Names{"1--2"});
  EXPECT_EQ(n.links().size(), 2U);
}

TEST(Network, RoutesAskedForTwiceAreTheSameLinks) {
  const Cluster c = real_cluster(Attachment::port);
  Network n(c);
  const Route first = n.route(0, 5, false);
  EXPECT_EQ(n.route(0, 5, false).links, first.links);
  EXPECT_EQ(n.links().size(), first.links.size());
}

TEST(Network, PairsHaveALinkPerDirectionForBothKindsOfMessage) {
  const Cluster c = real_cluster(Attachment::pairs);
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), Names{"gpu0->gpu1"});
  EXPECT_EQ(path(n, 0, 1, true), Names{"gpu0->gpu1"});
  EXPECT_EQ(path(n, 1, 0, true), Names{"gpu1->gpu0"});
  EXPECT_EQ(n.route(0, 1, false).latency_s, 1e-6);
  EXPECT_EQ(n.links()[0].bytes_per_s, 50e9);
}

TEST(Network, HalfDuplexPairsShareOneLink) {
  Cluster c = real_cluster(Attachment::pairs);
  c.intra.full_duplex = false;
  Network n(c);
  EXPECT_EQ(path(n, 2, 1), Names{"gpu1--gpu2"});
  EXPECT_EQ(path(n, 1, 2), Names{"gpu1--gpu2"});
}

TEST(Network, SwitchGivesEachGpuAPortOutAndAPortIn) {
  const Cluster c = real_cluster(Attachment::port);
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), (Names{"gpu0 out", "gpu1 in"}));
  EXPECT_EQ(path(n, 0, 2), (Names{"gpu0 out", "gpu2 in"}));  // the same port out
  EXPECT_EQ(path(n, 1, 0), (Names{"gpu1 out", "gpu0 in"}));
  EXPECT_EQ(n.links().size(), 5U);
}

TEST(Network, HalfDuplexPortIsOneLinkForBothDirections) {
  Cluster c = real_cluster(Attachment::port);
  c.intra.full_duplex = false;
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), (Names{"gpu0", "gpu1"}));
  EXPECT_EQ(path(n, 1, 0), (Names{"gpu1", "gpu0"}));
  EXPECT_EQ(n.links().size(), 2U);
}

TEST(Network, NodesAreJoinedByTheirNics) {
  const Cluster c = real_cluster(Attachment::pairs);
  Network n(c);
  EXPECT_EQ(path(n, 3, 4), (Names{"node0 nic0 out", "node1 nic0 in"}));
  EXPECT_EQ(path(n, 1, 6), (Names{"node0 nic0 out", "node1 nic0 in"}));  // one NIC for all four
  EXPECT_EQ(path(n, 4, 3), (Names{"node1 nic0 out", "node0 nic0 in"}));
  EXPECT_EQ(n.route(3, 4, false).latency_s, 1e-5);
  EXPECT_EQ(n.links()[0].bytes_per_s, 3e9);
}

TEST(Network, GpusShareTheNicsOfTheirNodeEvenly) {
  Cluster c = real_cluster(Attachment::pairs);
  c.nics_per_node = 2;
  Network n(c);
  EXPECT_EQ(path(n, 0, 7), (Names{"node0 nic0 out", "node1 nic1 in"}));
  EXPECT_EQ(path(n, 1, 6), (Names{"node0 nic0 out", "node1 nic1 in"}));
  EXPECT_EQ(path(n, 2, 5), (Names{"node0 nic1 out", "node1 nic0 in"}));
  c.nics_per_node = 4;
  Network own(c);
  EXPECT_EQ(path(own, 3, 4), (Names{"node0 nic3 out", "node1 nic0 in"}));
}

TEST(Network, HalfDuplexNicIsOneLinkForBothDirections) {
  Cluster c = real_cluster(Attachment::pairs);
  c.inter.full_duplex = false;
  Network n(c);
  EXPECT_EQ(path(n, 3, 4), (Names{"node0 nic0", "node1 nic0"}));
  EXPECT_EQ(path(n, 4, 3), (Names{"node1 nic0", "node0 nic0"}));
}

TEST(Network, LinksRememberTheirDiscipline) {
  Cluster c = real_cluster(Attachment::pairs);
  c.inter.fifo = true;
  Network n(c);
  n.route(0, 1, false);
  n.route(0, 4, false);
  EXPECT_FALSE(n.links()[0].fifo);
  EXPECT_TRUE(n.links()[1].fifo);
  EXPECT_TRUE(n.links()[2].fifo);
}

using Edge = NetworkGraph::Edge;

Cluster graph(int devices, std::vector<std::string> switches, std::vector<Edge> edges) {
  Cluster c;
  c.devices_per_node = devices;
  c.network = NetworkGraph{std::move(switches), std::move(edges)};
  return c;
}

TEST(NetworkGraph, AStarHasALinkUpAndALinkDownPerDevice) {
  const Cluster c = graph(
      3, {"sw"},
      {{0, 3, wire(1e-5, 1e9), 2e9}, {1, 3, wire(2e-5, 4e9), 4e9}, {3, 2, wire(4e-5, 8e9), 5e9}});
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), (Names{"0->sw", "sw->1"}));
  EXPECT_EQ(path(n, 0, 2), (Names{"0->sw", "sw->2"}));
  EXPECT_EQ(path(n, 2, 0), (Names{"2->sw", "sw->0"}));
  EXPECT_DOUBLE_EQ(n.route(0, 1, false).latency_s, 3e-5);
  EXPECT_DOUBLE_EQ(n.route(2, 0, true).latency_s, 5e-5);
  std::map<std::string, double> rates;
  for (const NetworkLink& link : n.links()) rates[link.name] = link.bytes_per_s;
  const std::map<std::string, double> expected{
      {"0->sw", 1e9}, {"sw->0", 2e9}, {"sw->1", 4e9}, {"sw->2", 8e9}, {"2->sw", 5e9}};
  EXPECT_EQ(rates, expected);
}

TEST(NetworkGraph, RoutesHaveTheFewestEdgesWhateverTheirBandwidth) {
  // A ring of five: 0 to 2 through 1, although the way round is wider.
  const auto thin = wire(0, 1), wide = wire(0, 100);
  const Cluster c = graph(
      5, {},
      {{0, 1, thin, 1}, {1, 2, thin, 1}, {2, 3, wide, 100}, {3, 4, wide, 100}, {4, 0, wide, 100}});
  Network n(c);
  EXPECT_EQ(path(n, 0, 2), (Names{"0->1", "1->2"}));
  EXPECT_EQ(path(n, 0, 3), (Names{"0->4", "4->3"}));
  EXPECT_EQ(path(n, 3, 3), Names{});
}

TEST(NetworkGraph, OfSeveralShortestRoutesTheOneListedFirstCounts) {
  // Two switches join all four devices; b's edge to 0 is listed before a's, a's to 1 before b's.
  const auto l = wire(0, 1);
  const Cluster c = graph(2, {"a", "b"}, {{0, 3, l, 1}, {0, 2, l, 1}, {1, 2, l, 1}, {1, 3, l, 1}});
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), (Names{"0->b", "b->1"}));
  EXPECT_EQ(path(n, 1, 0), (Names{"1->a", "a->0"}));
}

TEST(NetworkGraph, AHalfDuplexEdgeIsOneLinkForBothDirections) {
  const Cluster c = graph(2, {}, {{1, 0, wire(1e-6, 3e9, false), 3e9}});
  Network n(c);
  EXPECT_EQ(path(n, 0, 1), Names{"1--0"});
  EXPECT_EQ(path(n, 1, 0), Names{"1--0"});
  EXPECT_EQ(n.links().size(), 1U);
  EXPECT_EQ(n.links()[0].bytes_per_s, 3e9);
}

TEST(NetworkGraph, NamesTheFirstDevicesThatAreNotJoined) {
  const auto l = wire(0, 1);
  EXPECT_EQ(unjoined_devices(graph(4, {"a"}, {{0, 4, l, 1}, {4, 1, l, 1}, {3, 2, l, 1}})),
            std::pair(0, 2));
  EXPECT_EQ(unjoined_devices(graph(4, {}, {{0, 1, l, 1}, {1, 3, l, 1}, {3, 2, l, 1}})),
            std::nullopt);
  EXPECT_EQ(unjoined_devices(graph(1'000'000'000, {}, {{0, 999'999'999, l, 1}})), std::pair(0, 1));
  EXPECT_EQ(unjoined_devices(abstract_cluster(true)), std::nullopt);
}

TEST(NetworkGraph, AnAllReduceGoesAtThePaceOfItsSlowestHop) {
  // Ring 0 -> 1 -> 2 -> 0 over a star: each hop has its own way up and down; 2's uplink is slowest.
  const Cluster star =
      graph(3, {"sw"},
            {{0, 3, wire(1e-3, 30), 30}, {1, 3, wire(1e-3, 30), 30}, {2, 3, wire(3e-3, 10), 30}});
  // 2 (n - 1) steps of a third of 9 bytes: 4 * (3/10 + 1e-3 + 3e-3).
  EXPECT_DOUBLE_EQ(price({}, {{0, 1, 2}}, star).seconds(9), 4 * (0.3 + 4e-3));
  // 0 and 1 hang on switch a, 2 and 3 on b. Neighbours in the ring are neighbours in the cluster,
  // whatever the order of the list: the trunk carries one hop in each direction.
  const auto l = wire(0, 10);
  const Cluster trunk = graph(
      4, {"a", "b"}, {{0, 4, l, 10}, {1, 4, l, 10}, {2, 5, l, 10}, {3, 5, l, 10}, {4, 5, l, 10}});
  EXPECT_DOUBLE_EQ(price({}, {{0, 1, 2, 3}}, trunk).seconds(40), 6.0);
  EXPECT_DOUBLE_EQ(price({}, {{0, 2, 1, 3}}, trunk).seconds(40), 6.0);
  EXPECT_EQ(price({}, {{2}}, trunk).seconds(40), 0.0);
}

TEST(Cluster, NumbersItsGpusNodeByNode) {
  const Cluster c = real_cluster(Attachment::pairs);
  EXPECT_EQ(c.devices(), 8);
  EXPECT_EQ(c.node_of(3), 0);
  EXPECT_EQ(c.node_of(4), 1);
}

}  // namespace
}  // namespace penstock::cluster_test
