// SPDX-License-Identifier: Apache-2.0
// What configurations of nanotron and torchtitan have wrong is an error, all at once; what changes
// memory is never taken for the usual.
#include "base/error.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/scenario.hpp"
#include "tests/scenarios/refused.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <functional>

namespace penstock::config_errors_test {
namespace {

const std::string kSmall =
    "model:\n  model_config: {num_hidden_layers: 4, hidden_size: 64, intermediate_size: 128, "
    "num_attention_heads: 4, vocab_size: 256";

Scenario scenario_in(const std::string& text) { return parse_scenario(text, "imported"); }

/// Returns what a nanotron job of kSmall is refused for, or the scenario that it becomes.
std::string nanotron_of(const std::string& model, const std::string& parallelism,
                        const std::string& more = "") {
  std::string text;
  const std::string why = refused([&] {
    text = scenario_of_nanotron(
        kSmall + model + "}\nparallelism: {" + parallelism + "}\n" + more +
            "tokens: {sequence_length: 64, micro_batch_size: 1, batch_accumulation_per_replica: "
            "1}\n",
        "a.yaml", "");
  });
  return why.empty() ? text : "refused: " + why;
}

TEST(NanotronImport, WordsThatItDoesNotKnowAreErrorsAllAtOnce) {
  const std::string all =
      nanotron_of("", "dp: 1, pp: x, tp: 0, pp_engine: zb, tp_mode: REDUCE_SCATER",
                  "optimizer: {zero_stage: 7}\n");
  for (const char* part : {"parallelism.pp_engine must be one of 1f1b, afab, got 'zb'",
                           "optimizer.zero_stage must be one of 0, 1, 2, 3, got '7'",
                           "got 'REDUCE_SCATER'; did you mean REDUCE_SCATTER?",
                           "parallelism.pp must be an integer from 1 to 1000000, got 'x'",
                           "parallelism.tp must be an integer from 1 to 1000000, got '0'"})
    EXPECT_NE(all.find(part), std::string::npos) << part << " in " << all;
  const std::string type = refused([] {
    scenario_of_nanotron(
        "model: {dtype: int8, model_config: {hidden_size: 64}}\n"
        "parallelism: {pp: 2}\ntokens: {sequence_length: 64}\n",
        "a.yaml", "");
  });
  EXPECT_NE(type.find("model.dtype must be one of bfloat16"), std::string::npos) << type;
  EXPECT_NE(type.find("it does not say model.model_config.num_hidden_layers, "), std::string::npos);
  EXPECT_NE(type.find("parallelism.dp, parallelism.tp, tokens.micro_batch_size"), std::string::npos)
      << type;
}

TEST(NanotronImport, OtherFamiliesAndOptimizersAreNoLlamasWithAdam) {
  const std::string degrees = "dp: 1, pp: 2, tp: 1";
  for (const char* family : {", is_gpt_config: true", ", is_starcoder_config: true"})
    EXPECT_NE(nanotron_of(family, degrees).find("another family than Llama"), std::string::npos);
  EXPECT_NE(nanotron_of(", is_llama_config: false", degrees).find("nothing says which family"),
            std::string::npos);
  const auto bytes = [&](const char* name) {
    return scenario_in(
               nanotron_of("", degrees,
                           fmt::format("optimizer: {{optimizer_factory: {{name: {}}}}}\n", name)))
        .transformer->bytes.optimizer;
  };
  EXPECT_DOUBLE_EQ(bytes("adamW") - bytes("sgd"), 8);
  EXPECT_LT(bytes("muon"), bytes("adamW"));
  EXPECT_GT(bytes("muon"), bytes("sgd") + 4);
}

TEST(TorchtitanImport, WhatItRefusesIsAnErrorAllAtOnce) {
  const auto why = [](const std::string& text, const char* cluster = "") {
    return refused([&] { scenario_of_torchtitan(text, "a.toml", cluster); });
  };
  const std::string all =
      why("[model]\nname = \"llama3\"\nflavor = \"9B\"\n[training]\nseq_len = -1\n"
          "local_batch_size = \"x\"\n[parallelism]\npipeline_parallel_degree = 0\n"
          "tensor_parallel_degree = 2\npipeline_parallel_schedule = \"1F1B\"\n"
          "[activation_checkpoint]\nmode = \"selectiv\"\n");
  for (const char* part :
       {"training.seq_len must be an integer", "training.local_batch_size must be an integer",
        "parallelism.pipeline_parallel_degree must be an integer from 1 to 1000000, got '0'",
        "got 'selectiv'; did you mean selective?", "the flavor 'llama3 9B' are not known"})
    EXPECT_NE(all.find(part), std::string::npos) << part << " in " << all;
  const std::string odd =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
      "data_parallel_shard_degree = -1\npipeline_parallel_degree = 3\n";
  EXPECT_NE(why(odd, "{base: dgx-h100, nodes: 2}").find("16 GPUs are no multiple of 3"),
            std::string::npos);
  EXPECT_EQ(why(odd, "{base: dgx-h100, nodes: 3}"), "");
}

TEST(TorchtitanImport, OptimizersAndWholeLogitsChangeMemory) {
  const auto job = [](const std::string& more, const std::string& optimizer) {
    return scenario_in(scenario_of_torchtitan(
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[optimizer]\nname = \"" + optimizer +
            "\"\n[parallelism]\ndata_parallel_shard_degree = 4\n" + more,
        "a.toml", ""));
  };
  const auto bytes = [&](const char* name) { return job("", name).transformer->bytes.optimizer; };
  EXPECT_DOUBLE_EQ(bytes("AdamW"), 12);
  EXPECT_DOUBLE_EQ(bytes("SGD"), 4);
  EXPECT_NEAR(bytes("Muon"), 8 + 4 * 0.131, 0.01) << "1.05 of 8.03 billion are in no layer";
  EXPECT_NE(job("", "Adafactor").missing.find("the state of adafactor"), std::string::npos);
  const std::string whole = "disable_loss_parallel = true\n";
  EXPECT_NE(job(whole + "tensor_parallel_degree = 2\n", "Adam").missing.find("logits"),
            std::string::npos);
  EXPECT_EQ(job(whole, "Adam").missing, "");
}

}  // namespace
}  // namespace penstock::config_errors_test
