// SPDX-License-Identifier: Apache-2.0
// What stages cost: the layers' formulas summed up, embedding and head at the ends, I and W adding
// up to B, recomputation, and the two ways to split layers.
#include "models/stage_costs.hpp"

#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock::stage_costs_test {
namespace {

constexpr double kH = 768, kS = 1024, kA = 12, kV = 50304;
constexpr double kLayerParameters = 12 * kH * kH + 13 * kH;
constexpr double kLayerFlops = 24 * kS * kH * kH + 4 * kS * kS * kH;  // b = 1
constexpr double kAttentionFlops = 4 * kS * kS * kH;
constexpr double kHeadFlops = 2 * kS * kH * kV;

std::vector<StageCosts> costs(const TransformerSpec& model, const std::vector<int>& layers,
                              const Recomputation& recompute = Recompute::none, double b = 1) {
  return stage_costs(model, plain_device(), layers, {b, recompute});
}

// Parameters
// ---------------------------------------------------------------------------------------

TEST(StageCosts, EmbeddingWeighsOnTheFirstStageAndHeadOnTheLast) {
  const auto c = costs(gpt_small(), {4, 4, 4});
  const double middle = 4 * kLayerParameters;
  EXPECT_EQ(c[0].weight_bytes, std::llround(2 * (middle + (kV + kS) * kH)));
  EXPECT_EQ(c[1].weight_bytes, std::llround(2 * middle));
  EXPECT_EQ(c[2].weight_bytes, std::llround(2 * (middle + kV * kH + 2 * kH)));
}

TEST(StageCosts, TiedHeadIsACopyOnTheLastStageAndSharedOnASingleOne) {
  TransformerSpec untied = gpt_small();
  untied.tie_embeddings = false;
  EXPECT_EQ(costs(gpt_small(), {6, 6})[1].weight_bytes, costs(untied, {6, 6})[1].weight_bytes);
  EXPECT_EQ(costs(gpt_small(), {12})[0].weight_bytes, 2 * gpt_small().parameters());
  EXPECT_EQ(costs(untied, {12})[0].weight_bytes, 2 * untied.parameters());
  EXPECT_EQ(untied.parameters() - gpt_small().parameters(), std::llround(kV * kH));
}

TEST(StageCosts, StagesOfAnUntiedModelAddUpToItsParameters) {
  const auto c = costs(llama_3_8b(), {8, 8, 8, 8});
  std::int64_t weights = 0;
  for (const StageCosts& stage : c) weights += stage.weight_bytes;
  EXPECT_EQ(weights, 2 * llama_3_8b().parameters());
}

TEST(StageCosts, MixedPrecisionTakes18BytesPerParameter) {
  const StageCosts c = costs(gpt_small(), {12})[0];
  const std::int64_t n = gpt_small().parameters();
  EXPECT_EQ(c.weight_bytes, 2 * n);
  EXPECT_EQ(c.gradient_bytes, 4 * n);
  EXPECT_EQ(c.optimizer_bytes, 12 * n);
  EXPECT_EQ(c.version_bytes, 2 * n);
  EXPECT_EQ(c.reduced_bytes, 4 * n);
}

// FLOPs and times
// ----------------------------------------------------------------------------------

TEST(StageCosts, BackwardIsTwiceTheForwardAndTheHeadIsOnTheLastStage) {
  const auto c = costs(gpt_small(), {5, 7});
  EXPECT_DOUBLE_EQ(c[0][OpKind::forward].flops, 5 * kLayerFlops);
  EXPECT_DOUBLE_EQ(c[1][OpKind::forward].flops, 7 * kLayerFlops + kHeadFlops);
  for (const StageCosts& stage : c) {
    EXPECT_DOUBLE_EQ(stage[OpKind::backward].flops, 2 * stage[OpKind::forward].flops);
    EXPECT_EQ(stage[OpKind::backward].again_flops, 0);
    EXPECT_DOUBLE_EQ(stage[OpKind::forward].seconds, stage[OpKind::forward].flops / 1e12);
    EXPECT_DOUBLE_EQ(stage[OpKind::backward].seconds, stage[OpKind::backward].flops / 1e12);
  }
}

TEST(StageCosts, InputAndWeightGradientsAddUpToTheBackward) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const StageCosts& c : costs(gpt_small(), {4, 4, 4}, recompute, 2)) {
      EXPECT_NEAR(c[OpKind::backward_input].seconds + c[OpKind::backward_weight].seconds,
                  c[OpKind::backward].seconds, 1e-12 * c[OpKind::backward].seconds);
    }
  }
  const auto c = costs(gpt_small(), {6, 6});
  // W: 2 b s P, without attention, which has no weights; I: 2 b s P + 8 b s^2 h.
  EXPECT_DOUBLE_EQ(c[0][OpKind::backward_weight].seconds, 6 * 24 * kS * kH * kH / 1e12);
  EXPECT_DOUBLE_EQ(c[0][OpKind::backward_input].seconds,
                   6 * (24 * kS * kH * kH + 2 * kAttentionFlops) / 1e12);
  EXPECT_DOUBLE_EQ(c[1][OpKind::backward_weight].seconds,
                   (6 * 24 * kS * kH * kH + kHeadFlops) / 1e12);
}

TEST(StageCosts, FullRecomputationRunsTheLayersButNotTheHeadAgain) {
  const auto c = costs(gpt_small(), {6, 6}, Recompute::full);
  for (const StageCosts& stage : c)
    EXPECT_DOUBLE_EQ(stage[OpKind::backward].again_flops, 6 * kLayerFlops);
  EXPECT_DOUBLE_EQ(c[1][OpKind::backward].seconds, (18 * kLayerFlops + 2 * kHeadFlops) / 1e12);
  const auto plain = costs(gpt_small(), {6, 6});
  EXPECT_EQ(c[0][OpKind::forward].seconds, plain[0][OpKind::forward].seconds);
  EXPECT_EQ(c[0][OpKind::backward_weight].seconds,
            plain[0][OpKind::backward_weight].seconds);                       // it is part of I
  EXPECT_EQ(c[0][OpKind::backward].flops, plain[0][OpKind::backward].flops);  // model FLOPs stay
}

TEST(StageCosts, ABlockRunsItsLayersAgainAndTheOthersKeepTheirActivations) {
  const double b = 2, kept = kS * b * kH * (34 + 5 * kA * kS / kH), input = 2 * kS * b * kH;
  const double softmax = 4 * b * kS * kV, workspace = 6 * b * kS * kV, mask = kS * b * kH;
  for (int n = 0; n <= 8; ++n) {
    const int again = std::min(n, 6);
    const auto c = costs(gpt_small(), {6, 6}, Recomputation::block(n), b);
    EXPECT_DOUBLE_EQ(c[0][OpKind::backward].seconds, (2 * 6 + again) * b * kLayerFlops / 1e12) << n;
    EXPECT_DOUBLE_EQ(c[0][OpKind::backward_input].seconds + c[0][OpKind::backward_weight].seconds,
                     c[0][OpKind::backward].seconds)
        << n;
    EXPECT_DOUBLE_EQ(c[0][OpKind::backward].again_flops, again * b * kLayerFlops) << n;
    EXPECT_DOUBLE_EQ(c[1][OpKind::backward].again_flops, again * b * kLayerFlops)
        << "never the head, " << n;
    EXPECT_EQ(c[0].activation_bytes, std::llround((6 - again) * kept + again * input + mask)) << n;
    EXPECT_EQ(c[1].activation_bytes,
              std::llround((6 - again) * kept + again * input + softmax + 2 * input));
    EXPECT_EQ(c[0].backward_workspace_bytes, std::llround(again > 0 ? kept - input : 0)) << n;
    EXPECT_EQ(c[0].forward_workspace_bytes, c[0].backward_workspace_bytes) << n;
    EXPECT_EQ(c[1].backward_workspace_bytes,
              std::llround(std::max(again > 0 ? kept - input : 0, workspace)));
    EXPECT_EQ(c[0].output_bytes, std::llround(input));
  }
}

TEST(StageCosts, UniformGroupsKeepOneInputEachAndMakeAGroupAtOnce) {
  const double b = 2, kept = kS * b * kH * (34 + 5 * kA * kS / kH), input = 2 * kS * b * kH;
  const auto full = costs(gpt_small(), {6, 6}, Recompute::full, b);
  for (int n = 1; n <= 8; ++n) {
    const auto c = costs(gpt_small(), {6, 6}, Recomputation::uniform(n), b);
    const int group = std::min(n, 6), groups = (6 + group - 1) / group;  // 6, 3, 2, 2, 2, 1
    EXPECT_EQ(c[0][OpKind::backward].seconds, full[0][OpKind::backward].seconds) << n;
    EXPECT_EQ(c[0][OpKind::backward].again_flops, full[0][OpKind::backward].again_flops) << n;
    EXPECT_EQ(c[0].activation_bytes, std::llround(groups * input + kS * b * kH)) << n;
    EXPECT_EQ(c[0].activation_after_input_bytes, 6 * std::llround(32 * kS * b * kH)) << n;
    EXPECT_EQ(c[0].backward_workspace_bytes, std::llround(group * kept - input)) << n;
    EXPECT_EQ(c[0].forward_workspace_bytes, std::llround(n == 1 ? kept - input : kept)) << n;
  }
}

TEST(StageCosts, ABlockExchangesWhatItsLayersDoOnceMore) {
  const StageCostOptions none{1, Recompute::none, {2, true}, 2};
  StageCostOptions options = none, full = none;
  full.recompute = Recompute::full;
  const auto bytes = [&](const StageCostOptions& of, OpKind kind, Axis axis) {
    const auto c = stage_costs(gpt_small(), plain_device(), {12}, of);
    return static_cast<double>(c[0][kind].recipe.bytes(axis, Collective::all_gather));
  };
  for (int n = 0; n <= 12; ++n) {
    options.recompute = Recomputation::block(n);
    for (const Axis axis : {Axis::tensor, Axis::context})
      for (const OpKind kind : {OpKind::backward, OpKind::backward_input}) {
        const double least = bytes(none, kind, axis), most = bytes(full, kind, axis);
        ASSERT_GT(most, least);
        EXPECT_NEAR(bytes(options, kind, axis), least + n / 12.0 * (most - least), 1.5) << n;
      }
    EXPECT_EQ(bytes(options, OpKind::forward, Axis::tensor),
              bytes(none, OpKind::forward, Axis::tensor));
  }
}

TEST(Recomputation, IsReadAsItIsWritten) {
  for (const Recomputation& r :
       {Recomputation(), Recomputation(Recompute::selective), Recomputation(Recompute::full),
        Recomputation::block(3), Recomputation::uniform(12)})
    EXPECT_EQ(recomputation_named(to_string(r)), r) << to_string(r);
  EXPECT_EQ(to_string(Recomputation::block(3)), "block 3");
  EXPECT_EQ(Recomputation::block(0), Recomputation(Recompute::none));
  EXPECT_EQ(Recomputation::uniform(1), Recomputation(Recompute::full));
  for (const char* other : {"", "ful", "block", "block ", "block 0", "block -1", "block 3x",
                            "group 3", "block 99999999999"})
    EXPECT_EQ(recomputation_named(other), std::nullopt) << other;
  EXPECT_LT(Recomputation(Recompute::selective), Recomputation::block(1));
  EXPECT_LT(Recomputation::block(1), Recomputation::block(2));
  EXPECT_LT(Recomputation::block(2), Recomputation(Recompute::full));
}

TEST(StageCosts, SelectiveRecomputationRunsAttentionAgain) {
  EXPECT_DOUBLE_EQ(costs(gpt_small(), {12}, Recompute::selective)[0][OpKind::backward].again_flops,
                   12 * kAttentionFlops);
  TransformerSpec flash = gpt_small();
  flash.flash_attention = true;
  EXPECT_DOUBLE_EQ(costs(flash, {12}, Recompute::selective)[0][OpKind::backward].again_flops,
                   12 * kAttentionFlops);
  EXPECT_EQ(costs(flash, {12}, Recompute::selective)[0].activation_bytes,
            costs(flash, {12}, Recompute::none)[0].activation_bytes);
}

TEST(StageCosts, TimeIsFlopsOverPeakTimesEfficiency) {
  DeviceSpec d = plain_device();
  d.efficiency = {{768, 0.25}};
  const auto c = stage_costs(gpt_small(), d, {12}, {});
  EXPECT_DOUBLE_EQ(c[0][OpKind::forward].seconds, (12 * kLayerFlops + kHeadFlops) / 0.25e12);
  TransformerSpec single = gpt_small();
  single.compute_type = "fp32";  // a tenth of the rate
  EXPECT_DOUBLE_EQ(stage_costs(single, d, {12}, {})[0][OpKind::forward].seconds,
                   10 * c[0][OpKind::forward].seconds);
}

TEST(StageCosts, NoOpIsShorterThanTheLaunchOfItsKernels) {
  DeviceSpec d = plain_device();
  d.peak_flops_per_s["fp16"] = 1e30;
  d.launch_s = 1e-6;
  const auto plain = stage_costs(gpt_small(), d, {3, 9}, {});
  EXPECT_DOUBLE_EQ(plain[0][OpKind::forward].seconds, 3 * 20e-6);
  EXPECT_DOUBLE_EQ(plain[0][OpKind::backward].seconds, 3 * 40e-6);
  EXPECT_NEAR(plain[0][OpKind::backward_input].seconds + plain[0][OpKind::backward_weight].seconds,
              plain[0][OpKind::backward].seconds, 1e-15);
  const auto again = stage_costs(gpt_small(), d, {3, 9}, {1, Recompute::full});
  EXPECT_DOUBLE_EQ(again[0][OpKind::backward].seconds, 3 * 60e-6);
}

TEST(StageCosts, OptimizerStepStreamsItsState) {
  DeviceSpec d = plain_device();
  d.memory_bytes_per_s = 1e12;
  d.memory_efficiency = 0.5;
  const StageCosts c = stage_costs(gpt_small(), d, {12}, {})[0];
  // Per parameter: gradient 4, state 12 read and written, weight 2.
  EXPECT_DOUBLE_EQ(c.step_s, 30 * static_cast<double>(gpt_small().parameters()) / 0.5e12);
}

// Memory
// -------------------------------------------------------------------------------------------

TEST(StageCosts, ActivationsAreThoseOfTheLayersAndTheSoftmax) {
  const auto c = costs(gpt_small(), {5, 7}, Recompute::none, 4);
  const double layer = kS * 4 * kH * (34 + 5 * kA * kS / kH);
  // The embedding's mask of dropout; the fp32 softmax and inputs of the final norm and of the head.
  EXPECT_EQ(c[0].activation_bytes, std::llround(5 * layer + kS * 4 * kH));
  EXPECT_EQ(c[1].activation_bytes, std::llround(7 * layer + 4 * 4 * kS * kV + 4 * kS * 4 * kH));
  EXPECT_EQ(c[0].output_bytes, std::llround(2 * kS * 4 * kH));
  EXPECT_EQ(c[0].forward_workspace_bytes, 0);
}

TEST(StageCosts, FullRecomputationKeepsTheLayersInputsAndWorksOneLayerAtATime) {
  const auto c = costs(gpt_small(), {6, 6}, Recompute::full, 4);
  const double input = 2 * kS * 4 * kH;
  const double layer = kS * 4 * kH * (34 + 5 * kA * kS / kH);
  EXPECT_EQ(c[0].activation_bytes, std::llround(6 * input + kS * 4 * kH));
  EXPECT_EQ(c[0].backward_workspace_bytes, std::llround(layer - input));
  // What I has made again waits for W, but for masks and attention's square.
  EXPECT_EQ(c[0].activation_after_input_bytes, 6 * std::llround(32 * kS * 4 * kH));
}

TEST(StageCosts, LessIsKeptBetweenIAndWThanBefore) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
    for (const StageCosts& c : costs(gpt_small(), {4, 4, 4}, recompute, 2)) {
      EXPECT_LE(c.activation_after_input_bytes, c.activation_bytes);
      EXPECT_GT(c.activation_after_input_bytes, 0);
    }
  }
}

TEST(StageCosts, TheHeadsWeightGradientReadsItsInputAndTheLogitsGradientWhateverLayersRecompute) {
  const double head = 2 * 2 * kS * kV + 2 * 2 * kS * 2 * kH;  // of 2 samples, in 16 bits
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto c = costs(gpt_small(), {4, 4, 4}, recompute, 2);
    EXPECT_EQ(c[2].activation_after_input_bytes,
              c[1].activation_after_input_bytes + std::llround(head));
  }
}

// Splits
// -------------------------------------------------------------------------------------------

TEST(EvenSplit, GivesEveryStageTheSame) {
  EXPECT_EQ(even_split(12, 4), (std::vector<int>{3, 3, 3, 3}));
  EXPECT_EQ(even_split(7, 7), std::vector<int>(7, 1));
  EXPECT_EQ(even_split(5, 1), std::vector<int>{5});
}

TEST(EvenSplit, IsEmptyWhereItIsImpossible) {
  EXPECT_TRUE(even_split(12, 5).empty());
  EXPECT_TRUE(even_split(3, 4).empty());
}

/// Times of the stages, the slowest first: what a split is judged by.
std::vector<double> judged(const TransformerSpec& model, const DeviceSpec& device,
                           const std::vector<int>& layers, const StageCostOptions& options) {
  std::vector<double> times;
  for (const StageCosts& c : stage_costs(model, device, layers, options))
    times.push_back(c[OpKind::forward].seconds + c[OpKind::backward].seconds);
  std::ranges::sort(times, std::greater<>());
  return times;
}

bool better(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] < b[i] * (1 - 1e-9)) return true;
    if (a[i] > b[i] * (1 + 1e-9)) return false;
  }
  return false;
}

/// Calls `visit` with every way to give `left` layers to the stages from `at` on, one at least.
template <class Visit>
void every_split(std::vector<int>& layers, std::size_t at, int left, const Visit& visit) {
  if (at + 1 == layers.size()) {
    layers[at] = left;
    visit(layers);
    return;
  }
  const int later = static_cast<int>(layers.size() - at) - 1;
  for (int n = 1; n <= left - later; ++n) {
    layers[at] = n;
    every_split(layers, at + 1, left - n, visit);
  }
}

/// Which stages recompute.
enum class Recomputed : std::uint8_t { none, all, first, every_second, two_layers };
constexpr Recomputed kRecomputed[] = {Recomputed::none, Recomputed::all, Recomputed::first,
                                      Recomputed::every_second, Recomputed::two_layers};

PerStage<Recomputation> of_stages(Recomputed recomputed, int stages) {
  std::vector<Recomputation> each;
  for (int s = 0; s < stages; ++s) {
    const bool again = recomputed == Recomputed::all ||
                       (recomputed == Recomputed::first && s == 0) ||
                       (recomputed == Recomputed::every_second && s % 2 == 1);
    each.push_back(recomputed == Recomputed::two_layers ? Recomputation::block(2)
                   : again                              ? Recompute::full
                                                        : Recompute::none);
  }
  return PerStage<Recomputation>(std::move(each));
}

TEST(BalancedSplit, IsTheBestOfAllSplits) {
  DeviceSpec slow_launch = plain_device();
  slow_launch.launch_s = 2e-4;
  slow_launch.memory_bytes_per_s = 1e10;
  for (const DeviceSpec& device : {plain_device(), slow_launch}) {
    for (const Recomputed recompute : kRecomputed) {
      for (int layers = 1; layers <= 9; ++layers) {
        for (int stages = 1; stages <= std::min(layers, 5); ++stages) {
          TransformerSpec model = gpt_small();
          model.num_layers = layers;
          const StageCostOptions options{1, of_stages(recompute, stages)};
          const auto chosen = balanced_split(model, device, stages, options);
          ASSERT_EQ(std::accumulate(chosen.begin(), chosen.end(), 0), layers);
          const auto mine = judged(model, device, chosen, options);
          std::vector<int> split(static_cast<std::size_t>(stages));
          every_split(split, 0, layers, [&](const std::vector<int>& other) {
            EXPECT_FALSE(better(judged(model, device, other, options), mine))
                << layers << " layers, " << stages << " stages: " << testing::PrintToString(other)
                << " is better than " << testing::PrintToString(chosen);
          });
        }
      }
    }
  }
}

TEST(BalancedSplit, LeavesTheFasterOfTwoStagesWhereEitherCouldHaveALayerMore) {
  // Times 4, 8, 12 and 3, 6, 9, 12: the sixth layer makes a stage of 12 s whoever takes it.
  const auto time = [](int layers, int stage) { return layers * (stage == 0 ? 4.0 : 3.0); };
  EXPECT_EQ(balanced_split(6, 2, time), (std::vector<int>{2, 4}));
  EXPECT_EQ(balanced_split(6, 2, [&](int layers, int stage) { return time(layers, 1 - stage); }),
            (std::vector<int>{4, 2}));
}

TEST(BalancedSplit, GivesChunksOfADeviceAboutAsManyLayersWhereTheirFirstOneTakesLongest) {
  // As where one layer of every chunk is recomputed; the last chunk has the head, too.
  const auto time = [](int layers, int stage) {
    return 3.0 * layers + (layers > 0 ? 1 : 0) + (stage == 7 ? 3 : 0);
  };
  const auto split = balanced_split(39, 8, time, {0, 1, 2, 3, 3, 2, 1, 0});
  EXPECT_EQ(split[0] + split[7], 9);
  for (const int layers : split) EXPECT_NEAR(layers, 5, 1) << testing::PrintToString(split);
}

TEST(BalancedSplit, TakesLayersFromTheStageWithTheHead) {
  TransformerSpec model = gpt_small();  // its head weighs 5.1 layers
  model.num_layers = 24;
  const auto split = balanced_split(model, plain_device(), 4, {});
  EXPECT_LT(split[3], split[0]);
  EXPECT_EQ(*std::ranges::max_element(split), 7);
}

// Gradients by layer
// ------------------------------------------------------------------------------------

TEST(StageGradients, AreThoseOfEmbeddingLayersAndHead) {
  const auto stages = stage_gradients(gpt_small(), {plain_device(), plain_device()}, {5, 7}, {});
  ASSERT_EQ(stages.size(), 2U);
  ASSERT_EQ(stages[0].size(), 6U);  // embedding and 5 layers
  EXPECT_DOUBLE_EQ(stages[0][0].gradient_bytes, 4 * (kV + kS) * kH);
  EXPECT_EQ(stages[0][0].backward_s, 0);
  EXPECT_DOUBLE_EQ(stages[0][1].gradient_bytes, 4 * kLayerParameters);
  EXPECT_DOUBLE_EQ(stages[0][1].backward_s, 2 * kLayerFlops / 1e12);
  ASSERT_EQ(stages[1].size(), 8U);  // 7 layers and the head
  EXPECT_DOUBLE_EQ(stages[1][7].gradient_bytes, 4 * (kV * kH + 2 * kH));
  EXPECT_DOUBLE_EQ(stages[1][7].backward_s, 2 * kHeadFlops / 1e12);
}

TEST(StageGradients, LayersThatAreRecomputedComeFirstAndTakeLonger) {
  const auto stage = stage_gradients(gpt_small(), {plain_device()}, {12},
                                     {.recompute = Recomputation::block(5)})[0];
  for (std::size_t layer = 1; layer <= 12; ++layer)
    EXPECT_DOUBLE_EQ(stage[layer].backward_s, (layer <= 5 ? 3 : 2) * kLayerFlops / 1e12) << layer;
}

TEST(StageGradients, ATiedProjectionIsCompleteWithTheEmbedding) {
  const auto stage = stage_gradients(gpt_small(), {plain_device()}, {12}, {})[0];
  EXPECT_DOUBLE_EQ(stage.front().gradient_bytes, 4 * (kV + kS) * kH);
  EXPECT_DOUBLE_EQ(stage.back().gradient_bytes, 4 * 2 * kH);  // the final norm
}

TEST(StageGradients, AddUpToTheStage) {
  for (const bool tied : {true, false}) {
    TransformerSpec model = gpt_small();
    model.tie_embeddings = tied;
    for (const Recomputation& recompute :
         {Recomputation(), Recomputation(Recompute::full), Recomputation::block(3),
          Recomputation::block(4), Recomputation::uniform(2)}) {
      const StageCostOptions options{2, recompute, {2, true}};
      const std::vector<DeviceSpec> devices(3, plain_device());
      const auto stages = stage_gradients(model, devices, {3, 4, 5}, options);
      const auto c = stage_costs(model, devices, {3, 4, 5}, options);
      for (std::size_t i = 0; i < c.size(); ++i) {
        double bytes = 0, seconds = 0;
        for (const LayerGradient& layer : stages[i]) {
          bytes += layer.gradient_bytes;
          seconds += layer.backward_s;
        }
        EXPECT_NEAR(bytes, static_cast<double>(c[i].reduced_bytes), 1) << i;
        EXPECT_NEAR(seconds, c[i][OpKind::backward].seconds, 1e-12) << i;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::stage_costs_test
