// SPDX-License-Identifier: Apache-2.0
// Layers of experts and of latent attention against sums worked out by hand, and stages whose
// layers are of two kinds.
#include "models/layer/module.hpp"
#include "models/matrix_optimizers.hpp"
#include "models/stage_costs.hpp"
#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

namespace penstock::experts_test {
namespace {

constexpr std::int64_t kH = 64, kF = 256, kW = 32, kS = 128, kV = 1000, kE = 8, kK = 2;

/// Six layers, the first of which is dense; eight experts of 32 columns, two for a token, and a
/// shared one of 48.
TransformerSpec mixture() {
  TransformerSpec t = llama_3_8b();
  t.num_layers = 6;
  t.hidden_size = kH;
  t.num_attention_heads = t.num_query_groups = 4;
  t.ffn_hidden_size = kF;
  t.vocab_size = kV;
  t.seq_length = kS;
  t.experts = Experts{.count = kE, .top_k = kK, .width = kW, .shared_width = 48, .first_dense = 1};
  return t;
}

/// The same without experts.
TransformerSpec without_experts() {
  TransformerSpec t = mixture();
  t.experts.reset();
  return t;
}

constexpr std::int64_t kAttention = 4 * kH * kH + 2 * kH;  // with both norms
constexpr std::int64_t kExpert = 3 * kH * kW, kShared = 3 * kH * 48, kRouter = kH * kE;

TEST(Experts, ParametersCountAllAndActiveOnesThoseThatATokenUses) {
  const TransformerSpec model = mixture();
  const std::int64_t dense = kAttention + 3 * kH * kF;
  const std::int64_t mixed = kAttention + kE * kExpert + kShared + kRouter;
  EXPECT_EQ(Layer(model, LayerKind::dense).parameters({}), dense);
  EXPECT_EQ(Layer(model).parameters({}), mixed);
  EXPECT_EQ(model.parameters(), dense + 5 * mixed + 2 * kV * kH + kH);
  EXPECT_EQ(model.active_parameters(), model.parameters() - 5 * (kE - kK) * kExpert);
  EXPECT_EQ(without_experts().active_parameters(), without_experts().parameters());
}

TEST(Experts, FlopsAreThoseOfTheExpertsThatATokenUses) {
  const double b = 3, s = kS, h = kH;
  const double attention = 4 * b * s * s * h;
  const double dense = 2 * b * s * (4 * h * h + 3 * h * kF) + attention;
  const double mixed = 2 * b * s * (4 * h * h + kK * kExpert + kShared + kRouter) + attention;
  EXPECT_DOUBLE_EQ(mixture().layer_forward_flops(b), mixed);
  EXPECT_DOUBLE_EQ(mixture().forward_flops(b), dense + 5 * mixed + 2 * b * s * h * kV);
}

TEST(Experts, EachFactOfThemHasItsParameters) {
  const std::int64_t plain = Layer(mixture()).parameters({});
  const auto more = [&](auto&& change) {
    TransformerSpec t = mixture();
    change(t, *t.experts);
    return Layer(t).parameters({}) - plain;
  };
  EXPECT_EQ(more([](auto&, Experts& e) { e.shared_width = 0; }), -kShared);
  EXPECT_EQ(more([](auto&, Experts& e) { e.shared_gate = true; }), kH);
  EXPECT_EQ(more([](auto&, Experts& e) { e.router_bias = true; }), kE);
  EXPECT_EQ(more([](auto&, Experts& e) { e.top_k = 4; }), 0);
  // Biases of both matrices of each expert and of the shared one.
  EXPECT_EQ(more([](TransformerSpec& t, auto&) {
              t.own_form = t.form();
              t.own_form->biases = Biases::mlp;
            }),
            kE * (2 * kW + kH) + 2 * 48 + kH);
  EXPECT_EQ(more([](TransformerSpec& t, auto&) {
              t.own_form = t.form();
              t.own_form->sinks = true;
            }),
            4);
}

TEST(Experts, LayersWithThemFollowTheDenseOnesOrTakeTurns) {
  TransformerSpec model = mixture();
  EXPECT_FALSE(model.has_experts(0));
  EXPECT_TRUE(model.has_experts(1));
  EXPECT_EQ(model.expert_layers(0, 6), 5);
  EXPECT_EQ(model.expert_layers(0, 2), 1);
  model.experts->every = 2;  // as Llama 4 Maverick's layers 1, 3, 5 ...
  EXPECT_FALSE(model.has_experts(0));
  EXPECT_TRUE(model.has_experts(1));
  EXPECT_EQ(model.expert_layers(0, 6), 3);
}

TEST(Experts, AreDividedAmongTheirOwnGpusAndTheRestAmongTheTensorRanks) {
  const TransformerSpec model = mixture();
  const TensorParallel tensor{4, true};
  const std::int64_t rest = (4 * kH * kH + kShared) / 4 + 2 * kH + kRouter;
  EXPECT_EQ(Layer(model).parameters(tensor), rest + kE * kExpert);
  const Layer divided(model, {4, 2});
  EXPECT_EQ(divided.expert_parameters(), kE * kExpert / 8);
  EXPECT_EQ(divided.parameters(tensor), rest + kE * kExpert / 8);
  EXPECT_EQ(stage_expert_parameters(model, {0, 6, true, true}, {4, 2}), 5 * kE * kExpert / 8);
  // Whoever shares the experts, all ranks together multiply as often.
  EXPECT_DOUBLE_EQ(divided.work(1, tensor).product_flops, Layer(model).work(1, {}).product_flops);
}

TEST(Experts, TheRouterRunsOnEachTensorRankUnlessTheyDivideTheSequence) {
  const auto flops = [](const TensorParallel& tensor) {
    return Layer(mixture()).work(1, tensor).product_flops;
  };
  EXPECT_DOUBLE_EQ(flops({4, true}), flops({}));
  EXPECT_DOUBLE_EQ(flops({4, false}) - flops({}), 3 * 2.0 * kS * kRouter);
}

TEST(Experts, KeepWhatTheirTokensMakeOnce) {
  TransformerSpec model = mixture();
  const double dense = Layer(model, LayerKind::dense).kept(1, {}).bytes();
  const double mixed = Layer(model).kept(1, {}).bytes();
  // Of a token, in elements of 2 bytes: its copies for the experts, their two columns (SwiGLU) and
  // what the activation makes of them; scores and probabilities of 4 bytes.
  const double routed = kK * (kH + 3 * kW) + 4 * kE, shared = 3 * 48;
  EXPECT_DOUBLE_EQ(mixed - dense, 2 * kS * (routed + shared - 3 * kF));
  EXPECT_DOUBLE_EQ(Layer(model).kept(1, {}, LayerPart::moe).bytes(),
                   mixed - 2 * kS * (routed + shared));
  EXPECT_DOUBLE_EQ(Layer(model).kept(1, {}, LayerPart::shared_experts).bytes(),
                   mixed - 2 * kS * shared);
  EXPECT_DOUBLE_EQ(Layer(model).kept(1, {}, LayerPart::moe_act).bytes(), mixed - 2 * kS * kK * kW);
  EXPECT_DOUBLE_EQ(Layer(model).kept(1, {}, LayerPart::mlp).bytes(), mixed) << "of dense layers";
  EXPECT_DOUBLE_EQ(Layer(model).kept(1, {4, true}).bytes(), mixed / 4);
}

/// DeepSeek-V2's attention, small: queries of 3 parts without positions and 1 with.
TransformerSpec latent(std::int64_t q_rank) {
  TransformerSpec t = without_experts();
  t.latent = LatentAttention{
      .q_rank = q_rank, .kv_rank = 20, .rope_dim = 4, .nope_dim = 12, .value_dim = 10};
  return t;
}

/// Copies that came by GPUs are read and written once more on either side of the products; one
/// expert alone has nothing to sort.
TEST(Experts, SortTheirTokensBehindAnAllToAll) {
  const auto moved = [](const ExpertParallel& expert) {
    return Layer(mixture(), LayerKind::experts, expert).work(1, {}).moved_bytes;
  };
  const double sorted = moved({.degree = 4, .sorts = true}), plain = moved({.degree = 4});
  EXPECT_DOUBLE_EQ(sorted - plain, 2.0 * kS * 4 * kK * kH);
  EXPECT_EQ(moved({.degree = 8, .sorts = true}), moved({.degree = 8}));
}

TEST(LatentAttention, HasTheMatricesOfItsLatents) {
  const std::int64_t mlp = 3 * kH * kF + 2 * kH;
  const std::int64_t kv = kH * (20 + 4) + 20 + 20 * 4 * (12 + 10), out = 4 * 10 * kH;
  EXPECT_EQ(latent(0).layer_parameters(), mlp + kH * 4 * 16 + kv + out);
  EXPECT_EQ(latent(24).layer_parameters(), mlp + kH * 24 + 24 + 24 * 4 * 16 + kv + out);
  // Down products and norms of latents are whole on every tensor rank.
  EXPECT_EQ(
      latent(24).layer_parameters({2, true}),
      (3 * kH * kF + 24 * 4 * 16 + 20 * 4 * 22 + out) / 2 + kH * (24 + 24) + 24 + 20 + 2 * kH);
}

TEST(LatentAttention, MultipliesQueriesOfOneSizeAndValuesOfAnother) {
  const double b = 2, s = kS;
  EXPECT_DOUBLE_EQ(latent(0).layer_attention_flops(b), 2 * b * s * s * 4 * (16 + 10));
  EXPECT_DOUBLE_EQ(latent(24).layer_weight_flops(b),
                   2 * b * s * (kH * 24 + 24 * 64 + kH * 24 + 20 * 88 + 40 * kH + 3 * kH * kF));
}

TEST(LatentAttention, KeepsLatentsAndWhatIsMadeOfThem) {
  const double usual = Layer(without_experts()).kept(1, {}).bytes();
  const TransformerSpec model = latent(24);
  const double all = Layer(model).kept(1, {}).bytes();
  // Latents before and after their norms, the part with positions; queries, keys, values, output.
  const double latents = 2 * 24 + 2 * 20 + 4, made = 4 * (16 + 16 + 10), output = 4 * 10;
  EXPECT_DOUBLE_EQ(all - usual, 2 * kS * (latents + made + output - 4 * kH));
  EXPECT_DOUBLE_EQ(Layer(model).kept(1, {}, LayerPart::mla_up_proj).bytes(),
                   all - 2 * kS * (24 + 20 + made));
}

TEST(Prediction, OfAFurtherTokenIsALayerAProductAndAnotherPassOfTheHead) {
  TransformerSpec model = mixture();
  const std::int64_t before = model.parameters();
  const double flops = model.forward_flops(1);
  model.mtp_layers = 1;
  EXPECT_EQ(model.parameters() - before, Layer(model).parameters({}) + 2 * kH * kH + 3 * kH);
  EXPECT_DOUBLE_EQ(model.forward_flops(1) - flops,
                   model.layer_forward_flops(1) + 2.0 * kS * 2 * kH * kH + 2.0 * kS * kH * kV);
  // The last of several stages has a copy of the embedding for it; a single one does not.
  EXPECT_EQ(stage_parameters(model, {0, 6, true, true}), model.parameters());
  EXPECT_EQ(
      stage_parameters(model, {0, 3, true, false}) + stage_parameters(model, {3, 3, false, true}),
      model.parameters() + kV * kH);
}

/// A stage costs what its layers do, whatever kinds they are of.
TEST(StagesOfTwoKinds, AreSumsOverTheirLayers) {
  for (const int every : {1, 2}) {
    TransformerSpec model = mixture();
    model.experts->every = every;
    model.experts->first_dense = every == 1 ? 2 : 1;
    const StageCostOptions options{.microbatch_size = 2};
    const auto stages = stage_costs(model, plain_device(), {3, 3}, options);
    double flops = 0, parameters = 0, kept = 0;
    for (int layer = 0; layer < 3; ++layer) {
      const Layer one(model, model.kind_of(layer));
      const LayerWork work = one.work(2, {});
      flops += work.product_flops + work.attention_flops;
      parameters += static_cast<double>(one.parameters({}));
      kept += one.kept(2, {}).bytes();
    }
    EXPECT_DOUBLE_EQ(stages[0][OpKind::forward].flops, flops) << every;
    EXPECT_DOUBLE_EQ(stages[0][OpKind::backward].flops, 2 * flops) << every;
    EXPECT_NEAR(stages[0][OpKind::forward].seconds, flops / 1e12, 0.2 * flops / 1e12) << every;
    EXPECT_EQ(stages[0].weight_bytes, 2 * (std::llround(parameters) + kV * kH));
    EXPECT_NEAR(static_cast<double>(stages[0].activation_bytes), kept, 1) << every;
    // All layers together are the model.
    const auto whole = stage_costs(model, plain_device(), {6}, options);
    EXPECT_DOUBLE_EQ(whole[0][OpKind::forward].flops, model.forward_flops(2));
    EXPECT_EQ(whole[0].weight_bytes, 2 * model.parameters());
  }
}

TEST(StagesOfTwoKinds, RecomputeTheirFirstLayersWhicheverTheyAre) {
  const TransformerSpec model = mixture();  // a dense layer, then five with experts
  StageCostOptions options;
  const auto again = [&](const Recomputation& recompute) {
    options.recompute = recompute;
    return stage_costs(model, plain_device(), {6}, options)[0][OpKind::backward].again_flops;
  };
  const double dense = again(Recomputation::block(1)), two = again(Recomputation::block(2));
  EXPECT_DOUBLE_EQ(two - dense, model.layer_forward_flops(1));
  EXPECT_DOUBLE_EQ(again(Recompute::full), dense + 5 * (two - dense));
}

TEST(StagesOfTwoKinds, HaveAGradientForEachLayer) {
  const TransformerSpec model = mixture();
  const auto stages = stage_gradients(model, {plain_device(), plain_device()}, {2, 4}, {});
  ASSERT_EQ(stages[0].size(), 3U);
  EXPECT_EQ(stages[0][1].gradient_bytes, 4.0 * Layer(model, LayerKind::dense).parameters({}));
  EXPECT_EQ(stages[0][2].gradient_bytes, 4.0 * Layer(model).parameters({}));
  EXPECT_NE(stages[0][1].backward_s, stages[0][2].backward_s);
  EXPECT_EQ(stages[1].back().gradient_bytes, 4.0 * model.head_parameters());
}

TEST(Experts, KeepInFewBitsWhatActivationsReadAndAttentionMade) {
  TransformerSpec model = mixture();
  model.product_types = linear_layers_in(NumberType::fp8_block);
  const double wide = Layer(model).kept(2, {}).bytes();
  model.product_types.narrow_kept = true;
  const double narrow = Layer(model).kept(2, {}).bytes();
  // Of a token: inputs of activations in 8 bits for 16, attention's output in 12 for 16 and 8.
  double ups = 0, output = 0;
  const Layer layer(model);
  for (const Module& m : layer.modules()) {
    if (m.name == "experts_up" || m.name == "shared_up") ups += double(m.kept.divided);
    if (m.name == "projection") output += double(m.kept.divided);
  }
  EXPECT_GT(ups, 0);
  const double copy = model.operand_bytes(ProductClass::attention_projections);
  EXPECT_GT(copy, 1) << "with its scales";
  EXPECT_DOUBLE_EQ(wide - narrow,
                   2.0 * double(model.seq_length) * (ups + (2 + copy - 1.5) * output));
}

TEST(Experts, AreMatricesOfMuonEachOnItsOwn) {
  double elements = 0;
  int count = 0;
  for (const LayerMatrix& m : layer_matrices(mixture(), Layer(mixture()), {}, {4, 1})) {
    elements += m.count * m.elements();
    count += m.count;
  }
  EXPECT_EQ(count, 4 + 1 + 2 * kE / 4 + 2);
  EXPECT_DOUBLE_EQ(elements, 4 * kH * kH + kRouter + kE / 4 * kExpert + kShared);
}

}  // namespace
}  // namespace penstock::experts_test
