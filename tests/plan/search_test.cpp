// SPDX-License-Identifier: Apache-2.0
// 2BW's search, torchgpipe's balance, the uniform split and the table of planners.
#include "plan/block_partition.hpp"
#include "plan/planners.hpp"
#include "tests/plan/profiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace penstock::search_test {
namespace {

TEST(Planners, EachIsFoundByItsNameWithItsPaper) {
  for (const Planner& planner : planners()) {
    EXPECT_EQ(find_planner(planner.name), &planner);
    EXPECT_FALSE(planner.paper.empty());
  }
  EXPECT_EQ(find_planner("pipedreams"), nullptr);
}

// --- blocks of a sequence ---

double block(const std::vector<double>& costs, int begin, int count) {
  return std::accumulate(costs.begin() + begin, costs.begin() + begin + count, 0.0);
}

TEST(BlockPartition, TheLargestBlockIsAtMostOneElementLargerThanTheSmallest) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const int n = std::uniform_int_distribution(1, 40)(random);
    const int k = std::uniform_int_distribution(1, n)(random);
    std::vector<double> costs;
    const double light =
        trial % 2 == 0 ? 0 : 0.8;  // of the costs are zero: blocks can become empty
    for (int i = 0; i < n; ++i) {
      const double cost = std::uniform_real_distribution(0.0, 1.0)(random);
      costs.push_back(std::bernoulli_distribution(light)(random) ? 0 : cost);
    }
    const auto [least, most] = std::ranges::minmax(costs);
    std::vector<double> scaled;
    for (const double c : costs) scaled.push_back(most > least ? (c - least) / (most - least) : 0);
    const std::vector<int> counts = block_partition(costs, k);
    ASSERT_EQ(static_cast<int>(counts.size()), k);
    double small = 1e9, large = 0;
    int begin = 0;
    for (const int count : counts) {
      const double sum = block(scaled, begin, count);
      small = std::min(small, sum);
      large = std::max(large, sum);
      begin += count;
    }
    EXPECT_EQ(begin, n);
    EXPECT_LE(large, small + 1 + 1e-12);
  }
}

TEST(BlockPartition, EqualCostsAreLeftInBlocksOfEqualLength) {
  EXPECT_EQ(block_partition({1, 1, 1, 1, 1, 1}, 3), (std::vector{2, 2, 2}));
}

TEST(BlockPartition, AHeavyEndTakesFewerElements) {
  // 0 0 0 | 0 .5 1: 1.5 > 0 + 1, so the first block takes 0 and, as that changes nothing, .5.
  EXPECT_EQ(block_partition({0, 0, 0, 0, 1, 2}, 2), (std::vector{5, 1}));
}

TEST(Torchgpipe, BalancesTimesOrBytes) {
  const ProfileModel model = table({{1, 2, 9e6, 0},
                                    {1, 2, 1e6, 0},
                                    {1, 2, 1e6, 0},
                                    {1, 2, 1e6, 0},
                                    {4, 8, 1e6, 0},
                                    {4, 8, 1e6, 0}});
  PlanRequest request = request_for(model, {{2, 1e9}});
  request.batch = 4;
  const Plan by_time = plan_torchgpipe(request).plans.at(0);
  EXPECT_EQ(by_time.stages[0].last_layer, 4);
  EXPECT_DOUBLE_EQ(by_time.time_per_stage_s, 24);
  EXPECT_DOUBLE_EQ(by_time.latency_s, 36 + 3 * 24);
  request.by_size = true;
  EXPECT_LT(plan_torchgpipe(request).plans.at(0).stages[0].last_layer, 3);
}

TEST(Torchgpipe, MoreStagesThanLayersAreRefusedWithTheReason) {
  const ProfileModel model = table({{1, 2, 1, 0}, {1, 2, 1, 0}});
  PlanRequest request = request_for(model, {{3, 1e9}});
  EXPECT_EQ(plan_torchgpipe(request).plans.at(0).depth(), 2) << "as many as there are layers";
  request.stages = 3;
  EXPECT_FALSE(plan_torchgpipe(request).infeasible_because.empty());
}

// --- transformers ---

TransformerSpec gpt(std::int64_t hidden) {
  TransformerSpec m;
  m.num_layers = 32;
  m.hidden_size = hidden;
  m.num_attention_heads = m.num_query_groups = 32;
  m.ffn_hidden_size = 4 * hidden;
  m.vocab_size = 50304;
  m.seq_length = 512;
  m.bytes = {2, 6, 12, 4, 4};
  return m;
}

DeviceSpec v100() {
  DeviceSpec d;
  d.memory_bytes = 16'000'000'000;
  d.memory_bytes_per_s = 900e9;
  d.peak_flops_per_s = {{"fp16", 125e12}};
  d.efficiency = {{2304, 0.5}};
  return d;
}

PlanRequest on_64_v100(const PlanModel& model, std::int64_t batch) {
  PlanRequest request = request_for(model, {{8, 25e9}, {8, 3.125e9}});
  request.memory_bytes = 16e9;
  request.batch = batch;
  return request;
}

TEST(TwoBw, ChoosesThePapersDepthsOn64Devices) {
  for (const std::int64_t batch : {512, 2048}) {
    const TransformerModel small(gpt(2304), v100()), large(gpt(3072), v100());
    const Plan first = plan_2bw(on_64_v100(small, batch)).plans.at(0);
    EXPECT_EQ(first.depth(), 8);
    EXPECT_EQ(first.width(), 8);
    const Plan second = plan_2bw(on_64_v100(large, batch)).plans.at(0);
    EXPECT_EQ(second.depth(), 16);
    EXPECT_EQ(second.width(), 4);
  }
}

TEST(TwoBw, EveryPlanFitsAndHasAMicrobatchPerStage) {
  const TransformerModel model(gpt(2304), v100());
  PlanRequest request = on_64_v100(model, 512);
  request.most_plans = 1'000;
  const PlanResult result = plan_2bw(request);
  EXPECT_GT(result.plans.size(), 5U);
  for (const Plan& plan : result.plans) {
    EXPECT_GE(plan.microbatches, plan.depth());
    EXPECT_EQ(plan.microbatches * plan.microbatch_size * plan.width(), 512);
    for (const PlannedStage& stage : plan.stages) EXPECT_LE(stage.memory_bytes, 16e9);
  }
}

TEST(TwoBw, MemoryIsThePapersClosedForm) {
  const TransformerModel model(gpt(2304), v100());
  PlanRequest request = on_64_v100(model, 512);
  request.memory_bytes = std::nullopt;
  request.most_plans = 1'000;
  for (const Plan& plan : plan_2bw(request).plans) {
    const auto b = static_cast<double>(plan.microbatch_size);
    const double d = plan.depth(), kept = model.kept_bytes(b) / d;
    const double state = (d > 1 ? 2 : 1) * model.state_bytes() / d;
    const double in_flight = plan.recompute == Recompute::full ? kept : d * kept;
    EXPECT_DOUBLE_EQ(plan.stages[0].memory_bytes,
                     state + in_flight + d * model.layer_input_bytes(b));
  }
}

TEST(TwoBw, RecomputationCostsAThirdAndIsChosenOnlyForMemory) {
  const ProfileModel model = table({{1, 2, 1e9, 0}, {1, 2, 1e9, 0}});
  PlanRequest request = request_for(model, {{2, 1e15}});
  request.batch = 4;
  request.straight = true;
  const Plan kept = plan_2bw(request).plans.at(0);
  EXPECT_EQ(kept.recompute, Recompute::none);
  request.memory_bytes = 3.5e9;  // 1e9 kept, and the inputs of two microbatches
  const Plan again = plan_2bw(request).plans.at(0);
  EXPECT_EQ(again.recompute, Recompute::full);
  EXPECT_NEAR(again.stages[0].time_s / static_cast<double>(again.microbatch_size),
              kept.stages[0].time_s / static_cast<double>(kept.microbatch_size) * 4 / 3, 1e-12);
}

TEST(TwoBw, WhatDoesNotFitIsSaidWithTheLeastThatIsNeeded) {
  const TransformerModel model(gpt(3072), v100());
  PlanRequest request = on_64_v100(model, 512);
  request.memory_bytes = 1e9;
  const PlanResult result = plan_2bw(request);
  EXPECT_TRUE(result.plans.empty());
  EXPECT_NE(result.infeasible_because.find("per device"), std::string::npos);
}

TEST(Uniform, SplitsLayersEvenlyAndRefusesStagesThatDoNotDivide) {
  const TransformerModel model(gpt(2304), v100());
  PlanRequest request = on_64_v100(model, 512);
  request.stages = 8;
  const Plan plan = plan_uniform(request).plans.at(0);
  EXPECT_EQ(plan.depth(), 8);
  EXPECT_EQ(plan.width(), 8);
  for (const PlannedStage& stage : plan.stages) EXPECT_EQ(stage.last_layer - stage.first_layer, 3);
  request.stages = 5;
  EXPECT_TRUE(plan_uniform(request).plans.empty());
  EXPECT_FALSE(plan_uniform(request).infeasible_because.empty());
}

TEST(Uniform, TimeIsThatOfAFlushedPipelineWithItsMessages) {
  const ProfileModel model = table({{1, 2, 1e9, 0}, {1, 2, 1e9, 0}});
  PlanRequest request = request_for(model, {{2, 1e9}});
  request.stages = 2;
  request.batch = 6;
  EXPECT_DOUBLE_EQ(plan_uniform(request).plans.at(0).latency_s, (6 + 1) * (3 + 2));
}

TEST(PlanRequests, DevicesOfAllStagesAreDistinctAndWithinTheCluster) {
  const ProfileModel model = table({{3, 6, 1e6, 4e6},
                                    {1, 2, 2e6, 4e6},
                                    {2, 4, 1e6, 8e7},
                                    {1, 1, 4e6, 4e6},
                                    {2, 3, 1e6, 9e7},
                                    {1, 2, 1e6, 4e6}});
  for (const Planner& planner : planners()) {
    SCOPED_TRACE(planner.name);
    PlanRequest request = request_for(model, {{3, 1e10}, {2, 1e9}});
    request.batch = 24;
    request.most_plans = 5;
    for (const Plan& plan : planner.plan(request).plans) {
      std::vector<int> used;
      int next = 0;
      for (const PlannedStage& stage : plan.stages) {
        EXPECT_EQ(stage.first_layer, next);
        next = stage.last_layer + 1;
        EXPECT_EQ(static_cast<int>(stage.devices.size()), stage.replicas);
        used.insert(used.end(), stage.devices.begin(), stage.devices.end());
      }
      EXPECT_EQ(next, 6);
      std::ranges::sort(used);
      EXPECT_TRUE(std::ranges::adjacent_find(used) == used.end());
      EXPECT_GE(used.front(), 0);
      EXPECT_LT(used.back(), 6);
    }
  }
}

}  // namespace
}  // namespace penstock::search_test
