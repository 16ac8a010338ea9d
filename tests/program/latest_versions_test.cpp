// SPDX-License-Identifier: Apache-2.0
// Weight versions of replicas that wait for no other, by hand.
#include "program/latest_versions.hpp"

#include <gtest/gtest.h>

namespace penstock::latest_versions_test {
namespace {

/// One STEP per given end, per device.
LatestVersions versions(const std::vector<std::vector<double>>& ends_s) {
  OpLists ops;
  std::vector<double> ends;
  for (const auto& device : ends_s) {
    for (const double end : device) {
      ops.add_op({.kind = OpKind::step});
      ends.push_back(end);
    }
    ops.end_device();
  }
  Timeline timeline(ops.size());
  for (std::uint32_t g = 0; g < ops.size(); ++g) timeline.op(g) = {ends[g], ends[g]};
  return {ops, timeline};
}

TEST(LatestVersions, CountTheUpdatesThatOthersMadeMeanwhile) {
  // 0 at 1, 1 at 2, 0 at 3, 0 at 4, 1 at 5.
  const LatestVersions v = versions({{1, 3, 4}, {2, 5}});
  EXPECT_EQ(v.version(0, 0), 0U);
  EXPECT_EQ(v.version(0, 1), 1U);  // its own first one
  EXPECT_EQ(v.version(0, 2), 3U);
  EXPECT_EQ(v.version(1, 0), 0U);
  EXPECT_EQ(v.version(1, 1), 2U);
  EXPECT_EQ(v.staleness_max(0), 1U);  // the update at 3 missed that at 2
  EXPECT_EQ(v.staleness_max(1), 2U);  // the update at 5 missed those at 3 and 4
  EXPECT_DOUBLE_EQ(v.staleness_mean(), (1 + 0 + 2) / 3.0);
}

TEST(LatestVersions, OfReplicasThatUpdateEquallyOftenAreOneLessThanThereAreBehind) {
  const LatestVersions in_turn = versions({{1, 5, 9}, {2, 6, 10}, {3, 7, 11}, {4, 8, 12}});
  const LatestVersions at_once = versions({{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}});
  for (const LatestVersions* v : {&in_turn, &at_once}) {
    EXPECT_DOUBLE_EQ(v->staleness_mean(), 3);
    for (int d = 0; d < 4; ++d) EXPECT_EQ(v->staleness_max(d), 3U) << d;
  }
}

TEST(LatestVersions, OfAReplicaAloneAreItsOwn) {
  const LatestVersions v = versions({{1, 2, 3}});
  EXPECT_EQ(v.version(0, 2), 2U);
  EXPECT_EQ(v.staleness_max(0), 0U);
  EXPECT_EQ(v.staleness_mean(), 0);
}

}  // namespace
}  // namespace penstock::latest_versions_test
