// SPDX-License-Identifier: Apache-2.0
#include "hw/stand_in_stage.hpp"

#include "stage_rig.hpp"

#include <gtest/gtest.h>

namespace penstock::stand_in_stage_test {
namespace {

std::vector<float> initial_weights(const Stage& stage) {
  std::vector<float> w(static_cast<std::size_t>(stage.sizes().parameters));
  stage.initialize(w);
  return w;
}

TEST(StandInStage, EveryGradientIsThatOfCentralDifferencesOnEveryKindOfStage) {
  const StandInStage first(0, 3, 4, 1), middle(1, 3, 4, 1), last(2, 3, 4, 1), only(0, 1, 4, 1);
  for (const StandInStage* stage : {&first, &middle, &last, &only}) {
    const Objective objective(*stage, random_values(stage->sizes().parameters, 3, 0.5F));
    const StageResult r = objective.result();
    const std::size_t half = r.gradients.size() / 2;
    for (const std::size_t offset : {std::size_t{0}, half}) {
      const std::vector<float> gradient(
          r.gradients.begin() + static_cast<std::ptrdiff_t>(offset),
          r.gradients.begin() + static_cast<std::ptrdiff_t>(offset + half));
      EXPECT_LT(worst_error(gradient,
                            [&](const std::vector<float>& step) {
                              return objective.along_weights(offset, step);
                            }),
                kGradientTolerance);
    }
    if (r.input_gradient.empty()) continue;
    EXPECT_LT(
        worst_error(r.input_gradient,
                    [&](const std::vector<float>& step) { return objective.along_input(step); }),
        kGradientTolerance);
  }
}

TEST(StandInStage, MessagesAndBuffersAreMatricesOf32Times32) {
  const std::int64_t matrix = 32 * 32 * 4;
  const StageSizes first = StandInStage(0, 3, 4, 1).sizes();
  const StageSizes middle = StandInStage(1, 3, 4, 1).sizes();
  const StageSizes last = StandInStage(2, 3, 4, 1).sizes();
  EXPECT_EQ(first.input_bytes, 0);
  EXPECT_EQ(first.output_bytes, matrix);
  EXPECT_EQ(first.saved_for_weight_bytes, 2 * matrix);
  EXPECT_FALSE(first.weight_needs_input);
  EXPECT_EQ(middle.input_bytes, matrix);
  EXPECT_EQ(middle.saved_for_weight_bytes, matrix);
  EXPECT_EQ(middle.kept_bytes, 2 * matrix);
  EXPECT_EQ(last.output_bytes, 0);
  EXPECT_EQ(last.kept_bytes, matrix);
  EXPECT_EQ(StandInStage(1, 3, 2, 1).sizes().output_bytes, matrix / 2);
}

TEST(StandInStage, MicrobatchesStagesAndSeedsDiffer) {
  const StandInStage only(0, 1, 4, 1), other(0, 1, 4, 2), second(1, 2, 4, 1);
  const std::vector<float> w = initial_weights(only);
  EXPECT_NE(run_stage(only, w, {}, {}, 0), run_stage(only, w, {}, {}, 1));
  EXPECT_EQ(run_stage(only, w, {}, {}, 1), run_stage(only, w, {}, {}, 1));
  EXPECT_NE(initial_weights(other), w);
  EXPECT_NE(initial_weights(second), w);
}

TEST(StandInStage, SignalAndGradientSurviveAThousandStages) {
  constexpr int stages = 1000;
  const StandInStage first(0, stages, 4, 1);
  StageRig front(first);
  std::vector<float> signal = front.forward(initial_weights(first), {});
  std::vector<float> gradient = random_values(32 * 32, 6);
  const double sent = std::sqrt(dot(signal, signal)), returned = std::sqrt(dot(gradient, gradient));
  for (int s = 1; s < stages - 1; ++s) {
    const StandInStage middle(s, stages, 4, 1);
    StageRig rig(middle);
    const std::vector<float> weights = initial_weights(middle);
    signal = rig.forward(weights, signal);
    gradient = rig.backward_input(weights, gradient);
  }
  EXPECT_GT(std::sqrt(dot(signal, signal)), sent);
  EXPECT_LT(std::sqrt(dot(signal, signal)), 1e4 * sent);
  EXPECT_GT(std::sqrt(dot(gradient, gradient)), 0.1 * returned);
  EXPECT_LT(std::sqrt(dot(gradient, gradient)), 1e4 * returned);
}

TEST(StandInStage, LossFallsWithTheWeightsGoingDownTheirGradient) {
  const StandInStage only(0, 1, 4, 1);
  std::vector<float> w = initial_weights(only);
  const float before = run_stage(only, w, {}, {}).loss;
  for (int step = 0; step < 20; ++step) {
    const StageResult r = run_stage(only, w, {}, {});
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 10 * r.gradients[i];
  }
  EXPECT_LT(run_stage(only, w, {}, {}).loss, 0.9F * before);
}

}  // namespace
}  // namespace penstock::stand_in_stage_test
