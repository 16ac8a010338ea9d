#include "models/collectives.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace penstock {
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

}  // namespace
}  // namespace penstock
