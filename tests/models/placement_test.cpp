// SPDX-License-Identifier: Apache-2.0
// Where the policies put the members of a pipeline, by hand.
#include "models/placement.hpp"

#include <gtest/gtest.h>

namespace penstock::placement_test {
namespace {

using Gpus = std::vector<int>;

/// Nodes of four GPUs: 0-3, 4-7, 8-11 ...
Cluster nodes_of_four(int nodes) {
  Cluster c;
  c.nodes = nodes;
  c.devices_per_node = 4;
  return c;
}

PlacementRequest request(std::vector<int> widths, PlacementPolicy policy, int tensor = 1) {
  PlacementRequest r;
  r.widths = std::move(widths);
  r.policy = policy;
  r.replica_gpus = tensor;
  return r;
}

Gpus placed(int nodes, const PlacementRequest& r) {
  const Cluster c = nodes_of_four(nodes);
  EXPECT_TRUE(refuse_placement(c, r).empty());
  return place(c, r);
}

std::vector<std::string> problems(int nodes, const PlacementRequest& r) {
  std::vector<std::string> found;
  for (const PlacementProblem& p : refuse_placement(nodes_of_four(nodes), r))
    found.push_back(std::to_string(p.item) + ": " + p.why);
  return found;
}

using P = PlacementPolicy;

TEST(Placement, RanksFillTheNodesInOrder) {
  // Index r * depth + s: replica 0 of stages 0, 1, 2, then replica 1.
  EXPECT_EQ(placed(2, request({2, 2, 2}, P::fill_node)), (Gpus{0, 2, 4, 1, 3, 5}));
  PlacementRequest pipelines = request({2, 2, 2}, P::fill_node);
  pipelines.pipeline_first = true;
  EXPECT_EQ(placed(2, pipelines), (Gpus{0, 1, 2, 3, 4, 5}));
}

TEST(Placement, TensorRanksAreNeighbours) {
  EXPECT_EQ(placed(2, request({2, 2}, P::fill_node, 2)), (Gpus{0, 1, 4, 5, 2, 3, 6, 7}));
}

TEST(Placement, UnevenWidthsLeaveGaps) {
  EXPECT_EQ(placed(1, request({3, 1}, P::fill_node)), (Gpus{0, 3, 1, -1, 2, -1}));
  PlacementRequest pipelines = request({1, 3}, P::fill_node);
  pipelines.pipeline_first = true;
  EXPECT_EQ(placed(1, pipelines), (Gpus{0, 1, -1, 2, -1, 3}));
}

TEST(Placement, FreshFirstTakesANodeOfItsOwnForEveryStage) {
  EXPECT_EQ(placed(2, request({2, 2, 2}, P::fresh_first)), (Gpus{0, 4, 2, 1, 5, 3}));
  // Six do not fit into one fresh node; the last stage finds none.
  EXPECT_EQ(placed(2, request({6, 2}, P::fresh_first)),
            (Gpus{0, 6, 1, 7, 2, -1, 3, -1, 4, -1, 5, -1}));
}

TEST(Placement, AppendFirstFillsNodesInUse) {
  EXPECT_EQ(placed(3, request({3, 3, 2}, P::append_first)), (Gpus{0, 3, 6, 1, 4, 7, 2, 5, -1}));
}

TEST(Placement, ScatterFirstTakesAsManyFromEveryNode) {
  // All fresh: one GPU of each of the three nodes; then from those in use.
  EXPECT_EQ(placed(3, request({3, 3}, P::scatter_first)), (Gpus{0, 1, 4, 5, 8, 9}));
  // Stage 0 of one GPU: only its node is in use, and its three others go first.
  EXPECT_EQ(placed(2, request({1, 5}, P::scatter_first)), (Gpus{0, 1, -1, 2, -1, 3, -1, 4, -1, 5}));
}

TEST(Placement, RoundRobinDealsTheRanksToTheNodes) {
  EXPECT_EQ(placed(3, request({1, 1, 1, 1}, P::round_robin)), (Gpus{0, 4, 8, 1}));
}

TEST(Placement, PoliciesKeepTensorRanksInOneNode) {
  EXPECT_EQ(placed(2, request({1, 1}, P::round_robin, 3)), (Gpus{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(placed(2, request({2, 1}, P::scatter_first, 2)), (Gpus{0, 1, 2, 3, 4, 5, -1, -1}));
  EXPECT_EQ(problems(3, request({1, 1, 1, 1}, P::append_first, 3)),
            std::vector<std::string>{"-1: the nodes have places for 3 groups of 3 GPUs, "
                                     "the pipeline has 4"});
}

TEST(Placement, NodesMayDiffer) {
  Cluster c = nodes_of_four(3);
  NodeSpec two = c;
  two.devices_per_node = 2;
  c.groups = {{1, two}, {2, c}};
  EXPECT_EQ(place(c, request({2, 2, 2}, P::fresh_first)), (Gpus{0, 2, 6, 1, 3, 7}));
  EXPECT_EQ(place(c, request({1, 1, 1, 1, 1, 1, 1}, P::round_robin)), (Gpus{0, 2, 6, 1, 3, 7, 4}));
}

TEST(Placement, AListNamesTheGpuOfEveryRank) {
  PlacementRequest list = request({2, 2}, P::fill_node);
  list.gpus = {7, 5, 0, 2};
  EXPECT_EQ(placed(2, list), (Gpus{7, 0, 5, 2}));
  list.pipeline_first = true;
  EXPECT_EQ(placed(2, list), (Gpus{7, 5, 0, 2}));
}

TEST(Placement, SaysEverythingThatIsWrongWithAList) {
  PlacementRequest list = request({2, 2}, P::fill_node);
  list.gpus = {7, 8, 7};
  EXPECT_EQ(problems(2, list), (std::vector<std::string>{
                                   "1: no GPU 8: the cluster has 0 to 7", "2: GPU 7 is used twice",
                                   "-1: 3 GPUs are listed, the pipeline needs 4"}));
}

TEST(Placement, NeedsEnoughGpus) {
  EXPECT_EQ(problems(1, request({3, 2}, P::fill_node)),
            std::vector<std::string>{"-1: the pipeline needs 5 GPUs, the cluster has 4"});
}

}  // namespace
}  // namespace penstock::placement_test
