// SPDX-License-Identifier: Apache-2.0
// Buckets of wait-free backpropagation, by hand.
#include "models/gradient_buckets.hpp"

#include <gtest/gtest.h>

namespace penstock::gradient_buckets_test {
namespace {

void expect_buckets(const std::vector<GradientBucket>& buckets,
                    const std::vector<GradientBucket>& expected) {
  ASSERT_EQ(buckets.size(), expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k) {
    EXPECT_NEAR(buckets[k].ready, expected[k].ready, 1e-12) << k;
    EXPECT_NEAR(buckets[k].share, expected[k].share, 1e-12) << k;
  }
}

// Backward in the order 4, 3, 2, 1: done after 1, 3, 6 and 10 of 10 seconds.
const std::vector<LayerGradient> kFour = {{40, 4}, {30, 3}, {20, 2}, {10, 1}};

TEST(GradientBuckets, WithoutALeastSizeOnePerLayerTheLastLayerFirst) {
  expect_buckets(gradient_buckets(kFour, 0), {{0.1, 0.1}, {0.3, 0.2}, {0.6, 0.3}, {1, 0.4}});
}

TEST(GradientBuckets, JoinLayersUntilTheyHaveTheLeastSize) {
  expect_buckets(gradient_buckets(kFour, 30), {{0.3, 0.3}, {0.6, 0.3}, {1, 0.4}});
  expect_buckets(gradient_buckets(kFour, 31), {{0.6, 0.6}, {1, 0.4}});
}

TEST(GradientBuckets, TheLastOneHasWhatIsLeft) {
  expect_buckets(gradient_buckets(kFour, 45), {{0.6, 0.6}, {1, 0.4}});
  expect_buckets(gradient_buckets(kFour, 1000), {{1, 1}});
}

TEST(GradientBuckets, ALargeLayerIsNotDivided) {
  // As AlexNet's: the layers with the parameters are last and fast, the slow ones are small.
  expect_buckets(gradient_buckets({{2, 6}, {2, 3}, {96, 1}}, 25), {{0.1, 0.96}, {1, 0.04}});
}

TEST(GradientBuckets, LayersWithoutParametersMakeNoBucketOfTheirOwn) {
  expect_buckets(gradient_buckets({{50, 4}, {0, 4}, {50, 2}}, 0), {{0.2, 0.5}, {1, 0.5}});
  expect_buckets(gradient_buckets({{0, 2}, {50, 4}, {50, 2}, {0, 2}}, 0), {{0.4, 0.5}, {1, 0.5}});
}

TEST(GradientBuckets, WithoutTimesAllAreReadyAtTheEnd) {
  expect_buckets(gradient_buckets({{10, 0}, {30, 0}}, 0), {{1, 0.75}, {1, 0.25}});
}

TEST(GradientBuckets, OfNothingAreOne) {
  expect_buckets(gradient_buckets({}, 25), {{1, 1}});
  expect_buckets(gradient_buckets({{0, 1}, {0, 1}}, 25), {{1, 1}});
}

TEST(GradientBuckets, GetReadyInOrderAndAddUpToOne) {
  std::vector<LayerGradient> layers;
  for (int i = 1; i <= 97; ++i) layers.push_back({double(i * 37 % 11), double(i * 53 % 7)});
  for (const double least : {0.0, 1.0, 7.0, 50.0, 300.0, 1e9}) {
    const auto buckets = gradient_buckets(layers, least);
    double before = 0, share = 0;
    for (const GradientBucket& b : buckets) {
      EXPECT_GE(b.ready, before);
      EXPECT_GT(b.share, 0);
      before = b.ready;
      share += b.share;
    }
    EXPECT_EQ(buckets.back().ready, 1);
    EXPECT_NEAR(share, 1, 1e-12);
  }
}

TEST(EqualBuckets, AreReadyAtEqualIntervals) {
  expect_buckets(equal_buckets(4), {{0.25, 0.25}, {0.5, 0.25}, {0.75, 0.25}, {1, 0.25}});
  expect_buckets(equal_buckets(1), {{1, 1}});
}

}  // namespace
}  // namespace penstock::gradient_buckets_test
