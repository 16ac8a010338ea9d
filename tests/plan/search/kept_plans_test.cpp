// SPDX-License-Identifier: Apache-2.0
// Plans under several names are one plan; others are not, however fast.
#include "plan/search/kept_plans.hpp"

#include <gtest/gtest.h>

namespace penstock::kept_plans_test {
namespace {

class KeptPlansTest : public testing::Test {
 protected:
  FoundPlan found(std::string_view schedule, int microbatches, double time_s = 1) const {
    FoundPlan plan;
    plan.choice.family.schedule = find_schedule(schedule);
    plan.choice.family.shape = {.depth = 2, .microbatches = microbatches};
    plan.choice.layers = {1, 1};
    plan.judgement = {.iteration_time_s = time_s, .memory_bytes = 1, .engine = "exact", .why = ""};
    plan.cost = time_s;
    return plan;
  }
  static constexpr std::size_t kAll = 99;
  /// Of what is kept, or of so many that are offered.
  std::vector<std::string> kept(std::initializer_list<FoundPlan> plans, std::size_t most = kAll,
                                bool all_degrees = false) {
    KeptPlans out(problem_);
    for (const FoundPlan& plan : plans) out.keep(plan);
    names_.clear();
    also_.clear();
    strengths_.clear();
    for (const FoundPlan& plan : most == kAll ? out.all() : out.offer(most, all_degrees)) {
      names_.emplace_back(plan.choice.family.schedule->name);
      also_.push_back(plan.also);
      strengths_.push_back(plan.best_at);
    }
    return names_;
  }

  using Names = std::vector<std::string>;
  Problem problem_{
      "stack: none\nmodel: {family: gpt, num_layers: 2, hidden_size: 128, num_attention_heads: 2, "
      "vocab_size: 1000, seq_length: 64}\n"
      "cluster: dgx-a100\nschedule: gpipe\npipeline: {stages: 2, microbatches: 4}\n",
      "test.yaml", 0};
  Names names_;
  std::vector<Names> also_, strengths_;
};

TEST_F(KeptPlansTest, OneMicrobatchHasOneOrder) {
  EXPECT_EQ(kept({found("1f1b", 1), found("gpipe", 1), found("eager-1f1b", 1)}), Names{"1f1b"});
  EXPECT_EQ(also_, (std::vector<Names>{{"gpipe", "eager-1f1b"}}));
}

TEST_F(KeptPlansTest, AnotherNameIsSaidOnce) {
  kept({found("1f1b", 1), found("gpipe", 1), found("gpipe", 1), found("1f1b", 1)});
  EXPECT_EQ(also_, (std::vector<Names>{{"gpipe"}}));
}

TEST_F(KeptPlansTest, OneStageIsOnePlanWhateverItsScheduleIsCalled) {
  const auto one_stage = [&](std::string_view schedule, double bytes, int width = 1) {
    FoundPlan plan = found(schedule, 4);
    plan.choice.family.shape.depth = 1;
    plan.choice.family.shape.width = width;
    plan.choice.layers = {2};
    plan.judgement.memory_bytes = bytes;
    return plan;
  };
  EXPECT_EQ(kept({one_stage("gpipe", 4), one_stage("zb-h1", 2), one_stage("1f1b", 1)}),
            Names{"1f1b"})
      << "by what holds least, though gpipe holds all microbatches";
  EXPECT_EQ(also_, (std::vector<Names>{{"gpipe", "zb-h1"}}));
  EXPECT_EQ(kept({one_stage("torchgpipe", 1), one_stage("data-parallel", 1)}),
            Names{"data-parallel"})
      << "the plainer name";
  EXPECT_EQ(kept({one_stage("1f1b", 1), one_stage("gpipe", 4, 2)}).size(), 2U);
}

TEST_F(KeptPlansTest, OtherOrdersAreOthersThoughTheyTakeAsLong) {
  EXPECT_EQ(kept({found("1f1b", 4), found("gpipe", 4)}), (Names{"1f1b", "gpipe"}));
  EXPECT_EQ(also_, (std::vector<Names>{{}, {}}));
}

TEST_F(KeptPlansTest, OtherRulesForWeightsAreOthers) {
  EXPECT_EQ(kept({found("1f1b", 4), found("pipedream-2bw", 4)}).size(), 2U);
}

TEST_F(KeptPlansTest, OfAFamilyTheBestStays) {
  EXPECT_EQ(kept({found("1f1b", 4, 3), found("gpipe", 4, 2), found("1f1b", 4, 1)}),
            (Names{"1f1b", "gpipe"}));
  EXPECT_EQ(kept({found("1f1b", 4, 1), found("gpipe", 4, 2), found("1f1b", 4, 3)}),
            (Names{"1f1b", "gpipe"}));
}

TEST_F(KeptPlansTest, TheWorstGoes) {
  EXPECT_EQ(kept({found("1f1b", 4, 3), found("gpipe", 4, 2)}, 1), Names{"gpipe"});
}

TEST_F(KeptPlansTest, OfferedAreTheBestTheSimplestAndTheSmallest) {
  const auto plan = [&](std::string_view schedule, double time_s, double bytes) {
    FoundPlan found_plan = found(schedule, 4, time_s);
    found_plan.judgement.memory_bytes = bytes;
    return found_plan;
  };
  const FoundPlan fast = plan("zb-h1", 1.0, 9), close = plan("zb-h2", 1.01, 9.5),
                  small = plan("zb-v", 1.3, 2), plain = plan("1f1b", 1.4, 8),
                  slow = plan("gpipe", 1.6, 1);
  EXPECT_EQ(kept({slow, plain, small, close, fast}, 3), (Names{"zb-h1", "zb-v", "1f1b"}));
  EXPECT_EQ(strengths_, (std::vector<Names>{{"speed"}, {"memory"}, {"simplicity"}}));
  EXPECT_EQ(kept({slow, plain, small, close, fast}, 5), (Names{"zb-h1", "zb-v", "1f1b"}))
      << "of each idea one: zb-h2 splits the backward as zb-h1 does, gpipe's stages lie as 1f1b's";
}

TEST_F(KeptPlansTest, OfferedAreOtherDegreesOnlyWhereTheyAreAskedFor) {
  FoundPlan fast = found("1f1b", 4, 1.0), wide = found("1f1b", 4, 1.2), tensor = wide;
  wide.choice.family.shape.width = 2;
  tensor.choice.family.shape.tensor = 2;
  EXPECT_EQ(kept({fast, wide}, 5).size(), 1U);
  EXPECT_EQ(kept({fast, tensor}, 5).size(), 1U) << "one row of an idea";
  EXPECT_EQ(kept({fast, tensor}, 5, true).size(), 2U);
}

TEST_F(KeptPlansTest, OfferedIsTheSimplestOfThoseAsGoodAsTheBest) {
  FoundPlan fast = found("interleaved-1f1b", 4, 1.0), simple = found("zb-h1", 4, 1.02),
            simplest = found("1f1b", 4, 1.2);
  fast.choice.family.chunks = 2;
  fast.choice.layers = {1, 1, 1, 1};
  fast.choice.recompute = {Recompute::full, Recompute::none, Recompute::none, Recompute::none};
  EXPECT_EQ(kept({fast, simple, simplest}, 2), (Names{"interleaved-1f1b", "zb-h1"}));
  EXPECT_LT(simplicity(simple.choice), simplicity(fast.choice));
  EXPECT_LT(simplicity(simplest.choice), simplicity(simple.choice));
  EXPECT_TRUE(as_good(1.02, 1.0));
  EXPECT_FALSE(as_good(1.04, 1.0));
}

TEST_F(KeptPlansTest, OfEquallyManyThingsTheSmallerDegreesAreSimpler) {
  Choice two = found("1f1b", 4).choice, four = two;
  two.family.shape.tensor = 2;
  four.family.shape.tensor = 4;
  EXPECT_LT(simplicity(two), simplicity(four));
  four.family.shape.tensor = 1;
  four.family.shape.depth = 4;
  EXPECT_LT(simplicity(four), simplicity(two)) << "no tensor parallelism at all";
}

TEST_F(KeptPlansTest, WhatTheSoftwareRunsComesBeforeWhatIsSimpler) {
  Choice zero_bubble = found("zb-h1", 4).choice, interleaved = found("interleaved-1f1b", 4).choice;
  interleaved.family.chunks = 2;
  interleaved.layers = {1, 1, 1, 1};
  EXPECT_LT(simplicity(zero_bubble), simplicity(interleaved)) << "of no software";
  EXPECT_LT(simplicity(interleaved, "megatron"), simplicity(zero_bubble, "megatron"));
  EXPECT_TRUE(runs_in("torchtitan", found("interleaved-1f1b-torch", 4).choice));
  EXPECT_FALSE(runs_in("nanotron", interleaved));
  zero_bubble.family.shape.depth = 1;
  EXPECT_TRUE(runs_in("megatron", zero_bubble)) << "of one stage there is no order";
}

TEST_F(KeptPlansTest, TheOneToRunIsOfferedHoweverFewAreListed) {
  const FoundPlan fast = found("zb-h1", 4, 1.0), simple = found("1f1b", 4, 1.02);
  EXPECT_EQ(kept({fast, simple}, 1), (Names{"zb-h1", "1f1b"}));
}

TEST_F(KeptPlansTest, DominatedIsWhatIsNowhereBetter) {
  KeptPlans out(problem_);
  out.keep(found("zb-h1", 4, 2));
  const Choice same = found("zb-h2", 4).choice, simpler = found("1f1b", 4).choice;
  EXPECT_TRUE(out.dominated(3, 1, same));
  EXPECT_FALSE(out.dominated(3, 1, simpler));
  EXPECT_FALSE(out.dominated(3, 0.5, same));
  EXPECT_FALSE(out.dominated(1, 2, same));
  EXPECT_FALSE(out.dominated(2, 1, same)) << "equal is not worse";
}

TEST_F(KeptPlansTest, SimplerIsLessToSetUp) {
  Choice choice = found("1f1b", 4).choice;
  EXPECT_EQ(things_to_set_up(choice), 0);
  choice.layers = {3, 2};
  EXPECT_EQ(things_to_set_up(choice), 0) << "as even as they can be";
  choice.layers = {4, 1};
  EXPECT_EQ(things_to_set_up(choice), 1);
  choice.recompute = {Recompute::full, Recompute::none};
  EXPECT_EQ(things_to_set_up(choice), 2);
  choice.family.arrangement.rank_order = "pipeline-first";
  EXPECT_EQ(things_to_set_up(choice), 3);
  choice.family.schedule = find_schedule("interleaved-1f1b");
  choice.family.chunks = 2;
  EXPECT_EQ(things_to_set_up(choice), 5);
}

}  // namespace
}  // namespace penstock::kept_plans_test
