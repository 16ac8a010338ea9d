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
