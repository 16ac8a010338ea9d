// SPDX-License-Identifier: Apache-2.0
#include "models/collectives.hpp"

#include "models/sharing.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>
#include <vector>

namespace penstock::collectives_test {
namespace {

TEST(RingAllReduce, IsTwoRoundsOfNMinusOneSteps) {
  // 4 members, 8 GB, 10 GB/s, 1 ms: 6 steps of 2 GB each.
  EXPECT_DOUBLE_EQ(ring_all_reduce_s(4, 8e9, 1e-3, 10e9), 6 * (1e-3 + 0.2));
  EXPECT_DOUBLE_EQ(ring_all_reduce_s(2, 8e9, 0, 10e9), 0.8);  // 2 (1/2) 8 GB
}

TEST(RingAllReduce, OfOneMemberIsNothing) {
  EXPECT_EQ(ring_all_reduce_s(1, 8e9, 1e-3, 10e9), 0);
  EXPECT_EQ(ring_all_reduce_s(0, 8e9, 1e-3, 10e9), 0);
}

TEST(RingAllReduce, ApproachesTwiceTheBytesForManyMembers) {
  EXPECT_NEAR(ring_all_reduce_s(100'000, 8e9, 0, 10e9), 1.6, 1e-4);
}

TEST(RingAllReduce, OnUnlimitedLinksIsLatencyAlone) {
  EXPECT_DOUBLE_EQ(ring_all_reduce_s(3, 8e9, 0.5, std::numeric_limits<double>::infinity()), 2.0);
}

std::vector<std::tuple<int, int, double>> flows(const CollectivePhase& phase) {
  std::vector<std::tuple<int, int, double>> out;
  for (const CollectiveFlow& flow : phase.flows) out.emplace_back(flow.from, flow.to, flow.share);
  return out;
}

TEST(RingGather, IsHalfAnAllReduce) {
  for (const int n : {1, 2, 3, 8})
    EXPECT_DOUBLE_EQ(2 * ring_gather_s(n, 8e9, 1e-3, 10e9), ring_all_reduce_s(n, 8e9, 1e-3, 10e9));
}

/// Ports of 1 byte per second for each GPU, in both directions; nodes have a port of 1, too.
double alone_s(Collective what, ReductionAlgorithm algorithm, int gpus, int per_node, double bytes,
               double node_rate) {
  Cluster cluster;
  cluster.devices_per_node = per_node;
  cluster.nodes = gpus / per_node;
  cluster.attachment = Attachment::port;
  cluster.intra = {.latency_s = 0.5, .bytes_per_s = 1};
  cluster.inter = {.latency_s = 0.5, .bytes_per_s = node_rate};
  Network network(cluster);
  std::vector<int> all;
  for (int gpu = 0; gpu < gpus; ++gpu) all.push_back(gpu);
  double seconds = 0;
  for (const CollectivePhase& phase :
       collective(what, algorithm, all, [&](int gpu) { return cluster.node_of(gpu); })) {
    std::vector<LinkFlow> routes;
    double latency_s = 0;
    for (const CollectiveFlow& flow : phase.flows) {
      const Route route = network.route(flow.from, flow.to, true);
      latency_s = std::max(latency_s, route.latency_s);
      routes.push_back({route.links, flow.share * bytes});
    }
    seconds += phase.steps * latency_s + shared_flows_s(routes, network.links());
  }
  return seconds;
}

TEST(Collectives, OnPortsOfTheirOwnTakeWhatTheFormulasSay) {
  for (const int n : {2, 3, 4, 8}) {
    const auto alone = [&](Collective what) {
      return alone_s(what, ReductionAlgorithm::ring, n, n, 24, 1);
    };
    EXPECT_NEAR(alone(Collective::all_reduce), ring_all_reduce_s(n, 24, 0.5, 1), 1e-9) << n;
    EXPECT_NEAR(alone(Collective::all_gather), ring_gather_s(n, 24, 0.5, 1), 1e-9) << n;
    EXPECT_NEAR(alone(Collective::reduce_scatter), ring_gather_s(n, 24, 0.5, 1), 1e-9) << n;
    EXPECT_NEAR(alone(Collective::all_to_all), all_to_all_s(n, 24, 0.5, 1), 1e-9) << n;
  }
}

TEST(Collectives, OfSeveralNodesGoThroughThem) {
  // 2 nodes of 2: of all-to-all a GPU's half is for the other node, and the node's NIC carries two.
  const auto moved = [](Collective what, ReductionAlgorithm algorithm) {
    std::vector<double> crossing;
    for (const CollectivePhase& phase :
         collective(what, algorithm, {0, 1, 2, 3}, [](int gpu) { return gpu / 2; })) {
      double sum = 0;
      for (const CollectiveFlow& flow : phase.flows)
        sum += flow.from / 2 != flow.to / 2 ? flow.share : 0;
      crossing.push_back(sum);
    }
    return crossing;
  };
  using Shares = std::vector<double>;
  EXPECT_EQ(moved(Collective::all_to_all, ReductionAlgorithm::ring), Shares{2});
  EXPECT_EQ(moved(Collective::all_to_all, ReductionAlgorithm::hierarchical), (Shares{0, 2}));
  // The half that a node lacks comes once, as two quarters.
  EXPECT_EQ(moved(Collective::all_gather, ReductionAlgorithm::hierarchical), (Shares{1, 0}));
  EXPECT_EQ(moved(Collective::reduce_scatter, ReductionAlgorithm::hierarchical), (Shares{0, 1}));
}

/// What each GPU sends to other nodes, and to other places there; what it sends and gets in all.
struct Moved {
  double out = 0, in = 0, crossing_out = 0, crossing_in = 0, off_rail = 0;
};
std::vector<Moved> moved_by(const CollectivePhase& phase, int gpus, int per_node) {
  std::vector<Moved> moved(static_cast<std::size_t>(gpus));
  for (const CollectiveFlow& flow : phase.flows) {
    Moved& from = moved[static_cast<std::size_t>(flow.from)];
    Moved& to = moved[static_cast<std::size_t>(flow.to)];
    from.out += flow.share;
    to.in += flow.share;
    if (flow.from / per_node == flow.to / per_node) continue;
    from.crossing_out += flow.share;
    to.crossing_in += flow.share;
    if (flow.from % per_node != flow.to % per_node) from.off_rail += flow.share;
  }
  return moved;
}

TEST(Collectives, ARingUsesTheNicsOfAllMembers) {
  for (const int nodes : {2, 3, 4, 7}) {
    for (const int local : {2, 3, 4, 8}) {
      const int n = nodes * local;
      std::vector<int> all;
      for (int gpu = 0; gpu < n; ++gpu) all.push_back(gpu);
      const auto phases =
          all_reduce(ReductionAlgorithm::ring, all, [&](int gpu) { return gpu / local; });
      ASSERT_EQ(phases.size(), 1U);
      EXPECT_EQ(phases[0].steps, 2 * (n - 1));
      const double share = 2.0 * (n - 1) / n;
      for (const Moved& moved : moved_by(phases[0], n, local)) {
        EXPECT_NEAR(moved.out, share, 1e-12) << nodes << " x " << local;
        EXPECT_NEAR(moved.in, share, 1e-12);
        EXPECT_NEAR(moved.crossing_out, share / local, 1e-12) << nodes << " x " << local;
        EXPECT_NEAR(moved.crossing_in, share / local, 1e-12);
        if (nodes % 2 == 0 || local > 2) {
          EXPECT_EQ(moved.off_rail, 0) << nodes << " x " << local;
        }
      }
    }
  }
}

TEST(Collectives, NodesWithDifferentNumbersOfMembersShareOneRing) {
  const auto phases =
      all_reduce(ReductionAlgorithm::ring, {0, 1, 2, 3, 4}, [](int gpu) { return gpu / 3; });
  ASSERT_EQ(phases.size(), 1U);
  EXPECT_EQ(phases[0].flows.size(), 5U);
}

TEST(PushAndPull, GoToEveryServerAndBack) {
  using Flows = std::vector<std::tuple<int, int, double>>;
  const auto phases = push_and_pull({7, 3, 5}, 7, 2);  // the servers are the first two, 3 and 5
  ASSERT_EQ(phases.size(), 2U);
  EXPECT_EQ(flows(phases[0]), (Flows{{7, 3, 0.5}, {7, 5, 0.5}}));
  EXPECT_EQ(flows(phases[1]), (Flows{{3, 7, 0.5}, {5, 7, 0.5}}));
  EXPECT_EQ(phases[0].steps, 1);
}

TEST(PushAndPull, OfAServerDoNotGoToItself) {
  const auto two = push_and_pull({3, 5, 7}, 3, 2);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(flows(two[0]).size(), 1U);
  const auto alone = push_and_pull({3, 5, 7}, 3, 1);
  ASSERT_EQ(alone.size(), 2U);
  EXPECT_TRUE(alone[0].flows.empty());
  EXPECT_TRUE(push_and_pull({3}, 3).empty());
}

TEST(SharedFlows, OnLinksWithoutALimitTakeNoTime) {
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  const std::vector<NetworkLink> links{{"wide", kUnlimited, false}, {"narrow", 2, false}};
  EXPECT_EQ(shared_flows_s({{{0}, 5}, {{0}, 7}}, links), 0);
  EXPECT_EQ(shared_flows_s({{{0}, 5}, {{0, 1}, 6}}, links), 3);
  EXPECT_EQ(shared_flows_s({{{0, 1}, 2}, {{0, 1}, 6}, {{0}, 9}}, links), 4);
}

}  // namespace
}  // namespace penstock::collectives_test
