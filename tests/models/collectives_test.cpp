// SPDX-License-Identifier: Apache-2.0
#include "models/collectives.hpp"

#include "models/sharing.hpp"
#include "tests/ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

namespace penstock::collectives_test {
namespace {

std::vector<std::tuple<int, int, double>> flows(const CollectivePhase& phase) {
  std::vector<std::tuple<int, int, double>> out;
  for (const CollectiveFlow& flow : phase.flows) out.emplace_back(flow.from, flow.to, flow.share);
  return out;
}

/// GPUs with ports of 1 byte per second and 0.5 s, in both directions; nodes have a port for each.
Cluster ported(int nodes, int per_node) {
  Cluster cluster;
  cluster.devices_per_node = cluster.nics_per_node = per_node;
  cluster.nodes = nodes;
  cluster.attachment = Attachment::port;
  cluster.intra = {.latency_s = 0.5, .bytes_per_s = 1};
  cluster.inter = {.latency_s = 2, .bytes_per_s = 0.25};
  return cluster;
}

std::vector<int> first_gpus(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(Price, OnPortsOfTheirOwnIsWhatTheFormulasSay) {
  for (const int n : {2, 3, 4, 8}) {
    const auto alone_s = [&](Collective what) {
      return price({what}, {first_gpus(n)}, ported(1, n)).seconds(24);
    };
    EXPECT_NEAR(alone_s(Collective::all_reduce), ring_s(2, n, 24, 0.5, 1), 1e-9) << n;
    EXPECT_NEAR(alone_s(Collective::all_gather), ring_s(1, n, 24, 0.5, 1), 1e-9) << n;
    EXPECT_NEAR(alone_s(Collective::reduce_scatter), ring_s(1, n, 24, 0.5, 1), 1e-9) << n;
    // Everybody's part of the others at once, over its port.
    EXPECT_NEAR(alone_s(Collective::all_to_all), 0.5 + (n - 1) / double(n) * 24, 1e-9) << n;
  }
}

TEST(Price, OfOneMemberIsNothing) {
  EXPECT_EQ(price({}, {{3}}, ported(1, 4)).seconds(24), 0);
  EXPECT_EQ(price({}, GpuGroups{}, ported(1, 4)).seconds(24), 0);
}

TEST(Price, ApproachesTwiceTheBytesForManyMembers) {
  EXPECT_NEAR(price({}, {first_gpus(512)}, ported(1, 512)).s_per_byte, 2, 1e-2);
}

TEST(Price, OnUnlimitedLinksIsLatencyAlone) {
  Cluster cluster = ported(1, 3);
  cluster.intra.bytes_per_s = std::numeric_limits<double>::infinity();
  EXPECT_EQ(price({}, {first_gpus(3)}, cluster), (CollectivePrice{2, 0}));
}

/// A node in which an all-gather among 4 was measured: 2 s and 3 s a byte, joined by their roots.
Cluster measured_node(int nodes) {
  Cluster cluster = ported(nodes, 4);
  cluster.measured = {{Collective::all_gather, 2, {1, 2, 0.5}},
                      {Collective::all_gather, 4, {2, 3, 0.5}}};
  return cluster;
}

TEST(Price, WithinANodeIsWhatWasMeasured) {
  const auto gather_s = [](const GpuGroups& groups, int nodes, double bytes, double calls = 1) {
    return price({Collective::all_gather}, groups, measured_node(nodes)).seconds(bytes, calls);
  };
  const auto joined = [](double a, double b) { return std::pow(std::sqrt(a) + std::sqrt(b), 2); };
  EXPECT_DOUBLE_EQ(gather_s({{0, 1, 2, 3}}, 1, 24), joined(2, 72));
  EXPECT_DOUBLE_EQ(gather_s({{0, 1, 2, 3}}, 1, 24, 3), 3 * joined(2, 24));
  EXPECT_DOUBLE_EQ(gather_s({{0, 1}, {2, 3}}, 1, 24), joined(1, 48)) << "side by side";
  // Among 3: the rate at which bytes leave a GPU of two, halfway between the latencies.
  EXPECT_DOUBLE_EQ(gather_s({{0, 1, 2}}, 1, 24), joined(1.5, 24 * 2 * (2.0 / 3) / (1.0 / 2)));
  // Over nodes, of another kind, or of two sizes at once: the links say it.
  EXPECT_DOUBLE_EQ(gather_s({{0, 1, 4, 5}}, 2, 24),
                   price({Collective::all_gather}, {{0, 1, 4, 5}}, ported(2, 4)).seconds(24));
  EXPECT_DOUBLE_EQ(price({}, {{0, 1, 2, 3}}, measured_node(1)).seconds(24),
                   price({}, {{0, 1, 2, 3}}, ported(1, 4)).seconds(24));
  EXPECT_DOUBLE_EQ(gather_s({{0, 1}, {2}}, 1, 24), joined(1, 48)) << "one alone gathers nothing";
}

/// Eight GPUs of a node, and tokens with 8 experts each: they visit 1 - (7/8)^8 of the others.
TEST(Price, OfTokensThatGoOnceToEachGpu) {
  Exchange exchange{Collective::all_to_all};
  exchange.routing = {.once_per_node = true, .per_token = 8};
  const double once = 7 * (1 - std::pow(7.0 / 8, 8)) / 8;
  const auto tokens_s = [&] { return price(exchange, {first_gpus(8)}, ported(1, 8)).s_per_byte; };
  EXPECT_DOUBLE_EQ(tokens_s(), once);
  exchange.routing.sms = 2;  // which send half a byte each second, where links take one
  exchange.routing.sm_bytes_per_s = 0.25;
  EXPECT_DOUBLE_EQ(tokens_s(), 2 * once);
  exchange.routing.sms = 8;
  EXPECT_DOUBLE_EQ(tokens_s(), once) << "links are slower";
  // With two parts of which a token's experts are in one: it visits 1 - (3/4)^8 of four.
  exchange.routing = {.once_per_node = true, .per_token = 8, .parts = 2, .parts_per_token = 1};
  EXPECT_DOUBLE_EQ(tokens_s(), 7 * (1 - std::pow(3.0 / 4, 8)) / 2 / 8);
  exchange.routing.once_per_node = false;
  EXPECT_DOUBLE_EQ(tokens_s(), 7.0 / 8);
  // By what an all-to-all of all copies was measured to take, where it was.
  Cluster measured = ported(1, 8);
  measured.measured = {{Collective::all_to_all, 8, {1, 3, 0.5}}};
  exchange.routing = {.once_per_node = true, .per_token = 8};
  EXPECT_DOUBLE_EQ(price(exchange, {first_gpus(8)}, measured).s_per_byte, 3 * once * 8 / 7);
}

TEST(Price, OfFasterLinksScalesWhatWasMeasuredButNotItsLatency) {
  Cluster cluster = measured_node(1);
  scale_bandwidth(cluster, 2, LinkClass::between_nodes);
  EXPECT_EQ(cluster.measured[1].price, (CollectivePrice{2, 3, 0.5}));
  scale_bandwidth(cluster, 2, LinkClass::within_nodes);
  EXPECT_EQ(cluster.measured[1].price, (CollectivePrice{2, 1.5, 0.5}));
}

TEST(Price, BeyondTheMeasuredNumbersKeepsTheRateAndItsLatencyGrows) {
  const std::vector<MeasuredCollective> measured = measured_node(1).measured;
  const auto of = [&](int ranks) {
    return *measured_price(measured, Collective::all_gather, ranks);
  };
  EXPECT_DOUBLE_EQ(of(16).call_s, 2 + 12 * 0.5);
  EXPECT_DOUBLE_EQ(of(16).s_per_byte, 3 * (15.0 / 16) / (3.0 / 4));
  EXPECT_FALSE(measured_price(measured, Collective::all_to_all, 4));
}

TEST(Price, CountsCallsAndBytes) {
  const CollectivePrice one = price({}, {first_gpus(4)}, ported(1, 4));
  EXPECT_DOUBLE_EQ(one.seconds(24, 3), 3 * one.seconds(8));
}

/// Whoever reduces, and wherever they are: tensor groups of `apart` neighbours, of which each
/// replica's is anywhere.
TEST(Price, IsNeverBelowTheLeastOfAllPlaces) {
  std::mt19937 random(7);
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int tight = 0;
  for (int i = 0; i < 2'000; ++i) {
    const int apart = 1 << pick(0, 2), per_node = apart * (1 << pick(0, 2)), nodes = pick(1, 6);
    Cluster cluster = ported(nodes, per_node);
    cluster.attachment = pick(0, 1) == 0 ? Attachment::port : Attachment::pairs;
    cluster.inter.bytes_per_s = std::ldexp(1, pick(-4, 2));
    if (pick(0, 3) == 0)
      cluster.measured = {{Collective::all_reduce, 2, {0, std::ldexp(1, pick(-3, 2)), 0.6}}};
    std::vector<int> places = first_gpus(nodes * per_node / apart);
    const int members = pick(1, static_cast<int>(places.size()));
    if (pick(0, 2) > 0) std::ranges::shuffle(places, random);
    GpuGroups groups(static_cast<std::size_t>(apart));
    for (int m = 0; m < members; ++m)
      for (int rank = 0; rank < apart; ++rank)
        groups[static_cast<std::size_t>(rank)].push_back(
            places[static_cast<std::size_t>(m)] * apart + rank);
    const double least = least_all_reduce_s_per_byte(cluster, members, apart);
    const double real = price({}, groups, cluster).s_per_byte;
    EXPECT_GE(real, least * (1 - 1e-12))
        << members << " of " << nodes << " x " << per_node << ", " << apart << " apart";
    tight += real <= least * (1 + 1e-12) ? 1 : 0;
  }
  EXPECT_GT(tight, 500) << "a bound that is reached";
}

TEST(Collectives, OfSeveralNodesGoThroughThem) {
  // 2 nodes of 2: of all-to-all a GPU's half is for the other node, and the node's NIC carries two.
  const auto moved = [](Collective what, ReductionAlgorithm algorithm) {
    std::vector<double> crossing;
    for (const CollectivePhase& phase :
         phases_of({what, algorithm}, std::vector{0, 1, 2, 3}, [](int gpu) { return gpu / 2; })) {
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
      const auto phases = phases_of({}, first_gpus(n), [&](int gpu) { return gpu / local; });
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
  const auto phases = phases_of({}, first_gpus(5), [](int gpu) { return gpu / 3; });
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
