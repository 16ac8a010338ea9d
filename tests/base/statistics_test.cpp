// SPDX-License-Identifier: Apache-2.0
#include "base/statistics.hpp"

#include <gtest/gtest.h>

namespace penstock::statistics_test {
namespace {

TEST(Quantile, InterpolatesBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({3}, 0.95), 3);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({5, 1, 3}, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile({10, 0}, 0.05), 0.5);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3}, 0), 1);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3}, 1), 3);
}

TEST(SignedError, IsNegativeWhenThePredictionIsTooSmall) {
  EXPECT_DOUBLE_EQ(*signed_error(9, 10), -0.1);
  EXPECT_DOUBLE_EQ(*signed_error(11, 10), 0.1);
  EXPECT_FALSE(signed_error(1, 0));
}

TEST(ErrorSummary, HasMeanMedianLargestAndBias) {
  const ErrorSummary s = summarize_errors({-0.10, 0.02, 0.03, -0.05});
  EXPECT_EQ(s.n, 4U);
  EXPECT_DOUBLE_EQ(s.mape, 0.05);
  EXPECT_DOUBLE_EQ(s.median, 0.04);  // of 0.02, 0.03, 0.05, 0.10
  EXPECT_DOUBLE_EQ(s.max, 0.10);
  EXPECT_DOUBLE_EQ(s.bias, -0.025);
  EXPECT_EQ(summarize_errors({}).n, 0U);
}

}  // namespace
}  // namespace penstock::statistics_test
