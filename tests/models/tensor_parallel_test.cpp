// SPDX-License-Identifier: Apache-2.0
// A stage shared by t GPUs: parameters of each against Megatron's own log, activations against the
// closed forms of Korthikanti et al. (MLSys'23), traffic, times and the distributed optimizer.
#include "models/stage_costs.hpp"
#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::tensor_parallel_test {
namespace {

constexpr int kF = static_cast<int>(OpKind::forward), kB = static_cast<int>(OpKind::backward),
              kI = static_cast<int>(OpKind::backward_input),
              kW = static_cast<int>(OpKind::backward_weight);

TransformerSpec gpt(int layers, std::int64_t hidden, std::int64_t heads, std::int64_t vocabulary,
                    std::int64_t sequence) {
  TransformerSpec t;
  t.num_layers = layers;
  t.hidden_size = hidden;
  t.num_attention_heads = t.num_query_groups = heads;
  t.ffn_hidden_size = 4 * hidden;
  t.vocab_size = vocabulary;
  t.seq_length = sequence;
  return t;
}

TransformerSpec gpt3() { return gpt(96, 12288, 96, 51200, 2048); }

std::vector<StageCosts> costs(const TransformerSpec& model, const std::vector<int>& layers,
                              const TensorParallel& tensor, Recompute recompute = Recompute::none,
                              double b = 1, int shards = 1) {
  return stage_costs(
      model, plain_device(), layers,
      {.microbatch_size = b, .recompute = recompute, .tensor = tensor, .sharding = zero_1(shards)});
}

// Parameters
// ---------------------------------------------------------------------------------------

// What Megatron-LM prints of GPT-2 large (36 layers, h = 1280, vocabulary 50257) with tensor
// parallelism 2 and two stages: huggingface.co/docs/accelerate/usage_guides/megatron_lm.
TEST(TensorParameters, AreThoseThatMegatronPrints) {
  const TransformerSpec model = gpt(36, 1280, 20, 50257, 1024);
  EXPECT_EQ(model.vocab_rows({2, false}), 50432 / 2);
  EXPECT_EQ(stage_parameters(model, {0, 18, true, false}, {2, false}), 210'753'280);
  EXPECT_EQ(stage_parameters(model, {18, 18, false, true}, {2, false}), 209'445'120);
}

TEST(TensorParameters, OfGpt3ShardsAddUpToTheModelAndWhatEveryGpuHolds) {
  const TransformerSpec model = gpt3();
  const TensorParallel t{8, false};
  EXPECT_EQ(model.layer_parameters(t), 12LL * 12288 * 12288 / 8 + 7 * 12288 / 8 + 6 * 12288);
  const std::int64_t whole = 96 * 6 * 12288 + 2048 * 12288 + 2 * 12288;  // biases, norms, positions
  EXPECT_EQ(8 * stage_parameters(model, {0, 96, true, true}, t), model.parameters() + 7 * whole);
  EXPECT_NEAR(static_cast<double>(model.parameters()), 174.6e9, 0.1e9);  // SC'21, equation 2
}

TEST(TensorParameters, OfALlamaHaveDividedKeyValueHeadsAndWholeNorms) {
  const TransformerSpec model = llama_3_8b();
  const std::int64_t h = 4096, kv = 1024, f = 14336;
  EXPECT_EQ(model.layer_parameters({4, true}), (2 * h * h + 2 * h * kv + 3 * h * f) / 4 + 2 * h);
  EXPECT_EQ(model.vocab_rows({4, true}), 128512 / 4) << "128256 is no multiple of 128 * 4";
}

TEST(TensorParameters, WithoutTensorParallelismNothingIsPadded) {
  EXPECT_EQ(gpt(36, 1280, 20, 50257, 1024).vocab_rows(), 50257);
}

// Activations
// --------------------------------------------------------------------------------------

// Table 2 of Korthikanti et al., bytes per layer at 16 bits.
TEST(TensorActivations, AreThoseOfThePaper) {
  const TransformerSpec model = gpt3();
  for (const double b : {1.0, 4.0}) {
    for (const int degree : {2, 4, 8}) {
      const double s = 2048, h = 12288, a = 96, t = degree, sbh = s * b * h;
      const TensorParallel plain{degree, false}, sequence{degree, true};
      const auto bytes = [&](Recompute recompute, const TensorParallel& tensor) {
        return model.layer_activation_bytes(b, recompute, tensor);
      };
      EXPECT_DOUBLE_EQ(bytes(Recompute::none, plain), sbh * (10 + 24 / t + 5 * a * s / (h * t)));
      EXPECT_DOUBLE_EQ(bytes(Recompute::none, sequence), sbh / t * (34 + 5 * a * s / h));
      EXPECT_DOUBLE_EQ(bytes(Recompute::selective, plain), sbh * (10 + 24 / t));
      EXPECT_DOUBLE_EQ(bytes(Recompute::selective, sequence), sbh / t * 34);
      EXPECT_DOUBLE_EQ(bytes(Recompute::full, plain), 2 * sbh);
      EXPECT_DOUBLE_EQ(bytes(Recompute::full, sequence), 2 * sbh / t);
    }
  }
}

TEST(TensorActivations, OfALlamaDivideAllButTheNorms) {
  const TransformerSpec model = llama_3_8b();
  const double s = 8192, h = 4096, kv = 1024, f = 14336;
  const double divided = 2 * s * (2 * h + 2 * kv + 3 * f);
  EXPECT_DOUBLE_EQ(model.layer_activation_bytes(1, Recompute::none, {4, false}),
                   8 * s * h + divided / 4);
  EXPECT_DOUBLE_EQ(model.layer_activation_bytes(1, Recompute::none, {4, true}),
                   (8 * s * h + divided) / 4);
}

TEST(TensorActivations, EndsOfTheModelAreDividedByVocabulary) {
  const auto c = costs(gpt3(), {48, 48}, {8, false});
  const double s = 2048, h = 12288;
  const double layer = s * h * (10 + 24.0 / 8 + 5 * 96 * s / (h * 8));
  EXPECT_EQ(c[1].activation_bytes, std::llround(48 * layer + 4 * s * 51200 / 8 + 4 * s * h));
  EXPECT_EQ(c[1].forward_workspace_bytes, std::llround(6 * s * 51200 / 8));
}

TEST(TensorActivations, SequenceParallelismNeedsRoomForOneGatheredInput) {
  EXPECT_EQ(costs(gpt3(), {48, 48}, {8, true})[0].forward_workspace_bytes, 2 * 2048 * 12288);
}

TEST(TensorActivations, MessagesAreWholeUnlessTheSequenceIsDivided) {
  EXPECT_EQ(costs(gpt3(), {48, 48}, {8, false})[0].output_bytes, 2 * 2048 * 12288);
  EXPECT_EQ(costs(gpt3(), {48, 48}, {8, true})[0].output_bytes, 2 * 2048 * 12288 / 8);
}

// Traffic
// ------------------------------------------------------------------------------------------

constexpr std::int64_t kX = 2LL * 2048 * 12288;  // s b h elements of 2 bytes

TEST(TensorTraffic, IsTwoAllReducesALayerEachWay) {
  const auto c = costs(gpt3(), {32, 32, 32}, {8, false});
  EXPECT_EQ(c[1].ops[kF].recipe, all_reduces(64 * kX, 64));
  EXPECT_EQ(c[1].ops[kB].recipe, all_reduces(64 * kX, 64));
  EXPECT_EQ(c[1].ops[kI].recipe, all_reduces(64 * kX, 64));
  EXPECT_EQ(c[1].ops[kW].recipe, Recipe{});
}

TEST(TensorTraffic, EmbeddingAndHeadHaveTheirOwn) {
  const auto c = costs(gpt3(), {32, 32, 32}, {8, false});
  EXPECT_EQ(c[0].ops[kF].recipe, all_reduces(65 * kX, 65));
  EXPECT_EQ(c[0].ops[kB].recipe, all_reduces(64 * kX, 64));
  EXPECT_EQ(c[2].ops[kF].recipe, all_reduces(64 * kX + 3LL * 4 * 2048, 67));
  EXPECT_EQ(c[2].ops[kI].recipe, all_reduces(65 * kX, 65));
}

TEST(TensorTraffic, RecomputedLayersRepeatThatOfTheForward) {
  const auto full = costs(gpt3(), {32, 32, 32}, {8, false}, Recompute::full);
  EXPECT_EQ(full[1].ops[kF].recipe, all_reduces(64 * kX, 64));
  EXPECT_EQ(full[1].ops[kB].recipe, all_reduces(128 * kX, 128));
  // Attention by itself exchanges nothing.
  const auto selective = costs(gpt3(), {32, 32, 32}, {8, false}, Recompute::selective);
  EXPECT_EQ(selective[1].ops[kB].recipe, all_reduces(64 * kX, 64));
}

/// So many all-gathers and reduce-scatters of x, and all-reduces of the LM head's numbers.
void expect(const Recipe& recipe, int gathers, int scatters, int head = 0) {
  ByCollective<std::int64_t> bytes{}, calls{};
  for (const Segment& s : recipe.segments) {
    if (s.lane != Lane::exchange) continue;
    bytes[static_cast<std::size_t>(s.what)] += s.bytes;
    calls[static_cast<std::size_t>(s.what)] += s.calls;
  }
  EXPECT_EQ(bytes, (ByCollective<std::int64_t>{head * 4LL * 2048, gathers * kX, scatters * kX}));
  EXPECT_EQ(calls, (ByCollective<std::int64_t>{head, gathers, scatters, 0}));
}

TEST(TensorTraffic, SequenceParallelismGathersInputsOnceMoreForTheWeights) {
  const auto c = costs(gpt3(), {32, 32, 32}, {8, true});
  expect(c[1].ops[kF].recipe, 64, 64);
  expect(c[1].ops[kI].recipe, 64, 64);
  expect(c[1].ops[kW].recipe, 64, 0);
  expect(c[1].ops[kB].recipe, 128, 64);
  expect(c[0].ops[kF].recipe, 64, 65);  // the embedding
  expect(c[0].ops[kI].recipe, 64, 64);
  expect(c[0].ops[kW].recipe, 65, 0);
  expect(c[2].ops[kF].recipe, 65, 64, 3);  // the LM head
  expect(c[2].ops[kI].recipe, 64, 65);
  expect(c[2].ops[kW].recipe, 65, 0);
}

TEST(TensorTraffic, GathersBeforeItComputesAndScattersAfterIt) {
  const Recipe forward = costs(gpt3(), {32, 32, 32}, {8, true})[1].ops[kF].recipe;
  EXPECT_TRUE(forward.serial());
  EXPECT_EQ(forward.times, 64);
  ASSERT_EQ(forward.segments.size(), 3U);
  EXPECT_EQ(forward.segments[0].what, Collective::all_gather);
  EXPECT_EQ(forward.segments[1].share, 1);
  EXPECT_EQ(forward.segments[2].what, Collective::reduce_scatter);
}

/// What of an op's exchanges is exposed where a byte takes so many seconds.
double exposed(const OpCost& op, double s_per_byte) {
  return exposed_s(op.recipe, op.seconds,
                   [&](const Segment& s) { return s_per_byte * static_cast<double>(s.bytes); });
}

TEST(TensorTraffic, GoesBesideSevenEighthsOfTheProductsOfEightRanks) {
  const auto after = costs(gpt3(), {32, 32, 32}, {8, true}),
             beside = costs(gpt3(), {32, 32, 32}, {8, true, false, true});
  const double products = 6.0 * 12288 / (6.0 * 12288 + 2048);  // of a layer's FLOPs
  for (const int kind : {kF, kB, kI, kW}) {
    const OpCost &before = after[1].ops[static_cast<std::size_t>(kind)],
                 &op = beside[1].ops[static_cast<std::size_t>(kind)];
    EXPECT_EQ(op.seconds, before.seconds);
    for (const Collective what : kCollectives)
      EXPECT_EQ(op.recipe.bytes(Axis::tensor, what), before.recipe.bytes(Axis::tensor, what));
    const auto gathers = static_cast<double>(op.recipe.bytes(Axis::tensor, Collective::all_gather)),
               scatters =
                   static_cast<double>(op.recipe.bytes(Axis::tensor, Collective::reduce_scatter));
    for (const double share : {0.1, 0.5, 1.0, 3.0, 20.0}) {
      const double s_per_byte = share * op.seconds / (gathers + scatters);
      // W has no attention, I twice F's: half of a backward's products are in each.
      const double flops = kind == kI   ? products / (products + 2 * (1 - products))
                           : kind == kW ? 1
                                        : products;
      const double window = 7.0 / 8 * flops * op.seconds;
      const auto sticks_out = [&](double bytes) {
        return std::max(0.0, s_per_byte * bytes - window * bytes / (gathers + scatters));
      };
      EXPECT_NEAR(exposed(op, s_per_byte), sticks_out(gathers) + sticks_out(scatters),
                  1e-3 * op.seconds)
          << kind << " " << share;
      EXPECT_NEAR(exposed(before, s_per_byte), share * op.seconds, 1e-9 * op.seconds);
    }
  }
  // What embedding and LM head exchange stays exposed.
  EXPECT_GT(exposed(beside[0].ops[kF], 1e-15), 0);
  EXPECT_GT(exposed(beside[2].ops[kF], 1e-15), 0);
}

TEST(TensorTraffic, MessagesThatAreDividedAreGathered) {
  const auto c = costs(gpt3(), {32, 32, 32}, {8, false, true});
  const auto gathered = [](const Recipe& recipe) {
    return recipe.bytes(Axis::tensor, Collective::all_gather);
  };
  EXPECT_EQ(gathered(c[0].ops[kF].recipe), 0);
  EXPECT_EQ(gathered(c[1].ops[kF].recipe), kX);
  EXPECT_EQ(gathered(c[1].ops[kI].recipe), kX);
  EXPECT_EQ(gathered(c[2].ops[kI].recipe), 0);
  EXPECT_EQ(c[1].ops[kF].recipe.bytes(Axis::tensor, Collective::all_reduce), 64 * kX);
}

TEST(TensorTraffic, GrowsWithTheMicrobatchAndNotWithTheDegree) {
  const auto two = costs(gpt3(), {96}, {2, false}), eight = costs(gpt3(), {96}, {8, false});
  for (std::size_t kind = 0; kind < two[0].ops.size(); ++kind)
    EXPECT_EQ(two[0].ops[kind].recipe, eight[0].ops[kind].recipe) << kind;
  const auto of_three = costs(gpt3(), {96}, {8, false}, Recompute::none, 3);
  EXPECT_EQ(of_three[0].ops[kF].recipe.bytes(Axis::tensor, Collective::all_reduce),
            3 * eight[0].ops[kF].recipe.bytes(Axis::tensor, Collective::all_reduce));
  EXPECT_EQ(of_three[0].ops[kF].recipe.times, eight[0].ops[kF].recipe.times);
}

TEST(TensorTraffic, OfAWholeStageIsNone) {
  for (const StageCosts& c : costs(gpt3(), {48, 48}, {})) {
    for (const OpCost& op : c.ops) EXPECT_EQ(op.recipe, Recipe{});
  }
}

// Times
// --------------------------------------------------------------------------------------------

TEST(TensorTimes, AreTheWholeModelsDividedWhereEfficiencyIsConstant) {
  const auto one = costs(gpt3(), {48, 48}, {}), eight = costs(gpt3(), {48, 48}, {8, false});
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_DOUBLE_EQ(8 * eight[i][OpKind::forward].seconds, one[i][OpKind::forward].seconds);
    EXPECT_DOUBLE_EQ(8 * eight[i][OpKind::backward].seconds, one[i][OpKind::backward].seconds);
    EXPECT_DOUBLE_EQ(8 * eight[i][OpKind::forward].flops, one[i][OpKind::forward].flops);
    EXPECT_NEAR(
        eight[i][OpKind::backward_input].seconds + eight[i][OpKind::backward_weight].seconds,
        eight[i][OpKind::backward].seconds, 1e-12 * eight[i][OpKind::backward].seconds);
  }
}

TEST(TensorTimes, NarrowerMatricesAreAsEfficientAsThoseOfTheSameSize) {
  DeviceSpec d = plain_device();
  d.efficiency = {{6144, 0.3}, {12288, 0.6}};
  const auto of = [&](int degree) {
    return stage_costs(gpt3(), d, {96}, {.tensor = {degree, false}})[0][OpKind::forward].seconds;
  };
  EXPECT_DOUBLE_EQ(4 * of(4), 2 * of(1)) << "12288 / sqrt(4) = 6144";
}

TEST(TensorTimes, NormsTakeTheirWholeTimeUnlessTheSequenceIsDivided) {
  DeviceSpec d = plain_device();
  d.memory_bytes_per_s = 2e12;
  d.memory_efficiency = 0.5;
  const auto of = [&](bool sequence, Recompute recompute) {
    return stage_costs(gpt3(), d, {96}, {.recompute = recompute, .tensor = {8, sequence}})[0];
  };
  // 10 elements and 2 masks, of which 1/8 is in the FLOPs' time.
  const double repeated = 96 * 7.0 / 8 * 22.0 * 2048 * 12288 / 1e12;
  const StageCosts plain = of(false, Recompute::none), divided = of(true, Recompute::none);
  EXPECT_NEAR(plain[OpKind::forward].seconds - divided[OpKind::forward].seconds, repeated,
              1e-9 * plain[OpKind::forward].seconds);
  EXPECT_NEAR(plain[OpKind::backward].seconds - divided[OpKind::backward].seconds, repeated,
              1e-9 * plain[OpKind::backward].seconds);
  EXPECT_DOUBLE_EQ(plain[OpKind::backward_weight].seconds,
                   divided[OpKind::backward_weight].seconds);
  EXPECT_NEAR(of(false, Recompute::full)[OpKind::backward].seconds -
                  of(true, Recompute::full)[OpKind::backward].seconds,
              2 * repeated, 1e-9 * plain[OpKind::backward].seconds);
}

TEST(TensorTimes, LaunchesAreNotDivided) {
  DeviceSpec d = plain_device();
  d.peak_flops_per_s["fp16"] = 1e30;
  d.launch_s = 1e-6;
  EXPECT_EQ(stage_costs(gpt3(), d, {96}, {.tensor = {8, false}})[0][OpKind::forward].seconds,
            stage_costs(gpt3(), d, {96}, {})[0][OpKind::forward].seconds);
}

// Distributed optimizer
// ----------------------------------------------------------------------------

// 18 bytes per parameter become 6 + 12/d (Megatron Core's user guide, distributed optimizer).
TEST(DistributedOptimizer, DividesTheStateAmongReplicas) {
  const StageCosts whole = costs(gpt_small(), {12}, {})[0];
  const StageCosts shared = costs(gpt_small(), {12}, {}, Recompute::none, 1, 4)[0];
  const std::int64_t n = gpt_small().parameters();
  EXPECT_EQ(shared.weight_bytes + shared.gradient_bytes, 6 * n);
  EXPECT_EQ(shared.optimizer_bytes, 12 * n / 4);
  EXPECT_EQ(whole.optimizer_bytes, 12 * n);
}

// A reduce-scatter of 4 bytes and an all-gather of 2 per parameter, each half of an all-reduce.
TEST(DistributedOptimizer, ScattersGradientsAndGathersWeights) {
  const StageCosts shared = costs(gpt_small(), {12}, {}, Recompute::none, 1, 4)[0];
  EXPECT_EQ(shared.reduced_bytes, 3 * gpt_small().parameters());
}

TEST(DistributedOptimizer, StepsOverAPartEach) {
  DeviceSpec d = plain_device();
  d.memory_bytes_per_s = 1e12;
  d.memory_efficiency = 0.5;
  const auto step_s = [&](int shards) {
    return stage_costs(gpt_small(), d, {12}, {.sharding = zero_1(shards)})[0].step_s;
  };
  EXPECT_NEAR(step_s(4), step_s(1) / 4, 1e-9 * step_s(1));
}

}  // namespace
}  // namespace penstock::tensor_parallel_test
