// SPDX-License-Identifier: Apache-2.0
// What headroom costs, beside whole searches of the same problem with all memory used.
#include "plan/search/headroom.hpp"

#include "tests/effort.hpp"
#include "tests/plan/search/random_problem.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

const int kCases = kBrief ? 60 : 300;
constexpr double kHeadroom = 0.15;

/// Memory is what changes from one to the next: from too little for anything to plenty.
std::string small(double mebibytes) {
  return fmt::format(
      "stack: none\nmodel: {{family: gpt, num_layers: 6, hidden_size: 256, num_attention_heads: 4, "
      "vocab_size: "
      "2000, seq_length: 128, precision: mixed-fp16}}\n"
      "cluster: {{devices: 4, link: 10 GB/s, device: {{name: d, memory: {} MiB, peak: {{fp16: 10 "
      "TFLOP/s}}, memory_bandwidth: 100 GB/s}}}}\n",
      mebibytes);
}

/// With headroom, and what it costs.
struct Study {
  explicit Study(const std::string& text, double headroom = kHeadroom, SearchOptions given = {})
      : problem(text, "small", 8, headroom), axes(problem.axes(false)), options(std::move(given)) {
    axes.schedules = {find_schedule("1f1b"), find_schedule("gpipe")};
    result = search(problem, axes, options);
    without = search_without_headroom(problem, axes, options, result);
  }

  SearchResult all_memory() const {
    return search(Problem(problem.text(), "small", 8), axes, options);
  }

  Problem problem;
  Axes axes;
  SearchOptions options;
  SearchResult result;
  std::optional<WithoutHeadroom> without;
};

void expect_honest(const Study& study) {
  ASSERT_TRUE(study.without);
  const WithoutHeadroom& without = *study.without;
  const SearchResult all = study.all_memory();
  EXPECT_EQ(without.plan.has_value(), !all.plans.empty());
  EXPECT_EQ(without.none_fits, all.plans.empty());
  if (!without.plan) return;
  EXPECT_GE(without.plan->cost, all.lower_bound * (1 - 1e-9));
  const Scenario scenario = Problem(study.problem.text(), "small", 8).resolve(without.plan->choice);
  const Judgement judged = judge(scenario, EngineChoice::exact);
  EXPECT_TRUE(judged.fits) << judged.why;
  EXPECT_NEAR(without.plan->judgement.iteration_time_s / judged.iteration_time_s, 1, 1e-9);
  if (study.result.plans.empty()) return;
  const double best = study.result.plans.front().cost;
  EXPECT_NEAR(without.saved, 1 - without.plan->cost / best, 1e-9);
  EXPECT_GE(without.saved, 0);
}

TEST(Headroom, WhatIsSaidFitsAllMemoryAndIsNoBetterThanTheSearchOfIt) {
  int saved = 0, infeasible = 0, none = 0;
  for (int i = 0; i < kCases; ++i) {
    const double mebibytes = 6 + 42.0 * i / kCases;
    SCOPED_TRACE(fmt::format("{} MiB", mebibytes));
    SearchOptions options;
    options.uniform_recompute = i % 3 == 2;
    options.objective = i % 2 == 1 ? Objective::price : Objective::throughput;
    const Study study(small(mebibytes), kHeadroom, options);
    expect_honest(study);
    if (HasFatalFailure()) return;
    saved += study.without->saved > 0;
    infeasible += study.result.plans.empty() && study.without->plan;
    none += study.without->none_fits;
  }
  EXPECT_GT(saved, 0);
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(none, 0);
}

TEST(Headroom, FindsMoreThanHalfOfWhatTheWholeSearchGains) {
  double found = 0, there = 0;
  for (int i = 0; i < kCases; ++i) {
    const Study study(small(12 + 36.0 * i / kCases));
    if (study.result.plans.empty()) continue;
    found += study.without->saved;
    there += 1 - study.all_memory().plans.front().cost / study.result.plans.front().cost;
  }
  EXPECT_GT(there, 0);
  EXPECT_GT(found, 0.5 * there);
}

TEST(Headroom, NothingIsSaidWhereItMakesNoDifference) {
  EXPECT_TRUE(Study(small(24)).without);
  EXPECT_FALSE(Study(small(24), 0).without);
  SearchOptions least_memory;
  least_memory.objective = Objective::memory;
  EXPECT_FALSE(Study(small(24), kHeadroom, least_memory).without);
  std::string unknown = small(24);
  unknown.erase(unknown.find("memory: 24 MiB, "), std::string("memory: 24 MiB, ").size());
  EXPECT_FALSE(Study(unknown).without);
}

TEST(Headroom, NothingIsSaidOfABatchThatCannotBeMade) {
  Study study(small(24));
  study.axes.microbatch_sizes = {3};
  study.result = search(study.problem, study.axes, study.options);
  ASSERT_TRUE(study.result.plans.empty());
  EXPECT_FALSE(search_without_headroom(study.problem, study.axes, study.options, study.result));
}

}  // namespace
}  // namespace penstock
