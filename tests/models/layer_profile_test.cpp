// SPDX-License-Identifier: Apache-2.0
// Measured costs: which row a run uses, what lies between rows, what a stage costs by hand.
#include "models/layer_profile.hpp"

#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

namespace penstock::measured_test {
namespace {

/// Times of F, B, I, W in these proportions, bytes likewise.
ProfilePart part(double forward_s, double bytes = 0) {
  return {forward_s,  3 * forward_s, 1.5 * forward_s, 1.4 * forward_s,
          10 * bytes, 7 * bytes,     bytes,           2 * bytes};
}

ProfileRow row(double size, int load = 1, double slower = 1) {
  ProfileRow r;
  r.microbatch_size = size;
  r.load = load;
  r.layer = part(1e-3 * size * slower, 100 * size);
  r.embedding = part(2e-4 * size * slower, 10 * size);
  r.head = part(5e-4 * size * slower, 20 * size);
  r.overhead = part(1e-5 * slower);
  return r;
}

LayerProfile table() {
  return {{row(4), row(1), row(4, 2, 1.2), row(1, 2, 1.2), row(1, 8, 2), row(4, 8, 2)},
          {{1, 1e-6, 1e-9}, {8, 2e-6, 3e-9}}};
}

TEST(Measured, RowIsFoundByItsSize) {
  EXPECT_EQ(table().row({4}).layer.forward_s, 4e-3);
  EXPECT_EQ(table().row({1}).layer.forward_s, 1e-3);
}

TEST(Measured, SizesBetweenRowsAreLinear) {
  const ProfileRow r = table().row({3});
  EXPECT_DOUBLE_EQ(r.layer.forward_s, 3e-3);
  EXPECT_DOUBLE_EQ(r.layer.activation_bytes, 3000);
  EXPECT_DOUBLE_EQ(r.overhead.forward_s, 1e-5);
  EXPECT_EQ(r.microbatch_size, 3);
}

TEST(Measured, SizesOutsideAreRefusedWithThoseThatWereMeasured) {
  EXPECT_EQ(table().refuse_size({4}), "");
  EXPECT_EQ(table().refuse_size({2}), "");
  EXPECT_EQ(table().refuse_size({8}),
            "microbatches of 8 were not measured, only of 1, 4 (and between them)");
  EXPECT_EQ(LayerProfile({row(2)}, {}).refuse_size({1}),
            "microbatches of 1 were not measured, only of 2");
}

TEST(Measured, RecomputationThatWasNotMeasuredIsRefused) {
  EXPECT_EQ(table().refuse_recompute({1, Recompute::none}), "");
  EXPECT_EQ(table().refuse_recompute({1, Recompute::full}),
            "nothing was measured with recompute: full, only with none");
}

TEST(Measured, LoadIsTheSmallestThatCoversTheDevices) {
  const auto used = [](bool loaded, int devices) {
    return table().row({1, Recompute::none, loaded, devices}).load;
  };
  EXPECT_EQ(used(false, 8), 1);
  EXPECT_EQ(used(true, 2), 2);
  EXPECT_EQ(used(true, 3), 8);
  EXPECT_EQ(used(true, 64), 8);
  EXPECT_EQ(used(true, 1), 2);
  EXPECT_EQ(table().step({1, Recompute::none, true, 4}).s_per_parameter, 3e-9);
  EXPECT_EQ(table().step({1, Recompute::none, false, 4}).s_per_parameter, 1e-9);
}

TEST(Measured, LoadThatWasNotMeasuredIsRefused) {
  const LayerProfile alone({row(1)}, {}), loaded({row(1, 4)}, {});
  EXPECT_TRUE(loaded.has_load(Recompute::none));
  EXPECT_FALSE(alone.has_load(Recompute::none));
  EXPECT_EQ(alone.refuse_load({1, Recompute::none, false, 1}), "");
  EXPECT_NE(alone.refuse_load({1, Recompute::none, true, 4}), "");
  EXPECT_NE(loaded.refuse_load({1, Recompute::none, false, 4}), "");
}

TEST(Measured, StagesAreOverheadAndLayersAndEnds) {
  const TransformerSpec model = gpt_small();
  const auto costs = profiled_stage_costs(model, row(2), ProfileStep{1, 1e-6, 1e-12}, {3, 4, 5});
  EXPECT_DOUBLE_EQ(costs[0][OpKind::forward].seconds, 1e-5 + 3 * 2e-3 + 4e-4);
  EXPECT_DOUBLE_EQ(costs[1][OpKind::forward].seconds, 1e-5 + 4 * 2e-3);
  EXPECT_DOUBLE_EQ(costs[2][OpKind::forward].seconds, 1e-5 + 5 * 2e-3 + 1e-3);
  EXPECT_DOUBLE_EQ(costs[1][OpKind::backward].seconds, 3 * (1e-5 + 4 * 2e-3));
  EXPECT_DOUBLE_EQ(costs[1][OpKind::backward_input].seconds, 1.5 * (1e-5 + 4 * 2e-3));
  EXPECT_DOUBLE_EQ(costs[1][OpKind::backward_weight].seconds, 1.4 * (1e-5 + 4 * 2e-3));
  const double parameters = 4.0 * static_cast<double>(model.layer_parameters());
  EXPECT_DOUBLE_EQ(costs[1].step_s, 1e-6 + parameters * 1e-12);
  EXPECT_EQ(costs[1].weight_bytes, 4 * model.layer_parameters() * 2);
  EXPECT_GT(costs[1][OpKind::forward].flops, 0);
}

TEST(Measured, BytesOfStagesAreSummedLikeTimes) {
  const auto costs = profiled_stage_costs(gpt_small(), row(2), {}, {6, 6});
  EXPECT_EQ(costs[0].output_bytes, 2 * 1024 * 768 * 2);
  EXPECT_EQ(costs[0].activation_bytes, 6 * 2000 + 200);
  EXPECT_EQ(costs[1].activation_bytes, 6 * 2000 + 400);
  EXPECT_EQ(costs[1].activation_after_input_bytes, 6 * 1400 + 280);
  EXPECT_EQ(costs[1].forward_workspace_bytes, 6 * 200 + 40);
  EXPECT_EQ(costs[1].backward_workspace_bytes, 2 * (6 * 200 + 40));
}

TEST(Measured, StagesMayHaveRowsOfTheirOwn) {
  ProfileRow again = row(2, 1, 1.5);
  again.recompute = Recompute::full;
  const std::vector<int> layers = {3, 4, 5};
  const PerStage<ProfileRow> rows(std::vector{again, row(2), again});
  const PerStage<ProfileStep> steps(std::vector<ProfileStep>{{1, 3, 4}, {}, {1, 3, 4}});
  const auto mixed = profiled_stage_costs(gpt_small(), rows, steps, layers);
  const auto gradients = profiled_stage_gradients(gpt_small(), rows, layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto alike = profiled_stage_costs(gpt_small(), rows.at(i), steps.at(i), layers);
    EXPECT_EQ(mixed[i][OpKind::backward].seconds, alike[i][OpKind::backward].seconds) << i;
    EXPECT_EQ(mixed[i][OpKind::backward].again_flops, alike[i][OpKind::backward].again_flops) << i;
    EXPECT_EQ(mixed[i][OpKind::backward].again_flops > 0, i != 1);
    EXPECT_EQ(mixed[i].step_s, alike[i].step_s) << i;
    EXPECT_EQ(gradients[i][1].backward_s, rows.at(i).layer.backward_s) << i;
  }
  EXPECT_GT(mixed[0][OpKind::backward].seconds / 3, mixed[1][OpKind::backward].seconds / 4);
  EXPECT_EQ(profiled_balanced_split(gpt_small(), rows, {0, 1, 2}), (std::vector<int>{3, 6, 3}));
}

TEST(Measured, BalancedSplitGivesTheLastStageFewerLayers) {
  ProfileRow r = row(1);
  r.head = part(2.5e-3);
  r.embedding = {};
  // 12 layers: 4 + 4 + 4 with a head of 2.5 layers is slower than 5 + 5 + 2.
  EXPECT_EQ(profiled_balanced_split(gpt_small(), r, {0, 1, 2}), (std::vector<int>{5, 5, 2}));
}

}  // namespace
}  // namespace penstock::measured_test
