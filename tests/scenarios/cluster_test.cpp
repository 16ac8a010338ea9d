// Clusters as files describe them: inheritance of groups, defaults of fabrics, shipped ones, and
// where a pipeline is placed on them.
#include "scenarios/scenario.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock {
namespace {

/// The first GPU of every device.
std::vector<int> first_gpus(const Scenario& s) {
  std::vector<int> first;
  for (const std::vector<int>& gpus : s.gpus) first.push_back(gpus.front());
  return first;
}

Scenario read(const std::string& cluster, const std::string& pipeline = "stages: 2",
              const std::string& model = "{forward: 1 s, backward: 2 s}") {
  return parse_scenario("model: " + model + "\ncluster: " + cluster +
                            "\nschedule: gpipe\npipeline: {" + pipeline + "}\n",
                        "test");
}

Cluster cluster_of(const std::string& text) { return read(text).cluster; }

std::vector<std::string> way(const Cluster& c, int from, int to) {
  Network n(c);
  std::vector<std::string> names;
  for (const int l : n.route(from, to, false).links)
    names.push_back(n.links()[static_cast<std::size_t>(l)].name);
  return names;
}

// --- groups -------------------------------------------------------------------------------------

TEST(Groups, StartFromTheKeysOfTheirCluster) {
  const Cluster c = cluster_of(
      "{device: V100-16, devices_per_node: 4, intra: {bandwidth: 50 GB/s, latency: 4 us}, "
      "inter: {bandwidth: 25 Gbps, latency: 30 us}, "
      "groups: [{nodes: 2}, {nodes: 3, device: A100-80, devices_per_node: 8, intra: 300 GB/s, "
      "inter: {nics: 2}}]}");
  ASSERT_EQ(c.groups.size(), 2U);
  EXPECT_EQ(c.nodes, 5);
  EXPECT_EQ(c.devices(), 2 * 4 + 3 * 8);
  EXPECT_EQ(c.device_of(7).name, "V100-16");
  EXPECT_EQ(c.device_of(8).name, "A100-80");
  EXPECT_EQ(c.device.name, "V100-16") << "that of GPU 0";
  const NodeSpec& second = c.groups[1].node;
  EXPECT_EQ(second.intra.bytes_per_s, 300e9);
  EXPECT_EQ(second.intra.latency_s, 4e-6);
  EXPECT_EQ(second.inter.bytes_per_s, 25e9 / 8);
  EXPECT_EQ(second.nics_per_node, 2);
  EXPECT_EQ(c.fabric.most_nics, 2);
}

TEST(Groups, MayBeShippedClusters) {
  const Cluster c = cluster_of("{groups: [{base: dgx-a100, nodes: 2}, {base: p3.16xlarge}]}");
  EXPECT_EQ(c.devices(), 24);
  EXPECT_EQ(c.device_of(15).name, "A100-80");
  EXPECT_EQ(c.device_of(16).name, "V100-16");
  EXPECT_EQ(way(c, 0, 16), (std::vector<std::string>{"node0 nic0 out", "node2 nic0 in"}));
  EXPECT_EQ(way(c, 16, 17), std::vector<std::string>{"gpu16->gpu17"});
}

TEST(Groups, GiveThePipelineAllTheirGpus) {
  EXPECT_EQ(read("{inter: 1 GB/s, groups: [{devices_per_node: 3}, {devices_per_node: 1}]}",
                 "microbatches: 1", "{forward: 1 s, backward: 2 s, output: 1 KB}")
                .shape.depth,
            4U);
}

TEST(Groups, EveryStageTakesItsTimeOnItsOwnDevice) {
  const std::string model = "gpt-355m";
  const auto costs = [&](const std::string& cluster) {
    return read(cluster, "stages: 2, placement: [0, 1]", model).costs;
  };
  const std::string mixed =
      "model: gpt-355m\nschedule: 1f1b\ncluster: {inter: 25 Gbps, devices_per_node: 4, intra: 50 "
      "GB/s, groups: [{device: A100-80}, {device: V100-16}]}\n";
  const Scenario apart = parse_scenario(mixed + "pipeline: {stages: 2, width: 4}\n", "test.yaml");
  EXPECT_TRUE(apart.unlike.kind.empty()) << "each stage has one kind";
  EXPECT_LT(apart.costs[0].forward_s, apart.costs[1].forward_s);
  const Scenario across = parse_scenario(
      mixed + "pipeline: {stages: 4, width: 2, rank_order: pipeline-first}\n", "test.yaml");
  EXPECT_EQ(across.unlike.kind, (std::vector<std::size_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  ASSERT_EQ(across.unlike.costs.size(), 2U);
  EXPECT_LT(across.unlike.costs[0][1].forward_s, 0.7 * across.unlike.costs[1][1].forward_s);
  EXPECT_EQ(across.costs[1].forward_s, across.unlike.costs[1][1].forward_s) << "the slowest";
}

}  // namespace
}  // namespace penstock
