// SPDX-License-Identifier: Apache-2.0
// Cuts for orders of two chunks there and back that are searched for, on pipelines whose orders
// take long to find.
#include "plan/search/there_and_back.hpp"

#include "plan/search/judgement.hpp"
#include "plan/search/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace penstock::there_and_back_test {
namespace {

/// A model whose activations do not fit without recomputation.
Problem problem_with(const char* memory) {
  return Problem(
      fmt::format("stack: none\nmodel: {{family: gpt, num_layers: 24, hidden_size: 1024, "
                  "num_attention_heads: "
                  "16, vocab_size: 4000, seq_length: 1024, precision: mixed-fp16, "
                  "flash_attention: true}}\n"
                  "cluster: {{devices: 4, device: {{name: d, memory: {}, peak: {{fp16: 100 "
                  "TFLOP/s}}, memory_bandwidth: 1000 GB/s}}, link: 100 GB/s}}\n",
                  memory),
      "small", 64);
}

PlanFamily family_of(const char* schedule) {
  return {{4, 1, 1, 1, 64}, find_schedule(schedule), 2, {}};
}

TEST(Limits, AreWhatTheMemoryOfEachDeviceHasRoomFor) {
  const Candidate plan{family_of("zb-v-search"), std::vector<int>(8, 3),
                       std::vector<Recomputation>(8)};
  const Problem ample = problem_with("80 GiB"), scarce = problem_with("2 GiB");
  EXPECT_TRUE(ample.resolve(plan).shape.memory_limits.empty());
  const Scenario scenario = scarce.resolve(plan);
  ASSERT_EQ(scenario.shape.memory_limits.size(), 4U);
  EXPECT_LT(scenario.shape.memory_limits[0], scenario.shape.memory_limits[1]);  // embedding, head
  EXPECT_LT(std::ranges::min(scenario.shape.memory_limits), 1);
  EXPECT_TRUE(judge(scenario, EngineChoice::exact).fits);
  // The scenario says them: read again it is the same.
  const Scenario again = parse_scenario(scenario.text(), "again");
  EXPECT_EQ(again.shape.memory_limits, scenario.shape.memory_limits);
}

constexpr std::int64_t kManyOps = 10'000'000;

TEST(CutsThereAndBack, AreNoneWhereThereIsNothingToBeginWithOrNoTime) {
  const Problem problem = problem_with("1.8 GiB");
  const Axes axes = problem.axes(false);
  const RecomputeSteps steps(axes);
  const PlanFamily family = family_of("zb-v-search");
  CutsThereAndBack cuts(problem, steps, family);
  EXPECT_FALSE(cuts.find({family, {}}, 1, 10, [] { return true; }));
  int asked = 0;
  // It recomputes all layers, so that devices have time to spare.
  const Candidate start{family, std::vector<int>(8, 3),
                        std::vector<Recomputation>(8, Recompute::full)};
  cuts.find(start, 1, 1000, [&] { return ++asked < 3; });
  EXPECT_GT(asked, 0);
  EXPECT_LE(asked, 3 * 24);  // for each time that is aimed at
}

TEST(CutsThereAndBack, TakeLessThanTheCutThatTheyBeginWith) {
  const Problem problem = problem_with("1.95 GiB");
  Axes axes = problem.axes(false);
  axes.recomputes = {Recompute::none, Recompute::full};
  axes.single_layers = true;
  const RecomputeSteps steps(axes);
  // All that it must to fit, by the order that is known.
  Candidate start{family_of("v-half"), std::vector<int>(8, 3), std::vector<Recomputation>(8)};
  Bounds bounds(problem, axes);
  ASSERT_TRUE(bounds.make_fit(start));
  for (int tries = 0; tries < 8 && !judge(problem.resolve(start), EngineChoice::exact).fits;
       ++tries)
    for (std::size_t s = 0; s < 4; ++s) steps.take_more(start.recompute, start.layers, s);
  const Judgement before = judge(problem.resolve(start), EngineChoice::exact);
  ASSERT_TRUE(before.fits);

  start.family = family_of("zb-v-search");
  CutsThereAndBack cuts(problem, steps, start.family);
  const auto found = cuts.find(start, before.iteration_time_s, 40, [] { return true; });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(std::accumulate(found->layers.begin(), found->layers.end(), 0), 24);
  const Judgement after = judge(problem.resolve(*found), EngineChoice::exact);
  EXPECT_TRUE(after.fits) << after.why;
  EXPECT_LT(after.iteration_time_s, before.iteration_time_s);
  const OrderBound bound = bounds.of_order(start.family, before.iteration_time_s, kManyOps);
  EXPECT_GT(bound.time_s, bounds.bound_of(start.family).time_s);
  EXPECT_LE(bound.time_s, after.iteration_time_s);
}

}  // namespace
}  // namespace penstock::there_and_back_test
