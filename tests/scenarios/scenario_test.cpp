// SPDX-License-Identifier: Apache-2.0
// What a scenario means: defaults, units, names of other tools, bases and files, published sizes.
#include "scenarios/megatron_arguments.hpp"
#include "scenarios/scenario.hpp"

#include "base/error.hpp"

#include "tests/scenarios/first_gpus.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

namespace penstock::scenario_test {
namespace {

const std::string kCosts =
    "model: {forward: 1 s, backward: 2 s, output: 48 MiB}\nschedule: gpipe\n";
const std::string kGpt = "model: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\nschedule: 1f1b\n";

std::string source() { return std::getenv("PENSTOCK_SOURCE"); }

Scenario scenario(const std::string& text) { return parse_scenario(text, "test.yaml"); }

/// A scenario whose files are found in tests/scenarios.
Scenario beside_tests(const std::string& text) {
  return parse_scenario(text, source() + "/tests/scenarios/test.yaml");
}

TransformerSpec model(const std::string& keys) {
  return *beside_tests("stack: none\nmodel: " + keys + "\ncluster: dgx-a100\nschedule: gpipe\n" +
                       "pipeline: {stages: 1}\n")
              .transformer;
}

void expect_same_shape(const TransformerSpec& a, const TransformerSpec& b) {
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
  EXPECT_EQ(a.num_query_groups, b.num_query_groups);
  EXPECT_EQ(a.ffn_hidden_size, b.ffn_hidden_size);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.seq_length, b.seq_length);
  EXPECT_EQ(a.tie_embeddings, b.tie_embeddings);
  EXPECT_EQ(a.flash_attention, b.flash_attention);
  EXPECT_EQ(a.parameters(), b.parameters());
}

// --- defaults -----------------------------------------------------------------------------------

TEST(ScenarioDefaults, AreThoseOfTheDocumentation) {
  const Scenario s = scenario(kCosts);
  EXPECT_EQ(s.name, "test");
  EXPECT_EQ(s.lowering.transfers, Transfers::overlapped);
  EXPECT_EQ(s.lowering.step_sync, StepSync::device);
  EXPECT_EQ(s.mesh.most(), 1);
  EXPECT_EQ(s.shape.batches, 1U);
  EXPECT_EQ(s.shape.microbatches_per_update, 1U);
  EXPECT_EQ(s.shape.depth, 1U);
  EXPECT_FALSE(s.shape.vertical_sync);
  EXPECT_EQ(s.microbatch_size, 1);
  EXPECT_EQ(s.recompute, Recompute::none);
  EXPECT_FALSE(s.samples_per_epoch.has_value());
  EXPECT_TRUE(s.notes.empty());
}

TEST(ScenarioDefaults, WithoutAClusterLinksAreFree) {
  const Scenario s = scenario(kCosts + "pipeline: {stages: 4, width: 2}\n");
  ASSERT_TRUE(s.cluster.link.has_value());
  EXPECT_EQ(s.cluster.link->latency_s, 0);
  EXPECT_TRUE(std::isinf(s.cluster.link->bytes_per_s));
  EXPECT_EQ(s.cluster.devices(), 8);
  EXPECT_EQ(s.cluster.device.capacity_bytes(), 0) << "unknown";
}

TEST(ScenarioDefaults, StagesAreTheWholeCluster) {
  EXPECT_EQ(scenario(kGpt).shape.depth, 8U);
  EXPECT_EQ(scenario(kGpt + "pipeline: {width: 2}\n").shape.depth, 4U);
  EXPECT_EQ(scenario(kCosts + "cluster: {devices: 5}\n").shape.depth, 5U);
}

TEST(ScenarioDefaults, StagesAreAsManyAsTheListedCosts) {
  const Scenario s =
      scenario("model: {forward: [1 s, 2 s, 3 s], backward: 2 s}\nschedule: gpipe\n");
  ASSERT_EQ(s.shape.depth, 3U);
  EXPECT_EQ(s.costs[2][OpKind::forward].seconds, 3);
  EXPECT_EQ(s.costs[2][OpKind::backward].seconds, 2);
}

TEST(ScenarioDefaults, LayersAreSplitEvenly) {
  EXPECT_EQ(scenario(kGpt).layers, std::vector<int>(8, 4));
}

TEST(ScenarioDefaults, OfAModelByShape) {
  const TransformerSpec gpt = model(
      "{num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 100, seq_length: 8}");
  EXPECT_EQ(gpt.family, Family::gpt);
  EXPECT_EQ(gpt.num_query_groups, 4);
  EXPECT_EQ(gpt.ffn_hidden_size, 256);
  EXPECT_TRUE(gpt.tie_embeddings);
  EXPECT_FALSE(gpt.flash_attention);
  EXPECT_EQ(gpt.compute_type, "bf16");
  const TransformerSpec llama = model(
      "{family: llama, num_layers: 2, hidden_size: 64, num_attention_heads: 4, "
      "vocab_size: 100, seq_length: 8}");
  EXPECT_FALSE(llama.tie_embeddings);
  EXPECT_TRUE(llama.flash_attention);
}

// --- examples of the documentation --------------------------------------------------------------

TEST(ScenarioExamples, RealModelOnRealMachines) {
  const Scenario s = scenario(
      "name: GPT-2.2B on one p3.16xlarge\nmodel: gpt-2.2b\nstack: none\ncluster: p3.16xlarge\n"
      "schedule: pipedream-2bw\nbatches: 4\n"
      "pipeline: {stages: 8, width: 1, microbatch_size: 8, microbatches: 8, recompute: full}\n");
  EXPECT_EQ(s.name, "GPT-2.2B on one p3.16xlarge");
  EXPECT_EQ(s.schedule->name, "pipedream-2bw");
  EXPECT_EQ(s.recompute, Recompute::full);
  EXPECT_EQ(s.samples_per_update(), 64);
  EXPECT_GT(s.costs[0][OpKind::forward].seconds, 0);
}

TEST(ScenarioExamples, AbstractCosts) {
  const Scenario s = scenario(
      "model: {forward: 1 s, backward: 2 s, output: 48 MiB}\n"
      "cluster: {devices: 4, link: {latency: 0.5 s, bandwidth: 25 GB/s}}\n"
      "transfers: overlapped\nschedule: gpipe\npipeline: {stages: 4, microbatches: 8}\n");
  EXPECT_EQ(s.costs.size(), 4U);
  EXPECT_EQ(s.costs[3][OpKind::forward].seconds, 1);
  EXPECT_EQ(s.costs[3][OpKind::backward_input].seconds, 1);
  EXPECT_EQ(s.costs[3][OpKind::backward_weight].seconds, 1);
  EXPECT_EQ(s.costs[3].output_bytes, 48 * 1024 * 1024);
  EXPECT_EQ(s.cluster.link->latency_s, 0.5);
  EXPECT_EQ(s.cluster.link->bytes_per_s, 25e9);
}

TEST(ScenarioExamples, ShippedScenariosAreReadable) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source() + "/scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_NO_THROW(load_scenario(entry.path().string())) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 1);
}

TEST(ScenarioExamples, ShippedModelsClustersAndDevicesAreReadable) {
  for (const auto& name : shipped_names("models")) EXPECT_NO_THROW(load_model(name)) << name;
  for (const auto& name : shipped_names("models/clusters"))
    EXPECT_NO_THROW(load_cluster(name)) << name;
  for (const auto& name : shipped_names("models/devices"))
    EXPECT_NO_THROW(load_device(name)) << name;
  for (const auto& name : shipped_names("models/stacks")) EXPECT_NO_THROW(load_stack(name)) << name;
}

// --- models -------------------------------------------------------------------------------------

struct PublishedCount {
  const char* model;
  double parameters;
  double within = 0.0005;  ///< relative; 0: exactly
};

// Counts of the published weights' files (huggingface.co, "safetensors" of the model's page), which
// we meet within 0.05 %, and of papers, to as many digits as they give.
constexpr PublishedCount kPublishedCounts[] = {
    {"llama-3-8b", 8'030'261'248, 0},
    {"llama-3-70b", 70'553'706'496, 0},
    {"llama-3.1-8b", 8'030'261'248, 0},
    {"llama-3.1-70b", 70'553'706'496, 0},
    {"llama-3.1-405b", 405'853'388'800, 0},
    {"llama-3.2-1b", 1'235'814'400, 0},
    {"llama-3.2-3b", 3'212'749'824, 0},
    {"qwen2.5-0.5b", 494'032'768, 0},
    {"qwen2.5-1.5b", 1'543'714'304, 0},
    {"qwen2.5-3b", 3'085'938'688, 0},
    {"qwen2.5-7b", 7'615'616'512, 0},
    {"qwen2.5-14b", 14'770'033'664, 0},
    {"qwen2.5-32b", 32'763'876'352, 0},
    {"qwen2.5-72b", 72'706'203'648, 0},
    {"qwen3-0.6b", 596'049'920, 0},
    {"qwen3-1.7b", 1'720'574'976, 0},
    {"qwen3-4b", 4'022'468'096, 0},
    {"qwen3-8b", 8'190'735'360, 0},
    {"qwen3-14b", 14'768'307'200, 0},
    {"qwen3-32b", 32'762'123'264, 0},
    {"mistral-7b", 7'241'732'096, 0},
    {"mistral-nemo-12b", 12'247'782'400, 0},
    {"gemma-2-2b", 2'614'341'888, 0},
    {"gemma-2-9b", 9'241'705'984, 0},
    {"gemma-2-27b", 27'227'128'320, 0},
    {"gemma-3-1b", 999'885'952, 0},
    // Of the whole less SigLIP's 416,866,032 and the projection into the text model (1152 times its
    // hidden size, and a norm of 1152).
    {"gemma-3-4b", 4'300'079'472 - 416'866'032 - 2'950'272, 0},
    {"gemma-3-12b", 12'187'325'040 - 416'866'032 - 4'424'832, 0},
    {"gemma-3-27b", 27'432'406'640 - 416'866'032 - 6'194'304, 0},
    {"phi-4", 14'659'507'200, 0},
    {"olmo-2-7b", 7'298'617'344, 0},
    {"olmo-2-13b", 13'716'198'400, 0},
    {"olmo-2-32b", 32'234'279'936, 0},
    {"gpt-neox-20b", 20'554'567'680, 0},
    {"nemotron-4-15b", 15.6e9, 0.003},  // three digits are published
    {"nemotron-4-340b", 9.4e9 + 331.6e9},
    // OPT: 64 layers of 12 h^2 + 13 h, tokens, 2048 positions, the last norm.
    {"opt-66b", 65'719'683'072, 0},
    {"gpt3-175b", 175e9, 0.005},
    {"gpt-355m", 355e6, 0.005},
    {"gpt-1.3b", 1.3e9, 0.02},
    {"gpt-2.2b", 2.2e9, 0.02},
    {"gpt-3.8b", 3.8e9, 0.02},
    {"bert-2.2b", 2.2e9, 0.05},
    {"bert-3.8b", 3.8e9, 0.05},
    // Of DeepSeek-V3, Kimi K2 and the GLMs without the numbers that balance their routers, one of
    // each expert of a layer, which no gradient trains, and without what predicts a further token.
    {"deepseek-v2-lite", 15'706'484'224, 0},
    {"deepseek-v2", 235'741'434'880, 0},
    {"deepseek-v3-671b", 671'026'419'200 - 58 * 256, 0},
    {"kimi-k2", 1'026'408'232'448 - 60 * 384, 0},
    {"qwen3-30b-a3b", 30'532'122'624, 0},
    {"qwen3-235b-a22b", 235'093'634'560, 0},
    {"mixtral-8x7b", 46'702'792'704, 0},
    {"mixtral-8x22b", 140'620'634'112, 0},
    {"gpt-oss-20b", 20'914'757'184, 0},
    {"gpt-oss-120b", 116'829'156'672, 0},
    {"llama-4-scout", 108'641'793'536 - 871'932'416, 0},     // the vision encoder's
    {"llama-4-maverick", 401'583'781'376 - 871'932'416, 0},  // the same
    // The further layer: one of experts (so 90 and 46 layers have some), a product of 2h x h, three
    // norms, and copies of the embedding and the head.
    {"glm-4.5", 358'337'791'296 - 90 * 160 - 5'539'962'112, 0},
    {"glm-4.5-air", 110'468'824'832 - 46 * 128 - 3'616'573'440, 0},
    {"olmoe-1b-7b", 6'919'161'856, 0},
    {"dbrx", 131'596'523'520, 0}};

struct PublishedActive {
  const char* model;
  double billions;  ///< published
  double within;    ///< half a unit of its last digit
  bool embedding;   ///< counted among them
};

// Of model cards and papers (models/*.yaml say which).
constexpr PublishedActive kPublishedActive[] = {{"deepseek-v2", 21, 0.5, true},
                                                {"deepseek-v3-671b", 36.6, 0.05, false},
                                                {"kimi-k2", 32, 0.5, false},
                                                {"qwen3-30b-a3b", 3, 0.5, true},
                                                {"qwen3-235b-a22b", 22, 0.5, true},
                                                {"mixtral-8x7b", 12.9, 0.05, true},
                                                {"mixtral-8x22b", 39, 0.5, true},
                                                {"gpt-oss-20b", 3.61, 0.005, false},
                                                {"gpt-oss-120b", 5.13, 0.005, false},
                                                {"llama-4-scout", 17, 0.5, true},
                                                {"llama-4-maverick", 17, 0.5, true},
                                                {"olmoe-1b-7b", 1.3, 0.05, true},
                                                {"dbrx", 36, 0.5, true}};

TEST(Models, ActiveParametersAreThePublishedOnes) {
  for (const PublishedActive& row : kPublishedActive) {
    const TransformerSpec m = load_model(row.model);
    const std::int64_t left_out = row.embedding ? 0 : m.vocab_size * m.hidden_size;
    EXPECT_NEAR(static_cast<double>(m.active_parameters() - left_out) / 1e9, row.billions,
                row.within)
        << row.model;
  }
  EXPECT_EQ(load_model("phi-4").active_parameters(), load_model("phi-4").parameters());
}

TEST(Models, WhatPredictsAFurtherTokenHasItsPublishedParameters) {
  TransformerSpec model = load_model("deepseek-v3-671b");
  const std::int64_t without = model.parameters();
  model.mtp_layers = 1;
  // 11.5 billion of its own, the projection of 2h x h not among them: README_WEIGHTS.md of the
  // published weights.
  const std::int64_t projection = 2 * model.hidden_size * model.hidden_size;
  EXPECT_NEAR(static_cast<double>(model.parameters() - without - projection), 11.5e9, 0.05e9);
}

/// A token's products are 2 FLOPs a parameter of a matrix that it passes.
TEST(Models, FlopsOfMixturesAreTwiceTheirActiveParameters) {
  for (const char* name :
       {"deepseek-v3-671b", "qwen3-30b-a3b", "mixtral-8x7b", "llama-4-maverick"}) {
    const TransformerSpec m = load_model(name);
    const double attention = m.num_layers * m.layer_attention_flops(1);
    const auto tokens = static_cast<double>(m.seq_length);
    const auto matrices = static_cast<double>(m.active_parameters() - m.vocab_size * m.hidden_size);
    EXPECT_NEAR((m.forward_flops(1) - attention) / (2 * tokens * matrices), 1, 0.001) << name;
  }
}

TEST(Models, ParameterCountsAreThePublishedOnes) {
  std::set<std::string> counted;
  for (const PublishedCount& row : kPublishedCounts) {
    EXPECT_NEAR(static_cast<double>(load_model(row.model).parameters()), row.parameters,
                row.within * row.parameters)
        << row.model;
    counted.insert(row.model);
  }
  for (const std::string& name : shipped_names("models"))
    EXPECT_TRUE(counted.contains(name)) << name << " is shipped without a published count";
}

TEST(Models, HuggingFaceConfigsAreRead) {
  expect_same_shape(model("foreign/llama-3-8b.json"), load_model("llama-3-8b"));
  EXPECT_EQ(model("foreign/gpt2.json").parameters(), 124'439'808);
  EXPECT_EQ(model("foreign/mistral-7b.json").parameters(), 7'241'732'096);
  // The released files leave out what our families have: token types and pooler of BERT, and OPT's
  // two extra positions.
  EXPECT_NEAR(static_cast<double>(model("foreign/bert-large.json").parameters()), 335e6, 3e6);
  EXPECT_NEAR(static_cast<double>(model("foreign/opt-1.3b.json").parameters()), 1'315'758'080, 1e5);
  EXPECT_EQ(model("foreign/bert-large.json").family, Family::bert);
  EXPECT_EQ(model("foreign/opt-1.3b.json").ffn_hidden_size, 8192);
}

TEST(Models, KeysOfAConfigWithoutAMeaningAreNoted) {
  const Scenario s = beside_tests(
      "model: foreign/mistral-7b.json\nstack: none\ncluster: dgx-a100\nschedule: gpipe\n"
      "pipeline: {stages: 8, microbatches: 8}\n");
  const std::string file = source() + "/tests/scenarios/foreign/mistral-7b.json: ";
  EXPECT_EQ(
      s.notes,
      (std::vector<std::string>{
          file + "seq_length 32768 is the file's max_position_embeddings, the longest the "
                 "model can take; set model.seq_length to what you train with, as in {base: FILE, "
                 "seq_length: 4096}",
          file + "1 of its keys change nothing that is predicted"}));
}

TEST(Models, ALengthThatIsSetNeedsNoNote) {
  const std::string rest = "cluster: dgx-a100\nschedule: gpipe\npipeline: {stages: 8}\n";
  const Scenario in_file =
      beside_tests("model: {base: foreign/mistral-7b.json, seq_length: 4096}\n" + rest);
  const Scenario by_flag =
      parse_scenario("model: foreign/mistral-7b.json\n" + rest,
                     source() + "/tests/scenarios/test.yaml", {{"model.seq_length", "4096"}});
  for (const Scenario& s : {in_file, by_flag}) {
    EXPECT_EQ(s.transformer->seq_length, 4096);
    for (const std::string& note : s.notes)
      EXPECT_EQ(note.find("the longest"), std::string::npos) << note;
  }
}

TEST(Models, ArgumentsOfMegatronAreRead) {
  const TransformerSpec gpt = model("{base: foreign/megatron-gpt.json, precision: mixed-bf16}");
  EXPECT_EQ(gpt.family, Family::gpt);
  EXPECT_EQ(gpt.seq_length, 1024) << "not max_position_embeddings";
  EXPECT_EQ(gpt.vocab_size, 50304) << "padded";
  EXPECT_EQ(gpt.num_query_groups, 16) << "group_query_attention is false";
  EXPECT_FALSE(gpt.tie_embeddings);
  const Scenario fp16 = beside_tests(
      "model: foreign/megatron-gpt.json\nstack: none\ncluster: p3.16xlarge\nschedule: gpipe\n"
      "pipeline: {stages: 8, microbatch_size: 8, microbatches: 8}\n");
  EXPECT_EQ(fp16.transformer->compute_type, "fp16");
  const std::string file = source() + "/tests/scenarios/foreign/megatron-gpt.json: ";
  EXPECT_EQ(fp16.notes,
            (std::vector<std::string>{file + "4 of its keys change nothing that is predicted",
                                      file + "not understood and ignored: "
                                             "tensor_model_parallel_size, "
                                             "context_parallel_size"}));
  expect_same_shape(model("foreign/megatron-llama.json"), load_model("llama-3-8b"));
}

TEST(Models, AConfigCanBeABase) {
  const TransformerSpec t = model("{base: foreign/gpt2.json, seq_length: 512}");
  EXPECT_EQ(t.seq_length, 512);
  EXPECT_EQ(t.learned_positions(), 1024) << "the table that was published, whatever the sequences";
  EXPECT_EQ(t.parameters(), model("foreign/gpt2.json").parameters());
  EXPECT_EQ(model("{base: foreign/gpt2.json, seq_length: 4096}").learned_positions(), 4096);
  EXPECT_EQ(
      model("{base: foreign/gpt2.json, seq_length: 512, position_rows: 600}").learned_positions(),
      600);
  EXPECT_EQ(model("{base: foreign/mistral-7b.json, seq_length: 512}").learned_positions(), 0);
  EXPECT_EQ(t.num_layers, 12);
  const auto says_longer = [](const std::string& length) {
    const Scenario s = beside_tests("model: {base: foreign/gpt2.json, seq_length: " + length +
                                    "}\nstack: none\ncluster: dgx-h100\nschedule: gpipe\n"
                                    "pipeline: {stages: 2, microbatches: 2}\n");
    return std::ranges::any_of(s.notes, [](const std::string& note) {
      return note.find("longer than its table of 1024 learned positions") != note.npos;
    });
  };
  EXPECT_TRUE(says_longer("4096"));
  EXPECT_FALSE(says_longer("1024"));
}

TEST(Models, FactsOfALayerBecomeFlagsOfMegatronOrAreRefused) {
  const auto flags = [](const std::string& facts) {
    const Scenario s =
        beside_tests("model: {base: llama-3-8b, " + facts +
                     "}\ncluster: dgx-h100\nschedule: 1f1b\npipeline: {stages: 8}\n");
    return megatron_arguments(s);
  };
  const std::string text = flags(
      "qk_norm: head, head_dim: 64, biases: qkv, sliding_window: 4096, full_attention_every: 4");
  for (const char* flag :
       {"--qk-layernorm", "--kv-channels 64", "--disable-bias-linear", "--add-qkv-bias",
        "--window-size 4095,0", "--window-attn-skip-freq 4", "--swiglu"})
    EXPECT_NE(text.find(flag), std::string::npos) << flag << text;
  for (const char* fact : {"norms: 4", "qk_norm: width", "parallel_residual: true",
                           "positions: alibi", "norm: layer-without-bias", "biases: mlp"})
    EXPECT_THROW(flags(fact), InputError) << fact;
}

TEST(Models, NamesOfMegatronAndHuggingFaceMeanTheSame) {
  const std::string ours =
      "{num_layers: 4, hidden_size: 64, num_attention_heads: 8, num_query_groups: 2, "
      "ffn_hidden_size: 128, vocab_size: 1000, seq_length: 16, tie_embeddings: false}";
  const std::string hugging_face =
      "{num_hidden_layers: 4, hidden_size: 64, num_attention_heads: 8, num_key_value_heads: 2, "
      "intermediate_size: 128, vocab_size: 1000, max_position_embeddings: 16, "
      "tie_word_embeddings: false}";
  const std::string gpt2 =
      "{n_layer: 4, n_embd: 64, n_head: 8, num_query_groups: 2, n_inner: 128, vocab_size: 1000, "
      "n_positions: 16, tie_embeddings: false}";
  const std::string megatron =
      "{num_layers: 4, hidden_size: 64, num_attention_heads: 8, num_query_groups: 2, "
      "ffn_hidden_size: 128, padded_vocab_size: 1000, seq_length: 16, tie_embeddings: false}";
  for (const std::string& other : {hugging_face, gpt2, megatron})
    expect_same_shape(model(ours), model(other));
}

TEST(Models, PipelineKeysOfMegatronMeanTheSame) {
  const Scenario s = scenario(kCosts +
                              "pipeline: {pipeline_model_parallel_size: 4, micro_batch_size: 3, "
                              "data_parallel_size: 2, num_microbatches: 6}\n");
  EXPECT_EQ(s.mesh.most(), 2);
  EXPECT_EQ(s.shape.microbatches_per_update, 6U);
  EXPECT_EQ(s.shape.depth, 4U);
  EXPECT_EQ(s.microbatch_size, 3);
}

TEST(Models, PrecisionSetsRateAndBytes) {
  const std::string shape =
      "num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 100, seq_length: 8";
  struct Row {
    const char* precision;
    const char* type;
    double weights, gradients, optimizer, element;
  };
  for (const Row& row :
       {Row{"mixed-fp16", "fp16", 2, 4, 12, 2}, Row{"mixed-bf16", "bf16", 2, 4, 12, 2},
        Row{"fp32", "fp32", 4, 4, 8, 4}, Row{"tf32", "tf32", 4, 4, 8, 4}}) {
    const TransformerSpec t = model("{" + shape + ", precision: " + row.precision + "}");
    EXPECT_EQ(t.compute_type, row.type);
    EXPECT_EQ(t.bytes.weights, row.weights);
    EXPECT_EQ(t.bytes.gradients, row.gradients);
    EXPECT_EQ(t.bytes.optimizer, row.optimizer);
    EXPECT_EQ(t.element_bytes(), row.element);
  }
}

TEST(Models, PrecisionOfClassesOfProducts) {
  const std::string shape =
      "num_layers: 2, hidden_size: 64, num_attention_heads: 4, vocab_size: 100, seq_length: 8";
  const auto types = [&](const std::string& precision) {
    const TransformerSpec t =
        *beside_tests("stack: none\nmodel: {" + shape + ", precision: " + precision +
                      "}\ncluster: dgx-b200\nschedule: gpipe\npipeline: {stages: 1}\n")
             .transformer;
    EXPECT_EQ(t.element_bytes(), 2) << precision;
    return t.product_types;
  };
  EXPECT_EQ(types("bf16"), ProductTypes{});
  // Transformer Engine's fp8: linear layers alone.
  const ProductTypes fp8 = types("fp8");
  EXPECT_EQ(fp8.of(ProductClass::mlp), NumberType::fp8);
  EXPECT_EQ(fp8.of(ProductClass::attention_projections), NumberType::fp8);
  EXPECT_EQ(fp8.of(ProductClass::attention), NumberType::model);
  EXPECT_EQ(fp8.of(ProductClass::head), NumberType::model);
  EXPECT_EQ(types("{base: fp8}"), fp8);
  for (const auto& [word, type] :
       {std::pair{"fp8-current", NumberType::fp8_current},
        std::pair{"fp8-rowwise", NumberType::fp8_rowwise},
        std::pair{"fp8-block", NumberType::fp8_block}, std::pair{"mxfp8", NumberType::mxfp8},
        std::pair{"nvfp4", NumberType::nvfp4}})
    EXPECT_EQ(types(word), linear_layers_in(type)) << word;
  const ProductTypes mixed = types(
      "{base: mxfp8, head: mxfp8, attention: fp8, mlp: bf16, linear_weights: narrow, "
      "first_wide_layers: 1}");
  EXPECT_EQ(mixed.of(ProductClass::head), NumberType::mxfp8);
  EXPECT_EQ(mixed.of(ProductClass::attention), NumberType::fp8);
  EXPECT_EQ(mixed.of(ProductClass::mlp), NumberType::model);
  EXPECT_EQ(mixed.of(ProductClass::attention_projections), NumberType::mxfp8);
  EXPECT_TRUE(mixed.narrow_parameters);
  EXPECT_EQ(mixed.first_wide, 1);
  for (const ProductTypes& each : {fp8, mixed, ProductTypes{}})
    EXPECT_EQ(types(precision_text(each, "mixed-bf16")), each);
}

TEST(Models, BytesPerParameterCanBeGiven) {
  const TransformerSpec t =
      model("{base: gpt-2.2b, precision: mixed-bf16, bytes_per_parameter: {weights: 4}}");
  EXPECT_EQ(t.bytes.weights, 4);
  EXPECT_EQ(t.bytes.gradients, 6) << "the base's";
  EXPECT_EQ(t.bytes.version, 4) << "the base's";
}

TEST(Models, BackwardPartsAddUp) {
  const Scenario s = scenario(
      "model: {forward: 1 s, backward_input: 2 s, backward_weight: 3 s}\nschedule: gpipe\n");
  EXPECT_EQ(s.costs[0][OpKind::backward].seconds, 5);
  EXPECT_EQ(s.costs[0][OpKind::backward_input].seconds, 2);
  EXPECT_EQ(s.costs[0][OpKind::backward_weight].seconds, 3);
}

// --- clusters -----------------------------------------------------------------------------------

Cluster cluster(const std::string& text) {
  return beside_tests(kCosts + "cluster: " + text + "\npipeline: {stages: 1}\n").cluster;
}

TEST(ScenarioNetwork, EdgesHaveTheirRatesAndDirections) {
  const Cluster c = cluster(
      "{devices: 3, network: [{between: [0, sw], bandwidth: 1 Gbps, latency: 50 us}, {between: "
      "[sw, "
      "1], bandwidth: 2 Gbps, bandwidth_back: 4 Gbps, sharing: fifo}, {between: [2, sw], "
      "duplex: half}]}");
  EXPECT_EQ(c.devices(), 3);
  EXPECT_FALSE(c.link.has_value());
  ASSERT_TRUE(c.network.has_value());
  EXPECT_EQ(c.network->switches, std::vector<std::string>{"sw"});
  const auto& edges = c.network->edges;
  ASSERT_EQ(edges.size(), 3U);
  EXPECT_EQ(std::pair(edges[0].from, edges[0].to), std::pair(0, 3));
  EXPECT_EQ(edges[0].link.bytes_per_s, 125e6);
  EXPECT_EQ(edges[0].bytes_per_s_back, 125e6);
  EXPECT_EQ(edges[0].link.latency_s, 50e-6);
  EXPECT_FALSE(edges[0].link.fifo);
  EXPECT_EQ(std::pair(edges[1].from, edges[1].to), std::pair(3, 1));
  EXPECT_EQ(edges[1].link.bytes_per_s, 250e6);
  EXPECT_EQ(edges[1].bytes_per_s_back, 500e6);
  EXPECT_TRUE(edges[1].link.fifo);
  EXPECT_TRUE(edges[1].link.full_duplex);
  EXPECT_TRUE(std::isinf(edges[2].link.bytes_per_s));
  EXPECT_FALSE(edges[2].link.full_duplex);
}

TEST(ScenarioNetwork, SaysHowManyDevicesAPipelineHasByDefault) {
  EXPECT_EQ(scenario(kCosts + "cluster: {devices: 2, network: [{between: [0, 1]}]}\n").shape.depth,
            2U);
}

TEST(Clusters, ABandwidthAloneIsALink) {
  const Cluster c = cluster("{devices: 2, link: 25 GB/s}");
  EXPECT_EQ(c.link->bytes_per_s, 25e9);
  EXPECT_EQ(c.link->latency_s, 0);
}

TEST(Clusters, ABaseKeepsWhatIsNotGiven) {
  const Cluster base = load_cluster("p3.16xlarge");
  const Cluster c = cluster("{base: p3.16xlarge, nodes: 2, inter: 100 Gbps}");
  EXPECT_EQ(c.nodes, 2);
  EXPECT_EQ(c.inter.bytes_per_s, 12.5e9);
  EXPECT_EQ(c.inter.latency_s, base.inter.latency_s);
  EXPECT_EQ(c.intra.bytes_per_s, base.intra.bytes_per_s);
  EXPECT_EQ(c.device.memory_bytes, base.device.memory_bytes);
}

TEST(Clusters, ADeviceInABaseIsChangedKeyByKey) {
  const Cluster base = load_cluster("dgx-a100");
  const Cluster c = cluster("{base: dgx-a100, device: {memory: 40 GiB, peak: {fp32: 1 TFLOP/s}}}");
  EXPECT_EQ(c.device.memory_bytes, std::int64_t{40} << 30);
  EXPECT_EQ(c.device.peak_flops_per_s.at("fp32"), 1e12);
  EXPECT_EQ(c.device.peak_flops_per_s.at("bf16"), base.device.peak_flops_per_s.at("bf16"));
}

TEST(Clusters, MemoryIsThatOfTheDevice) {
  const DeviceSpec base = load_cluster("dgx-a100").device;
  const DeviceSpec d = cluster("{base: dgx-a100, memory: 40 GiB}").device;
  EXPECT_EQ(d.memory_bytes, std::int64_t{40} << 30);
  EXPECT_EQ(d.reserved_bytes, base.reserved_bytes);
  EXPECT_EQ(d.allocator_slack, base.allocator_slack);
  EXPECT_EQ(cluster("{devices: 2, memory: 40 GiB}").device.capacity_bytes(), std::int64_t{40} << 30)
      << "without a device, the capacity itself";
}

TEST(Clusters, ADeviceCanBeReplacedByName) {
  EXPECT_EQ(cluster("{base: dgx-a100, device: v100-16}").device.memory_bytes,
            load_device("v100-16").memory_bytes);
}

TEST(Clusters, NamesOfShippedFilesIgnoreCase) {
  EXPECT_EQ(cluster("DGX-A100").devices_per_node, cluster("dgx-a100").devices_per_node);
}

TEST(Files, AreRelativeToTheFileThatNamesThem) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("penstock-files-" + std::to_string(getpid()));
  fs::create_directories(folder / "models");
  std::ofstream(folder / "models/base.yaml") << "forward: 3 s\nbackward: 4 s\n";
  std::ofstream(folder / "models/mine.yaml") << "base: base.yaml\nbackward: 5 s\n";
  std::ofstream(folder / "run.yaml") << "model: models/mine.yaml\nschedule: gpipe\n";
  const Scenario s = load_scenario((folder / "run.yaml").string());
  const Scenario flag =
      load_scenario((folder / "run.yaml").string(), {{"model", "models/base.yaml"}});
  fs::remove_all(folder);
  EXPECT_EQ(s.costs[0][OpKind::forward].seconds, 3);
  EXPECT_EQ(s.costs[0][OpKind::backward].seconds, 5);
  EXPECT_EQ(flag.costs[0][OpKind::backward].seconds, 4);
}

// --- pipeline -----------------------------------------------------------------------------------

TEST(Pipeline, SplitCanBeAList) {
  const Scenario s = scenario(kGpt + "pipeline: {stages: 4, split: [7, 9, 9, 7]}\n");
  EXPECT_EQ(s.layers, (std::vector<int>{7, 9, 9, 7}));
}

TEST(Pipeline, SplitCanBeBalanced) {
  const Scenario s = scenario(kGpt + "pipeline: {stages: 7, split: balanced}\n");
  ASSERT_EQ(s.layers.size(), 7U);
  EXPECT_EQ(std::accumulate(s.layers.begin(), s.layers.end(), 0), 32);
}

TEST(Pipeline, RankOrderSaysWhichGpus) {
  const std::string width = "pipeline: {stages: 2, width: 2";
  EXPECT_EQ(first_gpus(scenario(kCosts + width + "}\n")), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(first_gpus(scenario(kCosts + width + ", rank_order: pipeline-first}\n")),
            (std::vector<int>{0, 1, 2, 3}));
}

TEST(Pipeline, AliasesOfYamlAreFollowed) {
  const Scenario s = scenario(
      "model: {forward: &t [1 s, 2 s], backward: *t}\nschedule: gpipe\npipeline: {stages: 2}\n");
  EXPECT_EQ(s.costs[1][OpKind::backward].seconds, 2);
}

TEST(Pipeline, EveryChoiceIsUnderstood) {
  for (const char* transfers : {"free", "overlapped", "coupled", "blocking"})
    EXPECT_NO_THROW(scenario(kCosts + "transfers: " + transfers + "\n")) << transfers;
  for (const char* recompute : {"none", "selective", "full"})
    EXPECT_NO_THROW(scenario(kGpt + "pipeline: {recompute: " + recompute + "}\n")) << recompute;
  for (const std::string_view sync : kStepSyncNames) {
    const auto read = scenario(kCosts + "pipeline: {optimizer_sync: " + std::string(sync) + "}\n");
    EXPECT_EQ(kStepSyncNames[static_cast<std::size_t>(read.lowering.step_sync)], sync);
  }
  const Scenario pipedream = scenario(
      "model: {forward: 1 s, backward: 2 s}\nschedule: pipedream\n"
      "pipeline: {stages: 4, vertical_sync: true, weight_copies: code}\n");
  EXPECT_TRUE(pipedream.shape.vertical_sync);
  EXPECT_EQ(pipedream.shape.extra_copies, 1U);
}

}  // namespace
}  // namespace penstock::scenario_test
