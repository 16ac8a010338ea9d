// SPDX-License-Identifier: Apache-2.0
// Parameters, FLOPs and activation bytes against the published formulas, worked out by hand.
#include "tests/models/hand_made.hpp"

#include <gtest/gtest.h>

namespace penstock::transformer_test {
namespace {

constexpr double kH = 768, kS = 1024, kA = 12, kV = 50304;

// Parameters
// ---------------------------------------------------------------------------------------

TEST(Transformer, GptLayerHas12HSquaredPlus13HParameters) {
  for (const std::int64_t h : {256, 768, 2304, 12288}) {
    TransformerSpec t = gpt_small();
    t.hidden_size = h;
    t.num_attention_heads = t.num_query_groups = 16;
    t.ffn_hidden_size = 4 * h;
    EXPECT_EQ(t.layer_parameters(), 12 * h * h + 13 * h) << h;
    EXPECT_EQ(t.layer_matrix_parameters(), 12 * h * h) << h;
  }
}

TEST(Transformer, GptSmallHas124MillionParameters) {
  // 12 (12 h^2 + 13 h) + (V + s) h + final norm 2h; the tied head is the embedding.
  EXPECT_EQ(gpt_small().parameters(), 12 * 7'087'872 + (50'304 + 1'024) * 768 + 2 * 768);
  EXPECT_EQ(gpt_small().parameters(), 124'475'904);
}

TEST(Transformer, UntiedHeadAddsItsMatrix) {
  TransformerSpec untied = gpt_small();
  untied.tie_embeddings = false;
  EXPECT_EQ(untied.parameters() - gpt_small().parameters(), 50'304 * 768);
}

TEST(Transformer, BertCountsLikeGpt) {
  TransformerSpec bert = gpt_small();
  bert.family = Family::bert;
  EXPECT_EQ(bert.parameters(), gpt_small().parameters());
  EXPECT_EQ(bert.layer_forward_flops(4), gpt_small().layer_forward_flops(4));
}

TEST(Transformer, Gpt3Has175BillionParameters) {
  TransformerSpec t = gpt_small();
  t.num_layers = 96;
  t.hidden_size = 12288;
  t.ffn_hidden_size = 4 * 12288;
  t.vocab_size = 51200;
  t.seq_length = 2048;
  // SC'21, equation 2: 12 l h^2 (1 + 13/(12h) + (V+s)/(12lh)).
  const double p = 12.0 * 96 * 12288 * 12288 *
                   (1 + 13.0 / (12 * 12288) + (51200.0 + 2048) / (12.0 * 96 * 12288));
  EXPECT_NEAR(static_cast<double>(t.parameters()), p, 2.5 * 12288);  // but for the final norm
  EXPECT_NEAR(static_cast<double>(t.parameters()) / 1e9, 174.6, 0.05);
}

TEST(Transformer, LlamaWithGroupedQueriesHasItsPublishedParameters) {
  const TransformerSpec t = llama_3_8b();
  EXPECT_EQ(t.key_size(), 1024);  // 8 groups of 128
  // Queries and output h^2 each, keys and values h * 1024 each, three MLP matrices, two norms.
  EXPECT_EQ(t.layer_parameters(), 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096);
  EXPECT_EQ(t.parameters(), 8'030'261'248);  // as the published checkpoint
}

TEST(Transformer, Llama70BHasItsPublishedParameters) {
  TransformerSpec t = llama_3_8b();
  t.num_layers = 80;
  t.hidden_size = 8192;
  t.num_attention_heads = 64;
  t.ffn_hidden_size = 28672;
  EXPECT_EQ(t.parameters(), 70'553'706'496);
}

TEST(Transformer, AsManyGroupsAsHeadsIsPlainAttention) {
  TransformerSpec t = llama_3_8b();
  t.num_query_groups = t.num_attention_heads;
  EXPECT_EQ(t.key_size(), t.hidden_size);
  EXPECT_EQ(t.layer_matrix_parameters(), 4 * 4096 * 4096 + 3 * 4096 * 14336);
}

/// A llama with other facts.
TransformerSpec llama_with(auto&& change) {
  TransformerSpec t = llama_3_8b();
  LayerForm form = t.form();
  change(t, form);
  t.own_form = form;
  return t;
}

TEST(Transformer, EachFactOfALayerHasItsParameters) {
  const std::int64_t plain = llama_3_8b().layer_parameters();
  const auto more = [&](auto&& change) { return llama_with(change).layer_parameters() - plain; };
  using T = TransformerSpec;
  using F = LayerForm;
  EXPECT_EQ(more([](T& t, F&) { t.head_dim = 64; }), -2 * 4096 * (2048 + 512));
  EXPECT_EQ(more([](T&, F& f) { f.gated_mlp = false; }), -4096 * 14336);
  EXPECT_EQ(more([](T&, F& f) { f.norms = 4; }), 2 * 4096);
  EXPECT_EQ(more([](T&, F& f) { f.norm = Norm::layer; }), 2 * 4096);
  EXPECT_EQ(more([](T&, F& f) { f.norm = Norm::bare; }), -2 * 4096);
  EXPECT_EQ(more([](T&, F& f) { f.qk_norm = QueryKeyNorm::head; }), 2 * 128);
  EXPECT_EQ(more([](T&, F& f) { f.qk_norm = QueryKeyNorm::width; }), 4096 + 1024);
  EXPECT_EQ(more([](T&, F& f) { f.biases = Biases::qkv; }), 4096 + 2 * 1024);
  EXPECT_EQ(more([](T&, F& f) { f.biases = Biases::attention; }), 4096 + 2 * 1024 + 4096);
  EXPECT_EQ(more([](T&, F& f) { f.biases = Biases::mlp; }), 2 * 14336 + 4096);
  EXPECT_EQ(more([](T& t, F&) { t.num_query_groups = 1; }), -2 * 4096 * 7 * 128);
  EXPECT_EQ(more([](T&, F& f) { f.parallel_residual = true; }), 0);
}

TEST(Transformer, PositionsAndWhatIsBesideTheEmbeddingAreOfTheFirstStage) {
  const std::int64_t plain = llama_3_8b().embedding_parameters();
  const auto learned =
      llama_with([](TransformerSpec&, LayerForm& f) { f.positions = Positions::learned; });
  const auto extra = llama_with([](TransformerSpec& t, LayerForm&) { t.extra_parameters = 77; });
  EXPECT_EQ(learned.embedding_parameters() - plain, 8192 * 4096);
  EXPECT_EQ(extra.embedding_parameters() - plain, 77);
}

// FLOPs
// --------------------------------------------------------------------------------------------

TEST(Transformer, AWindowLeavesTheKeysWithinItToEveryQuery) {
  TransformerSpec t = llama_3_8b();
  t.seq_length = 8;
  t.sliding_window = 3;
  double pairs = 0;  // that a causal mask leaves: of query i its own key and two before
  for (int query = 0; query < 8; ++query) pairs += std::min(query + 1, 3);
  // Counted twice, as the whole square is; but for the diagonal, as there.
  EXPECT_NEAR(t.attention_pairs(), 2 * pairs, 3);
  EXPECT_EQ(t.attention_pairs(), 64 - 25);
  t.num_layers = 32;
  t.full_attention_every = 6;  // 5 of 32
  EXPECT_DOUBLE_EQ(t.attention_pairs(), 64 - 25.0 * 27 / 32);
  t.flash_attention = false;  // all are computed, and masked
  EXPECT_EQ(t.attention_pairs(), 64);
  t.flash_attention = true;
  t.sliding_window = 8;
  EXPECT_EQ(t.attention_pairs(), 64);
}

TEST(Transformer, HeadsOfAnotherWidthChangeAttentionAlone) {
  TransformerSpec t = llama_3_8b();
  t.head_dim = 256;
  EXPECT_DOUBLE_EQ(t.layer_attention_flops(1), 2 * llama_3_8b().layer_attention_flops(1));
  EXPECT_DOUBLE_EQ(t.head_forward_flops(1), llama_3_8b().head_forward_flops(1));
}

TEST(Transformer, GptLayerForwardIs24BshSquaredPlus4BsSquaredH) {
  for (const double b : {1.0, 8.0}) {
    const double flops = 24 * b * kS * kH * kH + 4 * b * kS * kS * kH;
    EXPECT_DOUBLE_EQ(gpt_small().layer_forward_flops(b), flops);
    EXPECT_DOUBLE_EQ(gpt_small().layer_attention_flops(b), 4 * b * kS * kS * kH);
    EXPECT_DOUBLE_EQ(gpt_small().layer_weight_flops(b), 24 * b * kS * kH * kH);
    EXPECT_DOUBLE_EQ(gpt_small().head_forward_flops(b), 2 * b * kS * kH * kV);
  }
}

TEST(Transformer, WholeModelAgreesWithMegatronsFormula) {
  // SC'21, equation 3, per sequence and without recomputation (72 instead of 96):
  // 72 b s l h^2 (1 + s/(6h) + V/(12 l h)).
  const TransformerSpec t = gpt_small();
  const double l = t.num_layers;
  const double forward = l * t.layer_forward_flops(1) + t.head_forward_flops(1);
  const double published = 72 * kS * l * kH * kH * (1 + kS / (6 * kH) + kV / (12 * l * kH));
  EXPECT_NEAR(3 * forward / published, 1, 1e-12);
}

TEST(Transformer, LlamaLayerForwardIsTwiceTheMatricesPlusAttention) {
  const TransformerSpec t = llama_3_8b();
  const double matrices = 2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 3.0 * 4096 * 14336;
  EXPECT_DOUBLE_EQ(t.layer_forward_flops(2),
                   2 * 2 * 8192 * matrices + 4.0 * 2 * 8192 * 8192 * 4096);
}

// Activations
// --------------------------------------------------------------------------------------

TEST(Transformer, GptLayerKeepsSbhTimes34Plus5AsOverH) {
  const TransformerSpec t = gpt_small();
  for (const double b : {1.0, 4.0}) {
    EXPECT_DOUBLE_EQ(t.layer_activation_bytes(b, Recompute::none),
                     kS * b * kH * (34 + 5 * kA * kS / kH));
  }
}

TEST(Transformer, SelectiveRecomputationKeeps34Sbh) {
  const TransformerSpec t = gpt_small();
  EXPECT_DOUBLE_EQ(t.layer_activation_bytes(4, Recompute::selective), 34 * kS * 4 * kH);
}

TEST(Transformer, FullRecomputationKeepsTheInput2Sbh) {
  const TransformerSpec t = gpt_small();
  EXPECT_DOUBLE_EQ(t.layer_activation_bytes(4, Recompute::full), 2 * kS * 4 * kH);
  EXPECT_DOUBLE_EQ(t.layer_input_bytes(4), 2 * kS * 4 * kH);
}

TEST(Transformer, FlashAttentionNeverKeepsTheProbabilities) {
  TransformerSpec t = gpt_small();
  t.flash_attention = true;
  EXPECT_DOUBLE_EQ(t.layer_activation_bytes(4, Recompute::none), 34 * kS * 4 * kH);
}

TEST(Transformer, SinglePrecisionDoublesAllButTheDropoutMasks) {
  TransformerSpec t = gpt_small();
  t.compute_type = "fp32";
  EXPECT_EQ(t.element_bytes(), 4);
  // Of the 34 two are masks of one byte; of the 5 one is.
  EXPECT_DOUBLE_EQ(t.layer_activation_bytes(1, Recompute::none), kS * kH * (66 + 9 * kA * kS / kH));
  EXPECT_DOUBLE_EQ(t.layer_input_bytes(1), 4 * kS * kH);
  t.compute_type = "tf32";
  EXPECT_EQ(t.element_bytes(), 4);
  t.compute_type = "bf16";
  EXPECT_EQ(t.element_bytes(), 2);
}

TEST(Transformer, LlamaLayerKeepsNormsQueriesKeysValuesAndThreeMlpTensors) {
  const TransformerSpec t = llama_3_8b();
  // 16 bits: norm inputs and outputs 4h, queries and attention output 2h, keys and values, 3f.
  EXPECT_DOUBLE_EQ(t.layer_activation_bytes(1, Recompute::none),
                   2.0 * 8192 * (6 * 4096 + 2 * 1024 + 3 * 14336));
}

TEST(Transformer, EachFactOfALayerKeepsItsActivations) {
  const auto kept = [](const TransformerSpec& t) {
    return t.layer_activation_bytes(1, Recompute::none) / (2.0 * 8192);  // elements per token
  };
  const double plain = kept(llama_3_8b());
  const auto more = [&](auto&& change) { return kept(llama_with(change)) - plain; };
  using T = TransformerSpec;
  using F = LayerForm;
  EXPECT_EQ(more([](T& t, F&) { t.head_dim = 256; }), 2 * 4096 + 2 * 1024);
  EXPECT_EQ(more([](T&, F& f) { f.gated_mlp = false; }), -14336);
  EXPECT_EQ(more([](T&, F& f) { f.norms = 4; }), 2 * 4096);
  EXPECT_EQ(more([](T&, F& f) { f.qk_norm = QueryKeyNorm::head; }), 4096 + 1024);
  EXPECT_EQ(more([](T&, F& f) { f.dropout = true; }), 4096);  // two masks of a byte
  EXPECT_EQ(more([](T&, F& f) { f.parallel_residual = true; }), -4096);
  EXPECT_EQ(more([](T&, F& f) { f.parallel_residual = true, f.norms = 1; }), -2 * 4096);
}

TEST(Transformer, LogitsAreAnFp32SoftmaxAndItsWorkspace) {
  const TransformerSpec t = gpt_small();
  EXPECT_DOUBLE_EQ(t.logits_bytes(2), 4 * 2 * kS * kV);
  EXPECT_DOUBLE_EQ(t.logits_workspace_bytes(2), (4 + 2) * 2 * kS * kV);
}

TEST(Transformer, WhatIsKeptFromIToWIsAtMostWhatSelectiveRecomputationKeeps) {
  for (const TransformerSpec& t : {gpt_small(), llama_3_8b()}) {
    EXPECT_LE(t.layer_after_input_bytes(3), t.layer_activation_bytes(3, Recompute::selective));
    EXPECT_GT(t.layer_after_input_bytes(3), t.layer_input_bytes(3));
  }
  // Korthikanti's 34 sbh less the two dropout masks.
  EXPECT_DOUBLE_EQ(gpt_small().layer_after_input_bytes(1), 32 * kS * kH);
  TransformerSpec single = gpt_small();
  single.compute_type = "fp32";
  EXPECT_DOUBLE_EQ(single.layer_after_input_bytes(1), 64 * kS * kH);
}

}  // namespace
}  // namespace penstock::transformer_test
