// SPDX-License-Identifier: Apache-2.0
// Clusters as files describe them: inheritance of groups, defaults of fabrics, shipped ones, and
// where a pipeline is placed on them.
#include "scenarios/scenario.hpp"

#include "tests/scenarios/first_gpus.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::cluster_test {
namespace {

Scenario read(const std::string& cluster, const std::string& pipeline = "stages: 2",
              const std::string& model = "{forward: 1 s, backward: 2 s}") {
  return parse_scenario("stack: none\nmodel: " + model + "\ncluster: " + cluster +
                            "\nschedule: gpipe\npipeline: {" + pipeline + "}\n",
                        "test");
}

Cluster cluster_of(const std::string& text) { return read(text).cluster; }

std::vector<std::string> route(const Cluster& c, int from, int to) {
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
  EXPECT_EQ(route(c, 0, 16), (std::vector<std::string>{"node0 nic0 out", "node2 nic0 in"}));
  EXPECT_EQ(route(c, 16, 17), std::vector<std::string>{"gpu16->gpu17"});
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
      "{inter: 1 GB/s, devices_per_node: 1, groups: [{device: V100-16}, {device: A100-80}]}";
  const auto both = costs(mixed);
  const auto slow = costs("{inter: 1 GB/s, nodes: 2, devices_per_node: 1, device: V100-16}");
  const auto fast = costs("{inter: 1 GB/s, nodes: 2, devices_per_node: 1, device: A100-80}");
  EXPECT_EQ(both[0][OpKind::forward].seconds, slow[0][OpKind::forward].seconds);
  EXPECT_EQ(both[1][OpKind::forward].seconds, fast[1][OpKind::forward].seconds);
  EXPECT_LT(both[1][OpKind::forward].seconds, slow[1][OpKind::forward].seconds);
}

TEST(Groups, ABalancedSplitGivesTheFasterDeviceMoreLayers) {
  const Scenario s =
      read("{inter: 1 GB/s, devices_per_node: 1, groups: [{device: V100-16}, {device: A100-80}]}",
           "stages: 2, split: balanced", "gpt-355m");
  ASSERT_EQ(s.layers.size(), 2U);
  EXPECT_GT(s.layers[1], s.layers[0]);
  const auto time = [&](std::size_t i) {
    return s.costs[i][OpKind::forward].seconds + s.costs[i][OpKind::backward].seconds;
  };
  const double layer_s = time(0) / s.layers[0];
  EXPECT_NEAR(time(0), time(1), layer_s);
}

// --- fabrics ------------------------------------------------------------------------------------

TEST(Fabric, AnOversubscribedLeafSharesWhatItsUplinksHave) {
  // Leaves of 8 nodes with 10 GB/s each, 4 : 1: two uplinks of 10 GB/s.
  const Cluster c = cluster_of(
      "{nodes: 16, devices_per_node: 1, inter: 10 GB/s, "
      "fabric: {topology: fat-tree, leaf: 8, oversubscription: 4, link: {latency: 1 us}}}");
  ASSERT_EQ(c.fabric.levels.size(), 1U);
  EXPECT_EQ(c.fabric.levels[0].uplinks, 2);
  EXPECT_EQ(c.fabric.levels[0].uplink.bytes_per_s, 10e9);
  EXPECT_EQ(c.fabric.levels[0].uplink.latency_s, 1e-6);
  EXPECT_EQ(route(c, 0, 9), (std::vector<std::string>{"node0 nic0 out", "leaf0 up1 out",
                                                      "leaf1 up1 in", "node9 nic0 in"}));
}

TEST(Fabric, HasAsManyUplinksAsAsked) {
  const Cluster c = cluster_of(
      "{nodes: 4, devices_per_node: 4, inter: {bandwidth: 10 GB/s, nics: 2}, "
      "fabric: {topology: fat-tree, leaf: 2, uplinks: 1, oversubscription: 2}}");
  EXPECT_EQ(c.fabric.levels[0].uplinks, 1);
  EXPECT_EQ(c.fabric.levels[0].uplink.bytes_per_s, 20e9);  // 4 NICs x 10 GB/s, halved
  const Cluster own = cluster_of(
      "{nodes: 4, devices_per_node: 4, inter: 10 GB/s, "
      "fabric: {topology: fat-tree, leaf: 2, link: 7 GB/s}}");
  EXPECT_EQ(own.fabric.levels[0].uplinks, 2);
  EXPECT_EQ(own.fabric.levels[0].uplink.bytes_per_s, 7e9);
}

TEST(Fabric, OversubscriptionHoldsAtEveryLevel) {
  // 2:1 twice: a leaf of 4 has 2 cables of 10, a pod of 4 leaves 4 x 10 in for each of its switches
  // and 2 x 10 out.
  const Cluster c = cluster_of(
      "{nodes: 32, devices_per_node: 1, inter: 10 GB/s, "
      "fabric: {topology: fat-tree, leaf: 4, levels: 3, oversubscription: 2}}");
  ASSERT_EQ(c.fabric.levels.size(), 2U);
  EXPECT_EQ(c.fabric.levels[1].children, 4);
  EXPECT_EQ(c.fabric.levels[1].uplinks, 2);
  EXPECT_EQ(c.fabric.levels[1].uplink.bytes_per_s, 10e9);
}

TEST(Fabric, ARailsLeafHasOnePortPerNode) {
  const Cluster c = cluster_of(
      "{nodes: 8, devices_per_node: 4, inter: {bandwidth: 10 GB/s, nics: 4}, "
      "fabric: {topology: fat-tree, rails: true, leaf: 4}}");
  EXPECT_TRUE(c.fabric.rails);
  EXPECT_EQ(c.fabric.levels[0].uplinks, 4);
}

TEST(Fabric, LinksAreAsWideAsANicUnlessTheySay) {
  const Cluster d = cluster_of(
      "{nodes: 8, devices_per_node: 1, inter: {bandwidth: 10 GB/s, latency: 5 us}, "
      "fabric: {topology: dragonfly, groups: 4, routers: 2, global: {latency: 1 us}}}");
  EXPECT_EQ(d.fabric.link.bytes_per_s, 10e9);
  EXPECT_EQ(d.fabric.link.latency_s, 0);
  EXPECT_EQ(d.fabric.global.bytes_per_s, 10e9);
  EXPECT_EQ(d.fabric.global.latency_s, 1e-6);
  const Cluster t = cluster_of(
      "{nodes: 12, devices_per_node: 1, inter: 10 GB/s, "
      "fabric: {topology: torus, shape: 3x2x2, link: {bandwidth: 4 GB/s, duplex: half}}}");
  EXPECT_EQ(t.fabric.shape, (std::vector<int>{3, 2, 2}));
  EXPECT_EQ(t.fabric.link.bytes_per_s, 4e9);
  EXPECT_FALSE(t.fabric.link.full_duplex);
}

// --- shipped clusters ---------------------------------------------------------------------------

/// NVLinks between two GPUs, 0 for the PCIe tree.
int nvlinks(const Cluster& c, int a, int b) {
  for (const MeshLink& link : c.mesh) {
    if (std::minmax(link.from, link.to) == std::minmax(a, b)) return link.count;
  }
  return 0;
}

TEST(ShippedClusters, P3HasTheHybridCubeMesh) {
  const Cluster c = load_cluster("p3.16xlarge");
  int pairs[3] = {0, 0, 0};
  for (int a = 0; a < 8; ++a) {
    int links = 0;
    for (int b = 0; b < 8; ++b) {
      if (a == b) continue;
      links += nvlinks(c, a, b);
      ++pairs[nvlinks(c, a, b)];
    }
    EXPECT_EQ(links, 6) << "of GPU " << a;
    EXPECT_EQ(nvlinks(c, a, (a + 1) % 8), 2) << "ranks lie on the ring of double links";
  }
  EXPECT_EQ(pairs[0] / 2, 12);
  EXPECT_EQ(pairs[1] / 2, 8);
  EXPECT_EQ(pairs[2] / 2, 8);
}

TEST(ShippedClusters, P3IsWiredAsItsSourceSays) {
  // `nvidia-smi topo -m`, upper triangle by rows, - for SYS.
  const std::string smi[] = {"1122---", "21-2--", "2--1-", "---1", "112", "21", "2"};
  const auto expect_wired = [&](const std::string& name, const std::vector<int>& cuda) {
    const Cluster c = load_cluster(name);
    for (int a = 0; a < 8; ++a) {
      for (int b = 0; b < 8; ++b) {
        const auto [low, high] =
            std::minmax(cuda[static_cast<std::size_t>(a)], cuda[static_cast<std::size_t>(b)]);
        if (a == b) continue;
        const char there = smi[low][static_cast<std::size_t>(high - low - 1)];
        EXPECT_EQ(nvlinks(c, a, b), there == '-' ? 0 : there - '0') << name << a << " " << b;
      }
    }
  };
  expect_wired("p3.16xlarge", {0, 3, 2, 1, 5, 6, 7, 4});
  expect_wired("p3.16xlarge-x8", {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST(ShippedClusters, HaveThePublishedSizes) {
  EXPECT_EQ(load_cluster("gb200-nvl72").devices(), 72);
  EXPECT_EQ(load_cluster("azure-nc24v3").devices(), 16);
  EXPECT_EQ(load_cluster("pipedream-b").devices(), 16);
  EXPECT_EQ(load_cluster("pipedream-c").devices(), 4);
  EXPECT_EQ(load_cluster("p3.16xlarge-x8").devices(), 64);
  EXPECT_EQ(load_cluster("azure-nc24v3").inter.bytes_per_s, 10e9 / 8);
  EXPECT_EQ(
      load_cluster("p4d.24xlarge").nics_per_node * load_cluster("p4d.24xlarge").inter.bytes_per_s,
      400e9 / 8);
}

TEST(ShippedClusters, TwoRacksShareAnUplink) {
  const Cluster c = load_cluster("ethernet-two-racks");
  EXPECT_EQ(c.fabric.levels[0].uplinks, 1);
  EXPECT_EQ(c.fabric.levels[0].uplink.bytes_per_s, 25e9 / 8);
  EXPECT_EQ(route(c, 0, 16),
            (std::vector<std::string>{"gpu0 pcie out", "node0 pcie0 out", "node0 nic0 out",
                                      "leaf0 up0 out", "leaf1 up0 in", "node4 nic0 in",
                                      "node4 pcie0 in", "gpu16 pcie in"}));
}

TEST(ShippedClusters, ABandwidthAloneKeepsTheRestOfTheLink) {
  const Cluster base = load_cluster("p4d.24xlarge");
  const Cluster c = cluster_of("{base: p4d.24xlarge, nodes: 8, inter: 25 Gbps}");
  EXPECT_EQ(c.nodes, 8);
  EXPECT_EQ(c.inter.bytes_per_s, 25e9 / 8);
  EXPECT_EQ(c.inter.latency_s, base.inter.latency_s);
  EXPECT_EQ(c.nics_per_node, 4);
  EXPECT_EQ(c.nic_place, NicPlace::pcie_switch);
  const Cluster uplink = cluster_of("{base: ethernet-two-racks, fabric: {oversubscription: 2}}");
  EXPECT_EQ(uplink.fabric.levels[0].uplinks, 2);
  EXPECT_EQ(uplink.fabric.levels[0].uplink.latency_s, 1e-6);
}

// --- placement ----------------------------------------------------------------------------------

constexpr const char* kTwoNodes = "{nodes: 2, devices_per_node: 4, intra: 50 GB/s, inter: 10 GB/s}";

TEST(PipelinePlacement, IsInRankOrderByDefault) {
  EXPECT_EQ(first_gpus(read(kTwoNodes, "stages: 3, width: 2")),
            (std::vector<int>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(first_gpus(read(kTwoNodes, "stages: 3, width: 2, rank_order: pipeline-first")),
            (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(PipelinePlacement, FollowsAPolicyOrAList) {
  EXPECT_EQ(first_gpus(read(kTwoNodes, "stages: 2, width: 2, placement: fresh-first")),
            (std::vector<int>{0, 4, 1, 5}));
  EXPECT_EQ(first_gpus(read(kTwoNodes, "stages: 2, width: 2, placement: scatter-first")),
            (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(first_gpus(read(kTwoNodes, "stages: 4, placement: round-robin")),
            (std::vector<int>{0, 4, 1, 5}));
  EXPECT_EQ(first_gpus(read(kTwoNodes, "stages: 2, width: 2, placement: [7, 5, 0, 2]")),
            (std::vector<int>{7, 0, 5, 2}));
}

// The first stage's two GPUs share a node, those of the second do not.
TEST(PipelinePlacement, PricesExchangesOfEachStageOnItsOwnGpus) {
  const std::string cluster =
      "{device: A100-80, nodes: 2, devices_per_node: 4, intra: 50 GB/s, inter: 10 GB/s}";
  const auto each_costs_more = [](const PerStage<CollectivePrice>& price) {
    return price.at(1).s_per_byte > 2 * price.at(0).s_per_byte && price.at(0).s_per_byte > 0;
  };
  const Scenario matrices =
      read(cluster, "stages: 2, width: 2, shard: weights, placement: [0, 1, 2, 4]",
           "gpt-355m\ntraining: {optimizer: muon}");
  EXPECT_TRUE(each_costs_more(matrices.matrix_exchange));
  EXPECT_GT(matrices.costs[1].step_s, matrices.costs[0].step_s);
  const Scenario tensor =
      read(cluster, "stages: 2, tensor: 2, placement: [0, 1, 2, 4]", "gpt-355m");
  EXPECT_TRUE(each_costs_more(tensor.tensor_sum));
}

// --- replication --------------------------------------------------------------------------------

TEST(DividedReplication, IsOneDevicePerStage) {
  const Scenario s = read(kTwoNodes, "stages: 2, width: 3, replication: split, microbatch_size: 6");
  EXPECT_EQ(s.devices(), 2);
  EXPECT_EQ(s.gpu_count(), 6);
  EXPECT_EQ(s.widths(), (std::vector<int>{3, 3}));
  EXPECT_EQ(s.mesh.gpus, (std::vector<std::vector<int>>{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(s.samples_per_update(), 6);
  const Scenario uneven =
      read(kTwoNodes, "stages: 2, width: [3, 1], replication: split, microbatch_size: 6");
  EXPECT_EQ(uneven.mesh.gpus, (std::vector<std::vector<int>>{{0, 1, 2}, {3}}));
}

TEST(DividedReplication, DividesTheWorkAndNotTheMessages) {
  const Scenario whole = read(kTwoNodes, "stages: 2, microbatch_size: 6");
  const Scenario split =
      read(kTwoNodes, "stages: 2, width: 3, replication: split, microbatch_size: 6");
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_DOUBLE_EQ(split.costs[s][OpKind::forward].seconds,
                     whole.costs[s][OpKind::forward].seconds / 3);
    EXPECT_EQ(split.costs[s].output_bytes, whole.costs[s].output_bytes);
    EXPECT_EQ(split.costs[s].weight_bytes, whole.costs[s].weight_bytes);
  }
}

TEST(DividedReplication, HasAsManyRanksPerReplicaAsTheyShare) {
  const Scenario s = parse_scenario(
      "model: gpt-355m\nstack: none\ncluster: {base: dgx-a100}\nschedule: 1f1b\n"
      "pipeline: {stages: 2, width: 2, tensor: 2, replication: split, microbatch_size: 2}\n",
      "test.yaml");
  EXPECT_EQ(s.mesh.gpus, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(s.mesh.size(Axis::tensor), 2);
  EXPECT_GT(s.costs[0].reduce_grad_s, 0);
}

TEST(UnlikeReplicas, HaveTimesOfTheirOwn) {
  const std::string mixed =
      "model: gpt-355m\nstack: none\nschedule: 1f1b\ncluster: {inter: 25 Gbps, devices_per_node: "
      "4, intra: 50 "
      "GB/s, groups: [{device: A100-80}, {device: V100-16}]}\n";
  const Scenario apart = parse_scenario(mixed + "pipeline: {stages: 2, width: 4}\n", "test.yaml");
  EXPECT_TRUE(apart.unlike.kind.empty()) << "each stage has one kind";
  EXPECT_LT(apart.costs[0][OpKind::forward].seconds, apart.costs[1][OpKind::forward].seconds);
  const Scenario across = parse_scenario(
      mixed + "pipeline: {stages: 4, width: 2, rank_order: pipeline-first}\n", "test.yaml");
  EXPECT_EQ(across.unlike.kind, (std::vector<std::size_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  ASSERT_EQ(across.unlike.costs.size(), 2U);
  EXPECT_LT(across.unlike.costs[0][1][OpKind::forward].seconds,
            0.7 * across.unlike.costs[1][1][OpKind::forward].seconds);
  EXPECT_EQ(across.costs[1][OpKind::forward].seconds,
            across.unlike.costs[1][1][OpKind::forward].seconds)
      << "the slowest";
}

TEST(UnevenReplicas, AreGivenLayersForAllOfThem) {
  const auto layers = [](const std::string& width) {
    return parse_scenario(
               "model: gpt-1.3b\nstack: none\ncluster: dgx-a100\nschedule: pipedream\npipeline: "
               "{stages: 2, split: balanced, width: " +
                   width + "}\n",
               "test.yaml")
        .layers;
  };
  EXPECT_EQ(layers("2"), (std::vector<int>{13, 11})) << "the LM head is on the last stage";
  const std::vector<int> uneven = layers("[3, 1]");
  EXPECT_GE(uneven[0], 18) << "three quarters of the layers, and more for the head";
  EXPECT_LE(uneven[0], 20);
}

TEST(UnlikeReplicas, AreToldApartByMoreThanTheirName) {
  const Scenario s = parse_scenario(
      "model: gpt-355m\nstack: none\nschedule: 1f1b\ncluster: {inter: 25 Gbps, devices_per_node: "
      "1, groups: "
      "[{device: {peak: {fp16: 300 TFLOP/s}, memory: 80 GiB}}, {device: {peak: {fp16: 30 TFLOP/s}, "
      "memory: 8 GiB}}]}\npipeline: {stages: 1, width: 2}\n",
      "test.yaml");
  ASSERT_EQ(s.unlike.costs.size(), 2U);
  EXPECT_LT(s.unlike.costs[0][0][OpKind::forward].seconds,
            0.2 * s.unlike.costs[1][0][OpKind::forward].seconds);
}

TEST(Groups, TakeTheNetworkOfTheirClusterOverTheirBases) {
  const Cluster c = cluster_of(
      "{inter: 10 Gbps, groups: [{base: dgx-a100}, {base: p3.16xlarge, inter: 20 Gbps}]}");
  EXPECT_EQ(c.groups[0].node.inter.bytes_per_s, 10e9 / 8);
  EXPECT_EQ(c.groups[0].node.inter.latency_s, load_cluster("dgx-a100").inter.latency_s);
  EXPECT_EQ(c.groups[0].node.nics_per_node, 8);
  EXPECT_EQ(c.groups[1].node.inter.bytes_per_s, 20e9 / 8);
}

TEST(NextBatch, KeepsSecondGradientsOnlyWhereSomethingIsReduced) {
  const auto gradients = [](const std::string& overlap) {
    const Scenario s = parse_scenario(
        "model: {forward: 1 s, backward: 2 s, gradients: 1 GB}\nschedule: pipedream-2bw\n"
        "pipeline: {stages: 2, width: [3, 1], microbatches: 6, reduction: {overlap: " +
            overlap + "}}\n",
        "test.yaml");
    return std::pair(s.costs[0].gradient_bytes, s.costs[1].gradient_bytes);
  };
  EXPECT_EQ(gradients("none"), std::pair(std::int64_t{1'000'000'000}, std::int64_t{1'000'000'000}));
  EXPECT_EQ(gradients("next-batch"),
            std::pair(std::int64_t{2'000'000'000}, std::int64_t{1'000'000'000}));
}

TEST(DistributedOptimizer, ChangesNothingWithOneReplica) {
  const std::string text =
      "model: gpt-355m\nstack: none\ncluster: dgx-a100\nschedule: 1f1b\n"
      "pipeline: {stages: 8, microbatches: 8, distributed_optimizer: ";
  const Scenario with = parse_scenario(text + "true}\n", "test.yaml");
  EXPECT_FALSE(with.sharding.sharded());
  ASSERT_FALSE(with.notes.empty());
  EXPECT_NE(with.notes.front().find("distributed_optimizer changes nothing"), std::string::npos);
  EXPECT_EQ(with.costs[0].optimizer_bytes,
            parse_scenario(text + "false}\n", "test.yaml").costs[0].optimizer_bytes);
}

TEST(DistributedOptimizer, GathersTheWeightsBehindAllGradients) {
  const Scenario s = parse_scenario(
      "model: gpt-355m\nstack: none\ncluster: dgx-a100\nschedule: data-parallel\n"
      "pipeline: {distributed_optimizer: true, reduction: {overlap: backward}}\n",
      "test.yaml");
  const auto& buckets = s.reduction.buckets.at(0);
  ASSERT_GT(buckets.size(), 2U);
  EXPECT_EQ(buckets.back().ready, 1);
  const ParameterBytes& bytes = s.transformer->bytes;
  EXPECT_DOUBLE_EQ(buckets.back().share, bytes.weights / (bytes.weights + bytes.reduced));
  double sum = 0;
  for (const GradientBucket& bucket : buckets) sum += bucket.share;
  EXPECT_NEAR(sum, 1, 1e-12);
}

}  // namespace
}  // namespace penstock::cluster_test
