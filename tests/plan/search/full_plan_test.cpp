// SPDX-License-Identifier: Apache-2.0
// What is asked of our own search and what it offers, without a command line.
#include "plan/search/plan_json.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::full_plan_test {
namespace {

FullPlanRequest small_request() {
  FullPlanRequest request;
  request.source.name =
      "{family: gpt, num_layers: 4, hidden_size: 128, num_attention_heads: 2, vocab_size: 400, "
      "seq_length: 64, precision: mixed-fp16}";
  request.source.cluster =
      "{devices: 4, device: {name: d, memory: 1 GiB, peak: {fp16: 10 TFLOP/s}, memory_bandwidth: "
      "300 GB/s}, link: 10 GB/s}";
  request.batch = 8;
  request.search.most_evaluations = 60;
  return request;
}

bool says(const FullPlan& plan, const std::string& what) {
  return std::ranges::any_of(plan.not_searched(), [&](const std::string& line) {
    return line.find(what) != std::string::npos;
  });
}

TEST(FullPlan, IsTheSameWhoeverLooksAtItsCandidates) {
  const FullPlanRequest request = small_request();
  const Problem problem = problem_of(request);
  SearchCallbacks callbacks{search};
  const FullPlan here = find_full_plan(problem, request, callbacks);
  ASSERT_FALSE(here.offers.empty());
  EXPECT_FALSE(here.usual_batch());
  EXPECT_TRUE(says(here, "several weight versions"));

  int asked = 0;
  callbacks.elsewhere = [&](const ProblemRecipe& recipe, const auto& work) {
    const RemoteProblem remote(to_json(recipe));
    work(Others{[&](const std::vector<Question>& questions) {
                  QuestionItems items(questions);
                  for (auto item = items.next(); item; item = items.next(), ++asked)
                    items.take_answer(remote.answer(*item));
                  return items.answers();
                },
                [] { return std::size_t{3}; }});
  };
  const FullPlan there = find_full_plan(problem, request, callbacks);
  EXPECT_GT(asked, 0);
  EXPECT_EQ(to_json(here)["plans"], to_json(there)["plans"]);
}

TEST(FullPlan, ComparesWithThePublishedPlannersWhereItIsAsked) {
  FullPlanRequest request = small_request();
  request.compares = request.asynchronous = true;
  const Problem problem = problem_of(request);
  const FullPlan plan = find_full_plan(problem, request, {search});
  EXPECT_GT(plan.compared.size(), 2U);
  EXPECT_FALSE(says(plan, "several weight versions"));
}

TEST(FullPlan, TakesAUsualBatchWhereNoneIsGiven) {
  FullPlanRequest request = small_request();
  request.batch = 0;
  request.microbatch_size = 2;
  EXPECT_EQ(problem_of(request).batch(), kBatchPerDevice * 4 * 2);
}

}  // namespace
}  // namespace penstock::full_plan_test
