// Which links a message crosses, under which names, and which of them are one link.
#include "models/cluster.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using Names = std::vector<std::string>;

Names way(Network& network, int from, int to, bool backward = false) {
  Names names;
  for (const int l : network.route(from, to, backward).links)
    names.push_back(network.links().at(static_cast<std::size_t>(l)).name);
  return names;
}

LinkSpec wire(double latency_s, double bytes_per_s, bool full_duplex = true) {
  LinkSpec link;
  link.latency_s = latency_s;
  link.bytes_per_s = bytes_per_s;
  link.full_duplex = full_duplex;
  return link;
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
  EXPECT_EQ(way(n, 0, 1, false), Names{"0->1 F"});
  EXPECT_EQ(way(n, 0, 1, true), Names{"0->1 B"});
  EXPECT_EQ(way(n, 1, 0, true), Names{"1->0 B"});
  EXPECT_EQ(n.links().size(), 3U);
  EXPECT_EQ(n.route(0, 3, false).latency_s, 0.5);
  EXPECT_EQ(n.links()[0].bytes_per_s, 1e9);
}

TEST(Network, AbstractHalfDuplexLinkIsSharedByAllOfAPair) {
  const Cluster c = abstract_cluster(false);
  Network n(c);
  EXPECT_EQ(way(n, 0, 1, false), Names{"0--1"});
  EXPECT_EQ(way(n, 1, 0, true), Names{"0--1"});
  EXPECT_EQ(way(n, 2, 1, true), Names{"1--2"});
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
  EXPECT_EQ(way(n, 0, 1), Names{"gpu0->gpu1"});
  EXPECT_EQ(way(n, 0, 1, true), Names{"gpu0->gpu1"});
  EXPECT_EQ(way(n, 1, 0, true), Names{"gpu1->gpu0"});
  EXPECT_EQ(n.route(0, 1, false).latency_s, 1e-6);
  EXPECT_EQ(n.links()[0].bytes_per_s, 50e9);
}

TEST(Network, HalfDuplexPairsShareOneLink) {
  Cluster c = real_cluster(Attachment::pairs);
  c.intra.full_duplex = false;
  Network n(c);
  EXPECT_EQ(way(n, 2, 1), Names{"gpu1--gpu2"});
  EXPECT_EQ(way(n, 1, 2), Names{"gpu1--gpu2"});
}

TEST(Network, SwitchGivesEachGpuAPortOutAndAPortIn) {
  const Cluster c = real_cluster(Attachment::port);
  Network n(c);
  EXPECT_EQ(way(n, 0, 1), (Names{"gpu0 out", "gpu1 in"}));
  EXPECT_EQ(way(n, 0, 2), (Names{"gpu0 out", "gpu2 in"}));  // the same port out
  EXPECT_EQ(way(n, 1, 0), (Names{"gpu1 out", "gpu0 in"}));
  EXPECT_EQ(n.links().size(), 5U);
}

TEST(Network, HalfDuplexPortIsOneLinkForBothDirections) {
  Cluster c = real_cluster(Attachment::port);
  c.intra.full_duplex = false;
  Network n(c);
  EXPECT_EQ(way(n, 0, 1), (Names{"gpu0", "gpu1"}));
  EXPECT_EQ(way(n, 1, 0), (Names{"gpu1", "gpu0"}));
  EXPECT_EQ(n.links().size(), 2U);
}

TEST(Network, NodesAreJoinedByTheirNics) {
  const Cluster c = real_cluster(Attachment::pairs);
  Network n(c);
  EXPECT_EQ(way(n, 3, 4), (Names{"node0 nic0 out", "node1 nic0 in"}));
  EXPECT_EQ(way(n, 1, 6), (Names{"node0 nic0 out", "node1 nic0 in"}));  // one NIC for all four
  EXPECT_EQ(way(n, 4, 3), (Names{"node1 nic0 out", "node0 nic0 in"}));
  EXPECT_EQ(n.route(3, 4, false).latency_s, 1e-5);
  EXPECT_EQ(n.links()[0].bytes_per_s, 3e9);
}

TEST(Network, GpusShareTheNicsOfTheirNodeEvenly) {
  Cluster c = real_cluster(Attachment::pairs);
  c.nics_per_node = 2;
  Network n(c);
  EXPECT_EQ(way(n, 0, 7), (Names{"node0 nic0 out", "node1 nic1 in"}));
  EXPECT_EQ(way(n, 1, 6), (Names{"node0 nic0 out", "node1 nic1 in"}));
  EXPECT_EQ(way(n, 2, 5), (Names{"node0 nic1 out", "node1 nic0 in"}));
  c.nics_per_node = 4;
  Network own(c);
  EXPECT_EQ(way(own, 3, 4), (Names{"node0 nic3 out", "node1 nic0 in"}));
}

TEST(Network, HalfDuplexNicIsOneLinkForBothDirections) {
  Cluster c = real_cluster(Attachment::pairs);
  c.inter.full_duplex = false;
  Network n(c);
  EXPECT_EQ(way(n, 3, 4), (Names{"node0 nic0", "node1 nic0"}));
  EXPECT_EQ(way(n, 4, 3), (Names{"node1 nic0", "node0 nic0"}));
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

TEST(Cluster, NumbersItsGpusNodeByNode) {
  const Cluster c = real_cluster(Attachment::pairs);
  EXPECT_EQ(c.devices(), 8);
  EXPECT_EQ(c.node_of(3), 0);
  EXPECT_EQ(c.node_of(4), 1);
}

}  // namespace
}  // namespace penstock
