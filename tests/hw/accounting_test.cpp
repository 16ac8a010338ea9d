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

constexpr LifePoint kStart{OpKind::forward, OpPoint::start},
    kInput{OpKind::backward_input, OpPoint::end}, kWeight{OpKind::backward_weight, OpPoint::end};
std::int64_t until_input(const StageHoldings& a) {
  return a.between(Owner::activations, kStart, kInput);
}
std::int64_t until_weight(const StageHoldings& a) {
  return a.between(Owner::activations, kStart, kWeight);
}
std::int64_t kept(const StageHoldings& a) { return a.between(Owner::activations, kInput, kWeight); }
std::int64_t workspace(const StageHoldings& a, OpKind kind) {
  return a.between(Owner::workspace, {kind, OpPoint::start}, {kind, OpPoint::end});
}
std::int64_t input_message(const StageHoldings& a) {
  return a.between(Owner::buffers, {OpKind::forward, OpPoint::departure}, kStart);
}
std::int64_t output_message(const StageHoldings& a) {
  return a.between(Owner::buffers, {OpKind::forward, OpPoint::end},
                   {OpKind::forward, OpPoint::arrival});
}

TEST(StatedBytes, AreTheCostsSplitAtTheEndOfTheInputGradient) {
  const StageHoldings a = accounted_bytes(stand_ins(), 0, sizes(), 4);
  EXPECT_EQ(a.weights, 20);
  EXPECT_EQ(a.version, 21);
  EXPECT_EQ(a.gradients, 22);
  EXPECT_EQ(a.optimizer, 23);
  EXPECT_EQ(until_input(a), 60);
  EXPECT_EQ(until_weight(a), 40);
  EXPECT_EQ(kept(a), 0);
  EXPECT_EQ(workspace(a, OpKind::forward), 5);
  EXPECT_EQ(workspace(a, OpKind::backward), 6);
}

TEST(StatedBytes, OfAStoredMicrobatchAreThoseStatedForIt) {
  RunPlan plan = stand_ins();
  plan.costs[0].stored = plan.costs[0].pass(false);
  plan.costs[0].stored->activation_bytes = 300;
  plan.costs[0].stored->backward_workspace_bytes = 4;
  const StageHoldings a = accounted_bytes(plan, 0, sizes(), 4, true);
  EXPECT_EQ(until_input(a), 260);
  EXPECT_EQ(until_weight(a), 40);
  EXPECT_EQ(workspace(a, OpKind::backward), 4);
}

TEST(StatedBytes, ThatGrowAfterTheInputGradientAreMadeByIt) {
  RunPlan plan = stand_ins();
  plan.costs[0].activation_after_input_bytes = 130;
  const StageHoldings a = accounted_bytes(plan, 0, sizes(), 4);
  EXPECT_EQ(until_input(a), 0);
  EXPECT_EQ(until_weight(a), 100);
  EXPECT_EQ(kept(a), 30);
}

TEST(StatedBytes, OfAMessageAreThoseOfTheStageThatMakesIt) {
  const RunPlan plan = stand_ins();
  EXPECT_EQ(input_message(accounted_bytes(plan, 0, sizes(), 4)), 0);
  EXPECT_EQ(output_message(accounted_bytes(plan, 0, sizes(), 4)), 10);
  EXPECT_EQ(input_message(accounted_bytes(plan, 1, sizes(), 4)), 10);
  EXPECT_EQ(output_message(accounted_bytes(plan, 1, sizes(), 4)), 0);
}

TEST(RealBytes, OfMixedPrecisionHaveAMasterBesideTheMoments) {
  RunPlan plan = stand_ins();
  plan.compute = Compute::transformer;
  plan.optimizer.kind = OptimizerSpec::Kind::adamw;
  const StageHoldings full = accounted_bytes(plan, 0, sizes(), 4);
  EXPECT_EQ(full.weights, 4000);
  EXPECT_EQ(full.gradients, 4000);
  EXPECT_EQ(full.optimizer, 8000);
  const StageHoldings mixed = accounted_bytes(plan, 0, sizes(), 2);
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
  EXPECT_EQ(until_input(accounted_bytes(plan, 1, s, 4)), 32);
  EXPECT_EQ(until_weight(accounted_bytes(plan, 1, s, 4)), 72);
  s.weight_needs_input = false;
  EXPECT_EQ(until_input(accounted_bytes(plan, 1, s, 4)), 40);
  EXPECT_EQ(until_weight(accounted_bytes(plan, 1, s, 4)), 64);
  EXPECT_EQ(workspace(accounted_bytes(plan, 1, s, 4), OpKind::forward), 256 + 16);
  EXPECT_EQ(workspace(accounted_bytes(plan, 1, s, 4), OpKind::backward_input), 512 + 8);
  EXPECT_EQ(workspace(accounted_bytes(plan, 1, s, 4), OpKind::backward), 512 + 8 + s.kept_bytes);
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
