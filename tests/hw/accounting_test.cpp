// SPDX-License-Identifier: Apache-2.0
// What the ledger is told about a stage: stated costs for a stand-in, real sizes for a transformer.
#include "hw/accounting.hpp"

#include <gtest/gtest.h>

namespace penstock::accounting_test {
namespace {

RunPlan stand_ins() {
  RunPlan plan;
  plan.costs.resize(2);
  StageCosts& c = plan.costs[0];
  c.output_bytes = 10;
  c.weight_bytes = 20, c.version_bytes = 21, c.gradient_bytes = 22, c.optimizer_bytes = 23;
  c.activation_bytes = 100, c.activation_after_input_bytes = 40;
  c.forward_workspace_bytes = 5, c.backward_workspace_bytes = 6;
  plan.costs[1] = c;
  plan.costs[1].output_bytes = 0;
  return plan;
}

StageSizes sizes() {
  StageSizes s;
  s.parameters = 1000;
  s.input_bytes = 8, s.output_bytes = 16, s.saved_bytes = 32, s.saved_for_weight_bytes = 64;
  s.kept_bytes = 128, s.forward_workspace_bytes = 256, s.backward_workspace_bytes = 512;
  return s;
}

TEST(StatedBytes, AreTheCostsSplitAtTheEndOfTheInputGradient) {
  const StageBytes a = accounted_bytes(stand_ins(), 0, sizes(), 4);
  EXPECT_EQ(a.weights, 20);
  EXPECT_EQ(a.version, 21);
  EXPECT_EQ(a.gradients, 22);
  EXPECT_EQ(a.optimizer, 23);
  EXPECT_EQ(a.until_input, 60);
  EXPECT_EQ(a.until_weight, 40);
  EXPECT_EQ(a.kept, 0);
  EXPECT_EQ(a.forward_workspace, 5);
  EXPECT_EQ(a.backward_workspace, 6);
}

TEST(StatedBytes, OfAStoredMicrobatchAreThoseStatedForIt) {
  RunPlan plan = stand_ins();
  plan.costs[0].stored = plan.costs[0].pass(false);
  plan.costs[0].stored->activation_bytes = 300;
  plan.costs[0].stored->backward_workspace_bytes = 4;
  const StageBytes a = accounted_bytes(plan, 0, sizes(), 4, true);
  EXPECT_EQ(a.until_input, 260);
  EXPECT_EQ(a.until_weight, 40);
  EXPECT_EQ(a.backward_workspace, 4);
}

TEST(StatedBytes, ThatGrowAfterTheInputGradientAreMadeByIt) {
  RunPlan plan = stand_ins();
  plan.costs[0].activation_after_input_bytes = 130;
  const StageBytes a = accounted_bytes(plan, 0, sizes(), 4);
  EXPECT_EQ(a.until_input, 0);
  EXPECT_EQ(a.until_weight, 100);
  EXPECT_EQ(a.kept, 30);
}

TEST(StatedBytes, OfAMessageAreThoseOfTheStageThatMakesIt) {
  const RunPlan plan = stand_ins();
  EXPECT_EQ(accounted_bytes(plan, 0, sizes(), 4).input_message, 0);
  EXPECT_EQ(accounted_bytes(plan, 0, sizes(), 4).output_message, 10);
  EXPECT_EQ(accounted_bytes(plan, 1, sizes(), 4).input_message, 10);
  EXPECT_EQ(accounted_bytes(plan, 1, sizes(), 4).output_message, 0);
}

TEST(RealBytes, OfMixedPrecisionHaveAMasterBesideTheMoments) {
  RunPlan plan = stand_ins();
  plan.compute = Compute::transformer;
  plan.optimizer.kind = OptimizerSpec::Kind::adamw;
  const StageBytes full = accounted_bytes(plan, 0, sizes(), 4);
  EXPECT_EQ(full.weights, 4000);
  EXPECT_EQ(full.gradients, 4000);
  EXPECT_EQ(full.optimizer, 8000);
  const StageBytes mixed = accounted_bytes(plan, 0, sizes(), 2);
  EXPECT_EQ(mixed.weights, 2000);
  EXPECT_EQ(mixed.version, 2000);
  EXPECT_EQ(mixed.gradients, 4000);
  EXPECT_EQ(mixed.optimizer, 12000);
  plan.optimizer.kind = OptimizerSpec::Kind::sgd;
  EXPECT_EQ(accounted_bytes(plan, 0, sizes(), 4).optimizer, 0);
}

TEST(RealBytes, KeepTheInputAsLongAsTheWeightGradientNeedsIt) {
  RunPlan plan = stand_ins();
  plan.compute = Compute::transformer;
  StageSizes s = sizes();
  EXPECT_EQ(accounted_bytes(plan, 1, s, 4).until_input, 32);
  EXPECT_EQ(accounted_bytes(plan, 1, s, 4).until_weight, 72);
  s.weight_needs_input = false;
  EXPECT_EQ(accounted_bytes(plan, 1, s, 4).until_input, 40);
  EXPECT_EQ(accounted_bytes(plan, 1, s, 4).until_weight, 64);
  EXPECT_EQ(accounted_bytes(plan, 1, s, 4).forward_workspace, 256 + 16);
  EXPECT_EQ(accounted_bytes(plan, 1, s, 4).part_workspace, 512 + 8);
  EXPECT_EQ(accounted_bytes(plan, 1, s, 4).backward_workspace, 512 + 8 + s.kept_bytes);
}

TEST(Payload, IsWhatIsStatedOnlyForStandInsOnAWallClock) {
  RunPlan plan = stand_ins();
  plan.costs[0].output_bytes = 5000;
  const Op forward{.stage = 0, .kind = OpKind::forward};
  const Op backward{.stage = 1, .kind = OpKind::backward};
  EXPECT_EQ(payload_bytes(plan, false, forward, 4096), 5000);
  EXPECT_EQ(payload_bytes(plan, false, backward, 4096), 5000);
  EXPECT_EQ(payload_bytes(plan, true, forward, 4096), 4096);
  plan.costs[0].output_bytes = 10;
  EXPECT_EQ(payload_bytes(plan, false, forward, 4096), 4096);
  plan.compute = Compute::transformer;
  plan.costs[0].output_bytes = 5000;
  EXPECT_EQ(payload_bytes(plan, false, forward, 4096), 4096);
}

}  // namespace
}  // namespace penstock::accounting_test
