// SPDX-License-Identifier: Apache-2.0
// Cuts of graphs with branches, and PipeDream's recurrence against all plans of small chains.
#include "plan/layer_states.hpp"

#include "plan/pipedream.hpp"
#include "plan/planners.hpp"
#include "tests/plan/profiles.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

namespace penstock::states_test {
namespace {

std::string line(const std::string& id, double forward_ms, double bytes) {
  return id + " -- Layer -- forward_compute_time=" + std::to_string(forward_ms) +
         ", backward_compute_time=0, activation_size=" + std::to_string(bytes) +
         ", parameter_size=0\n";
}

/// a feeds b and c, which d joins; e feeds d, too.
PipedreamProfile diamond() {
  return parse_pipedream_profile(line("a1", 1, 10) + line("b2", 2, 20) + line("c3", 4, 30) +
                                     line("d4", 8, 40) + line("e5", 16, 50) +
                                     "\ta1 -- b2\n\ta1 -- c3\n\tb2 -- d4\n\tc3 -- d4\n\te5 -- d4\n",
                                 "diamond");
}

TEST(AntichainStates, ABranchIsCutInEveryWayAndALateSourceEntersWithItsReader) {
  const auto states = antichain_states(diamond(), 1, 100);
  ASSERT_EQ(states.size(), 5U);  // a, ab, ac, abc, abcde
  EXPECT_DOUBLE_EQ(states.front().time_s(), 0.001);
  EXPECT_DOUBLE_EQ(states.back().time_s(), 0.031);
  // b alone: a is still to be read by c. Both: a is counted, too, as PipeDream does.
  for (const LayerState& state : states) {
    if (state.layers.size() == 2) {
      EXPECT_DOUBLE_EQ(state.cut_bytes, 10 + 20 + 30);
    } else if (state.name == "b2") {
      EXPECT_DOUBLE_EQ(state.cut_bytes, 10 + 20);
    }
  }
  EXPECT_EQ(layers_between(states, 0, 4).size(), 5U);
}

TEST(AntichainStates, TwoBranchesDoNotFollowEachOther) {
  const auto states = antichain_states(diamond(), 1, 100);
  EXPECT_FALSE(states[2].states_before.contains(1));
  EXPECT_TRUE(states[3].states_before.contains(1));
  EXPECT_TRUE(states[3].states_before.contains(2));
}

TEST(AntichainStates, TooManyAreNotListed) {
  EXPECT_TRUE(antichain_states(diamond(), 1, 4).empty());
}

TEST(ChainStates, ACutSendsEveryTensorReadBehindItOnce) {
  const auto states = chain_states(diamond(), 2);
  ASSERT_EQ(states.size(), 5U);  // a, b, c, e, d
  EXPECT_DOUBLE_EQ(states[0].cut_bytes, 20);
  EXPECT_DOUBLE_EQ(states[1].cut_bytes, 2 * (10 + 20));
  EXPECT_DOUBLE_EQ(states[2].cut_bytes, 2 * (20 + 30));
  EXPECT_DOUBLE_EQ(states[4].cut_bytes, 0);
}

/// All ways to cut a chain into replicated stages on one level, as the recurrence counts them.
double best_of_all(const std::vector<LayerState>& states, int workers, double bandwidth) {
  const int n = static_cast<int>(states.size());
  const auto of = [&](double LayerState::*what, int i, int j) {
    return states[static_cast<std::size_t>(j)].*what -
           (i == 0 ? 0 : states[static_cast<std::size_t>(i) - 1].*what);
  };
  const auto stage = [&](int i, int j, int r) {
    const double compute = of(&LayerState::forward_s, i, j) + of(&LayerState::backward_s, i, j);
    const double w = of(&LayerState::parameter_bytes, i, j);
    return (compute + 4.0 * (r - 1) / r * w / bandwidth) / r;
  };
  const auto message = [&](int j, int r) {
    return 2 * states[static_cast<std::size_t>(j)].cut_bytes / bandwidth / r;
  };
  double best = 1e18;
  const std::function<void(int, int, double)> search = [&](int first, int left, double slowest) {
    for (int last = first; last < n; ++last) {
      for (int r = 1; r <= left; ++r) {
        double time = std::max(slowest, stage(first, last, r));
        // Not of the first stage: PipeDream counts the messages of a stage that was split off.
        if (first > 0) time = std::max(time, message(first - 1, r));
        if (first > 0 && last + 1 < n) time = std::max(time, message(last, r));
        if (last + 1 == n && r == left) best = std::min(best, time);
        if (last + 1 < n && r < left) search(last + 1, left - r, time);
      }
    }
  };
  search(0, workers, 0);
  return best;
}

TEST(Pipedream, NoPlanOfASmallChainIsFasterThanTheRecurrences) {
  std::mt19937 random(11);
  const auto number = [&](double most) {
    return std::uniform_real_distribution(0.0, most)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<TableLayer> layers;
    for (int i = 0; i < 5; ++i)
      layers.push_back({number(0.1), number(0.2), number(1e8), number(1e8)});
    const auto states = table(layers).chain(1, Recompute::none);
    for (const int workers : {1, 2, 4, 5}) {
      const PipedreamPlan plan = optimize_pipedream(states, {{{workers, 1e9}}, false, true, 0});
      EXPECT_NEAR(plan.time_per_stage_s, best_of_all(states, workers, 1e9), 1e-15);
    }
  }
}

TEST(Pipedream, ALimitBelowEveryStashLeavesNoPlan) {
  const auto states = table({{1, 2, 4e6, 40e6}, {2, 3, 1e6, 10e6}}).chain(1, Recompute::none);
  EXPECT_TRUE(optimize_pipedream(states, {{{2, 1e9}}, true, true, 0}).feasible);
  EXPECT_FALSE(optimize_pipedream(states, {{{2, 1e9}}, true, true, 1e6}).feasible);
}

TEST(Pipedream, OneDevicePerLevelIsOneStage) {
  const auto states = table({{1, 2, 4e6, 40e6}, {2, 3, 1e6, 10e6}}).chain(1, Recompute::none);
  const PipedreamPlan plan = optimize_pipedream(states, {{{1, 1e9}, {1, 1e9}}, false, true, 0});
  ASSERT_EQ(plan.stages.size(), 1U);
  EXPECT_DOUBLE_EQ(plan.time_per_stage_s, 8);
}

TEST(Pipedream, TooManyWaysToCutBranchesFallBackToTheExecutionOrderAndItIsSaid) {
  // A source feeds 14 branches of two layers that meet again: 3^14 ways to cut them.
  std::string nodes = line("source0", 1, 1), edges;
  for (int i = 1; i <= 14; ++i) {
    const std::string first = "first" + std::to_string(i), second = "second" + std::to_string(i);
    nodes += line(first, 1, 1) + line(second, 1, 1);
    edges += "\tsource0 -- " + first + "\n\t" + first + " -- " + second + "\n\t" + second +
             " -- sink99\n";
  }
  const ProfileModel model(parse_pipedream_profile(nodes + line("sink99", 1, 1) + edges, "wide"),
                           1);
  const PlanResult result = plan_pipedream(request_for(model, {{3, 1e9}}));
  ASSERT_EQ(result.plans.size(), 1U);
  EXPECT_EQ(result.plans[0].stages.back().last_layer, 29);
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_NE(result.notes[0].find("execution order"), std::string::npos);
}

}  // namespace
}  // namespace penstock::states_test
