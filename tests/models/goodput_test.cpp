// SPDX-License-Identifier: Apache-2.0
// The long run of a job with failures, by hand and against the closed form of exponential failures.
#include "models/goodput.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::goodput_test {
namespace {

Reliability every(int batches, double save_s, double restart_s, double horizon_s) {
  Reliability r;
  r.checkpoint_every = batches;
  r.save_s = save_s;
  r.restart_s = restart_s;
  r.horizon_s = horizon_s;
  return r;
}

void expect_whole(const Goodput& g) {
  EXPECT_NEAR(g.useful_s + g.lost_s + g.checkpoint_s + g.restart_s + g.unfinished_s, g.horizon_s,
              1e-9 * g.horizon_s);
  EXPECT_NEAR(g.useful_s, static_cast<double>(g.useful_batches) * g.batch_s, 1e-9 * g.horizon_s);
  EXPECT_DOUBLE_EQ(g.fraction, g.useful_s / g.horizon_s);
}

TEST(Goodput, WithoutFailuresOnlyCheckpointsCost) {
  // Cycles of 5 batches of 2 s and 1 s to save: 9 of them in 100 s, then 1 s of the tenth.
  const Goodput g = goodput(every(5, 1, 0, 100), 2);
  EXPECT_EQ(g.useful_batches, 45);
  EXPECT_EQ(g.failures, 0);
  EXPECT_DOUBLE_EQ(g.checkpoint_s, 9);
  EXPECT_DOUBLE_EQ(g.unfinished_s, 1);
  EXPECT_FALSE(g.daly_s);
  expect_whole(g);
}

TEST(Goodput, AFailureLosesWhatCameAfterTheCheckpointAndRestarts) {
  // Saved at 10-11; batches end at 13 and 15, the failure at 16 cuts the third: 5 s lost, 2 whole
  // batches. Restart until 26; from there 11 s per cycle: until 92 six of them, then 4 batches.
  Reliability r = every(5, 1, 10, 100);
  r.failures = {{3, 16}};
  const Goodput g = goodput(r, 2);
  EXPECT_EQ(g.useful_batches, 5 + 30 + 4);
  EXPECT_EQ(g.lost_batches, 2);
  EXPECT_DOUBLE_EQ(g.lost_s, 5);
  EXPECT_DOUBLE_EQ(g.restart_s, 10);
  EXPECT_DOUBLE_EQ(g.checkpoint_s, 7);
  EXPECT_DOUBLE_EQ(g.unfinished_s, 0);
  EXPECT_EQ(*g.mtbf_s, 100);
  expect_whole(g);
}

TEST(Goodput, AFailureDuringASaveLosesAllItWouldHaveSaved) {
  Reliability r = every(5, 4, 1, 30);
  r.failures = {{0, 12}};  // 2 s into the save of 10-14
  const Goodput g = goodput(r, 2);
  EXPECT_EQ(g.lost_batches, 5);
  EXPECT_DOUBLE_EQ(g.lost_s, 10);
  EXPECT_DOUBLE_EQ(g.checkpoint_s, 2 + 4);
  EXPECT_EQ(g.useful_batches, 5 + 1);  // 13-23, saved by 27, one more by 29
  EXPECT_DOUBLE_EQ(g.unfinished_s, 1);
  expect_whole(g);
}

TEST(Goodput, AFailureDuringARestartBeginsItAnew) {
  Reliability r = every(1, 0, 10, 40);
  r.failures = {{0, 4}, {1, 11}, {0, 15}, {1, 100}};  // down 4-11, 11-15, 15-25
  const Goodput g = goodput(r, 1);
  EXPECT_EQ(g.failures, 3);
  EXPECT_DOUBLE_EQ(g.restart_s, 21);
  EXPECT_EQ(g.useful_batches, 4 + 15);
  EXPECT_DOUBLE_EQ(*g.mtbf_s, 40.0 / 3);  // the last one is after the horizon
  expect_whole(g);
}

TEST(Goodput, OfManyExponentialFailuresIsTheClosedForm) {
  for (const double save : {1.0, 60.0}) {
    for (const int batches : {10, 100, 1000}) {
      Reliability r = every(batches, save, 120, 3e8);
      r.mtbf_s = 3000;
      r.seed = 7;
      const Goodput g = goodput(r, 1.5);
      expect_whole(g);
      EXPECT_NEAR(g.failures, 1e5, 4 * std::sqrt(1e5));
      // 1e5 failures: the lost time has a deviation of 1/316 of itself.
      EXPECT_NEAR(g.fraction, expected_goodput(batches * 1.5, save, 120, 3000), 0.005);
      EXPECT_DOUBLE_EQ(*g.expected_now, expected_goodput(batches * 1.5, save, 120, 3000));
    }
  }
}

TEST(Goodput, DalysIntervalIsTheBestThereIs) {
  for (const double save : {1.0, 20.0, 300.0}) {
    Reliability r = every(50, save, 60, 1e6);
    r.mtbf_s = 10'800;
    const Goodput g = goodput(r, 0.5);
    const auto at = [&](double interval) { return expected_goodput(interval, save, 60, 10'800); };
    double best = 0;
    for (double interval = 1; interval < 10'000; interval *= 1.001)
      best = std::max(best, at(interval));
    EXPECT_GE(at(*g.daly_s), best * (1 - 1e-4));
    EXPECT_DOUBLE_EQ(*g.young_s, std::sqrt(2 * save * 10'800));
    EXPECT_EQ(*g.best_every, std::llround(*g.daly_s / 0.5));
    EXPECT_GE(*g.expected_best, *g.expected_now);
  }
}

TEST(Goodput, IsTheSameForASeedAndAnotherForAnother) {
  Reliability r = every(50, 1, 60, 1e6);
  r.mtbf_s = 5000;
  const auto with_seed = [&](std::uint64_t seed) {
    r.seed = seed;
    return goodput(r, 1.0).useful_batches;
  };
  EXPECT_EQ(with_seed(1), with_seed(1));
  EXPECT_NE(with_seed(1), with_seed(2));
}

TEST(Goodput, OfTinyBatchesInALongJobIsComputedAtOnce) {
  Reliability r = every(1000, 1e-6, 1, 1e9);
  r.mtbf_s = 1e5;
  const Goodput g = goodput(r, 1e-6);
  EXPECT_GT(g.useful_batches, 900'000'000'000'000);
  expect_whole(g);
}

}  // namespace
}  // namespace penstock::goodput_test
