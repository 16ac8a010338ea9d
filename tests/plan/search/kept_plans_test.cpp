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
  std::vector<std::string> kept(std::initializer_list<FoundPlan> plans, std::size_t most = 5) {
    KeptPlans out(problem_, most);
    for (const FoundPlan& plan : plans) out.keep(plan);
    names_.clear();
    also_.clear();
    for (const FoundPlan& plan : out.take()) {
      names_.emplace_back(plan.choice.family.schedule->name);
      also_.push_back(plan.also);
    }
    return names_;
  }

  using Names = std::vector<std::string>;
  Problem problem_{
      "model: {family: gpt, num_layers: 2, hidden_size: 128, num_attention_heads: 2, "
      "vocab_size: 1000, seq_length: 64}\n"
      "cluster: dgx-a100\nschedule: gpipe\npipeline: {stages: 2, microbatches: 4}\n",
      "test.yaml", 0};
  Names names_;
  std::vector<Names> also_;
};

TEST_F(KeptPlansTest, OneMicrobatchHasOneOrder) {
  EXPECT_EQ(kept({found("1f1b", 1), found("gpipe", 1), found("eager-1f1b", 1)}), Names{"1f1b"});
  EXPECT_EQ(also_, (std::vector<Names>{{"gpipe", "eager-1f1b"}}));
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

}  // namespace
}  // namespace penstock::kept_plans_test
