// SPDX-License-Identifier: Apache-2.0
// Configurations of nanotron and torchtitan as scenarios.
#include "base/error.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/megatron_arguments.hpp"
#include "scenarios/torchtitan_config.hpp"
#include "tests/shared.hpp"
#include "tests/scenarios/refused.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace penstock::config_import_test {
namespace {

const std::string kNanotron =
    "general: {run: a, seed: 1}\n"
    "model:\n"
    "  dtype: bfloat16\n"
    "  model_config: {num_hidden_layers: 32, hidden_size: 4096, intermediate_size: 14336,\n"
    "    num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 128256, rope_theta: 5.0e5,\n"
    "    tie_word_embeddings: false}\n"
    "optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true}\n"
    "parallelism: {dp: 4, pp: 2, tp: 4, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER,\n"
    "  tp_linear_async_communication: true, expert_parallel_size: 1, recompute_layer: false}\n"
    "tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 32, sequence_length: 4096,\n"
    "  banana: 3}\n";

const std::string kTitan =
    "[model]\nname = \"llama3\"\nflavor = \"70B\"  # of three\n"
    "[training]\nlocal_batch_size = 8\nseq_len = 8192\nsteps = 10\ncompile = false\n"
    "[parallelism]\ndata_parallel_shard_degree = 2\ntensor_parallel_degree = 8 # a node\n"
    "pipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'\n"
    "[activation_checkpoint]\nmode = \"full\"\n[float8]\nrecipe_name = \"rowwise\"\n";

Scenario scenario_in(const std::string& text) { return parse_scenario(text, "imported"); }

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(NanotronImport, SaysOfEveryOptionWhatItBecame) {
  const std::string text = scenario_of_nanotron(kNanotron, "a.yaml", "");
  EXPECT_TRUE(has_line(text, "#   parallelism.pp 2: pipeline.stages")) << text;
  EXPECT_TRUE(has_line(text, "#   general.seed 1")) << text;
  EXPECT_TRUE(has_line(text, "#   tokens.banana 3")) << text;
  EXPECT_TRUE(has_line(text, "#   parallelism.expert_parallel_size 1")) << text;
  EXPECT_NE(text.find("# cannot be modelled:\n#   parallelism.tp_linear_async_communication true"),
            std::string::npos)
      << text;
}

const std::string kSmall =
    "model:\n  model_config: {num_hidden_layers: 4, hidden_size: 64, intermediate_size: 128, "
    "num_attention_heads: 4, vocab_size: 256";

TEST(NanotronImport, SlicesOfProductsMeanNothingWhereThereIsOne) {
  const auto with = [](const std::string& slices) {
    return scenario_of_nanotron(
        kSmall + ", pretraining_tp: " + slices +
            "}\nparallelism: {dp: 1, pp: 2, tp: 1}\ntokens: {sequence_length: 64, "
            "micro_batch_size: 1, batch_accumulation_per_replica: 1}\n",
        "a.yaml", "");
  };
  const std::string one = with("1"), two = with("2");
  EXPECT_EQ(one.find("cannot be modelled"), std::string::npos) << one;
  EXPECT_GT(one.find("#   model.model_config.pretraining_tp 1\n"),
            one.find("# changes nothing that is predicted:"))
      << one;
  EXPECT_LT(two.find("# cannot be modelled:\n#   model.model_config.pretraining_tp 2: products in"),
            two.size())
      << two;
}

TEST(NanotronImport, IsTheJob) {
  const Scenario s = scenario_in(scenario_of_nanotron(kNanotron, "a.yaml", ""));
  EXPECT_EQ(s.shape.depth, 2u);
  EXPECT_EQ(s.mesh.size(Axis::tensor), 4);
  EXPECT_EQ(s.gpu_count(), 32);
  EXPECT_EQ(s.samples_per_update(), 256);
  EXPECT_EQ(s.microbatch_size, 2);
  EXPECT_TRUE(s.sequence_parallel);
  EXPECT_TRUE(s.sharding.sharded());
  EXPECT_EQ(s.transformer->num_query_groups, 8);
  EXPECT_EQ(s.transformer->seq_length, 4096);
}

TEST(NanotronImport, FollowsEveryValue) {
  const auto with = [](const std::string& parallelism, const std::string& zero) {
    return scenario_in(scenario_of_nanotron(
        kSmall + "}\noptimizer: {zero_stage: " + zero + "}\nparallelism: {dp: 2, pp: 2, tp: 2" +
            parallelism +
            "}\ntokens: {micro_batch_size: 1, batch_accumulation_per_replica: 1, sequence_length: "
            "64}\n",
        "a.yaml", ""));
  };
  EXPECT_EQ(with(", pp_engine: afab", "0").schedule->name, "gpipe");
  EXPECT_FALSE(with("", "0").sharding.sharded());
  EXPECT_EQ(with("", "1").sharding.what, Sharded::optimizer);
  EXPECT_EQ(with("", "2").sharding.what, Sharded::gradients);
  EXPECT_EQ(with("", "3").sharding.what, Sharded::weights);
  EXPECT_FALSE(with(", tp_mode: ALL_REDUCE", "0").sequence_parallel);
  EXPECT_EQ(with(", recompute_layer: true", "0").recompute.at(0), Recompute::full);
}

TEST(NanotronImport, RefusesWhatIsNone) {
  EXPECT_THROW(scenario_of_nanotron("model: 3\n", "a.yaml", ""), InputError);
  EXPECT_THROW(scenario_of_nanotron("a: [", "a.yaml", ""), InputError);
}

std::string shared_case(const std::string& name) {
  std::ifstream in(shared_folder() / "cases" / name);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(NanotronImport, ProductsBeyondAllJobsAreErrors) {
  const auto more = [](const std::string& said) {
    return said.find("are more than 1000000000, the most") != std::string::npos;
  };
  const std::string all = refused([] {
    scenario_of_nanotron(kSmall +
                             "}\nparallelism: {dp: 65536, pp: 65536, tp: 65536, "
                             "context_parallel_size: 65536}\ntokens: {sequence_length: 64, "
                             "micro_batch_size: 1, batch_accumulation_per_replica: 1}\n",
                         "a.yaml", "");
  });
  EXPECT_TRUE(more(all)) << all;
  std::string degrees = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n";
  for (const char* degree : {"pipeline", "tensor", "context"})
    degrees += std::string(degree) + "_parallel_degree = 65536\n";
  degrees += "data_parallel_replicate_degree = 65536\n";
  const std::string titan = refused([&] { scenario_of_torchtitan(degrees, "a.toml", ""); });
  EXPECT_TRUE(more(titan)) << titan;
}

TEST(TorchtitanImport, RunTrainReadsTheFileOfItsEnvironment) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("penstock-titan-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "x.toml") << kTitan;
  const std::string text =
      scenario_of_torchtitan("CONFIG_FILE=x.toml NGPU=8 ./run_train.sh --model.flavor=8B\n",
                             (folder / "a.sh").string(), "");
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(has_line(text, "#   nproc_per_node 8: pipeline.width") ||
              text.find("nproc_per_node 8") != std::string::npos)
      << text;
  const Scenario s = scenario_in(text);
  EXPECT_EQ(s.shape.depth, 4U);
  EXPECT_EQ(s.transformer->num_layers, 32);
}

TEST(NanotronImport, NeverMakesUpASizeOrAnotherModel) {
  const auto why = [](const std::string& text) {
    return refused([&] { scenario_of_nanotron(text, "a.yaml", ""); });
  };
  const std::string rest =
      "}\nparallelism: {dp: 1, pp: 2, tp: 1}\ntokens: {sequence_length: 64, micro_batch_size: 1, "
      "batch_accumulation_per_replica: 1}\n";
  EXPECT_NE(why("model:\n  model_config: {num_hidden_layers: 4" + rest)
                .find("it does not say model.model_config.hidden_size, "
                      "model.model_config.intermediate_size"),
            std::string::npos);
  EXPECT_NE(
      why("model:\n  model_config: {num_hidden_layers: 4" + rest).find("put them into the file"),
      std::string::npos);
  EXPECT_NE(why(kSmall + ", is_starcoder2_config: true" + rest).find("a StarCoder2"),
            std::string::npos);
  EXPECT_EQ(why(kSmall + ", is_llama_config: true, is_mamba_config: false" + rest), "");
}

TEST(NanotronImport, TakesItsSizesFromAModelThatIsGiven) {
  const std::string rest =
      "parallelism: {dp: 1, pp: 2, tp: 1}\ntokens: {sequence_length: 64, micro_batch_size: 1, "
      "batch_accumulation_per_replica: 1}\n";
  const std::string text = scenario_of_nanotron(rest, "a.yaml", "", "qwen3-0.6b");
  const Scenario s = scenario_in(text);
  EXPECT_EQ(s.transformer->parameters(), load_model("qwen3-0.6b").parameters());
  EXPECT_EQ(s.transformer->seq_length, 64);
  EXPECT_EQ(scenario_in(scenario_of_nanotron(kSmall + "}\n" + rest, "a.yaml", "", "llama-3-8b"))
                .transformer->num_layers,
            32);
}

TEST(NanotronImport, SuggestsOnlyKeysOfTheSameSectionThatAreNear) {
  const auto said = [](const std::string& key) {
    return scenario_of_nanotron(kSmall + "}\nparallelism: {dp: 1, pp: 2, tp: 1, " + key +
                                    "}\ntokens: {sequence_length: 64, micro_batch_size: 1, "
                                    "batch_accumulation_per_replica: 1}\n",
                                "a.yaml", "");
  };
  EXPECT_NE(said("tp_mod: ALL_REDUCE").find("did you mean parallelism.tp_mode?"),
            std::string::npos);
  for (const char* key : {"ep: 1", "fsdp: 1", "sequence_length: 8"})
    EXPECT_EQ(said(key).find("did you mean"), std::string::npos) << said(key);
}

TEST(NanotronImport, KeysOfEveryLlamaAreNoSlips) {
  const std::string text = scenario_of_nanotron(
      kSmall +
          ", bos_token_id: 1, eos_token_id: 2, pad_token_id: null, hidden_act: silu,\n"
          "    initializer_range: 0.02, is_llama_config: true, is_qwen2_config: true,\n"
          "    max_position_embeddings: 64, pretraining_tp: 1, rms_norm_eps: 1.0e-5,\n"
          "    rope_interleaved: false, rope_scaling: null, rope_theta: 10000.0, use_cache: true,\n"
          "    attention_bias: false, _attn_implementation: flash_attention_2, _use_qk_norm: "
          "false,\n"
          "    _fused_rms_norm: true, _fused_rotary_emb: true, _use_qkv_packed: true,\n"
          "    _use_doc_masking: true, z_loss_enabled: false, z_loss_coefficient: 0.0001}\n"
          "parallelism: {dp: 1, pp: 2, tp: 1}\ntokens: {sequence_length: 64, micro_batch_size: 1, "
          "batch_accumulation_per_replica: 1}\n",
      "a.yaml", "");
  EXPECT_EQ(text.find("did you mean"), std::string::npos) << text;
  EXPECT_EQ(text.find("not known here"), std::string::npos) << text;
}

TEST(NanotronImport, TheSharedMambaIsRefused) {
  SKIP_WITHOUT_SHARED(shared_folder() / "cases");
  const std::string text = shared_case("nanotron-mamba.yaml");
  EXPECT_NE(refused([&] { scenario_of_nanotron(text, "m.yaml", ""); }).find("a state-space model"),
            std::string::npos);
}

TEST(NanotronImport, InTheSharedFileOfNullsNothingIsMissing) {
  SKIP_WITHOUT_SHARED(shared_folder() / "cases");
  const std::string text = scenario_of_nanotron(shared_case("nanotron-null.yaml"), "n.yaml", "");
  for (const char* title : {"cannot be modelled", "not known here", "missing"})
    EXPECT_EQ(text.find(title), std::string::npos) << text;
  EXPECT_EQ(scenario_in(text).transformer->hidden_size, 2048);
}

TEST(NanotronImport, GradientsThatAreNotSummedInFp32HaveNoFp32WeightsEither) {
  const std::string job = kSmall +
                          "}\nparallelism: {dp: 1, pp: 2, tp: 1}\ntokens: {sequence_length: 64, "
                          "micro_batch_size: 1, batch_accumulation_per_replica: 1}\n";
  const auto text = [&](const char* sums) {
    return scenario_of_nanotron(
        job + fmt::format("optimizer: {{accumulate_grad_in_fp32: {}}}\n", sums), "a.yaml", "");
  };
  EXPECT_NE(text("false").find("bytes_per_parameter: {weights: 2, gradients: 2, optimizer: 4}"),
            std::string::npos);
  EXPECT_EQ(text("true").find("bytes_per_parameter"), std::string::npos);
}

TEST(NanotronImport, ExpertsAreMissing) {
  const std::string text =
      scenario_of_nanotron(kSmall + ", moe_config: {num_experts: 8, top_k: 2}" +
                               "}\nparallelism: {dp: 1, pp: 2, tp: 1}\ntokens: {sequence_length: "
                               "64, micro_batch_size: 1, batch_accumulation_per_replica: 1}\n",
                           "a.yaml", "");
  EXPECT_NE(scenario_in(text).missing.find("experts"), std::string::npos) << text;
}

TEST(TorchtitanImport, IsTheJobOfAFile) {
  const std::string text = scenario_of_torchtitan(kTitan, "a.toml", "");
  const Scenario s = scenario_in(text);
  EXPECT_EQ(s.schedule->name, "interleaved-1f1b-torch");
  EXPECT_EQ(s.shape.depth, 4u);
  EXPECT_EQ(s.shape.chunks, 2u);
  EXPECT_EQ(s.mesh.size(Axis::tensor), 8);
  EXPECT_EQ(s.gpu_count(), 64);
  EXPECT_EQ(s.samples_per_update(), 16);
  EXPECT_EQ(s.microbatch_size, 1);
  EXPECT_EQ(s.transformer->num_layers, 80);
  EXPECT_EQ(s.sharding.what, Sharded::weights);
  EXPECT_EQ(s.sharding.gathering, Gathering::first_forward) << "it has a pipeline";
  EXPECT_TRUE(has_line(text, "#   training.steps 10")) << text;
  EXPECT_EQ(s.stack.name, "torchtitan-eager");
  EXPECT_TRUE(has_line(text, "#   float8.recipe_name rowwise")) << text;
}

TEST(TorchtitanImport, WhatIsLeftOutSaysWhichWayMemoryErrs) {
  const auto left_out = [](const std::string& more) {
    return scenario_in(
               scenario_of_torchtitan("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\n"
                                      "seq_len = 4096\n[activation_checkpoint]\nmode = \"none\"\n"
                                      "[parallelism]\ndata_parallel_shard_degree = 8\n" +
                                          more,
                                      "a.toml", ""))
        .missing_saves;
  };
  EXPECT_EQ(left_out(""), "");
  EXPECT_EQ(left_out("expert_parallel_degree = 4\n"), "the division of experts");
  EXPECT_EQ(left_out("expert_parallel_degree = 1\n"), "");
  EXPECT_EQ(left_out("[training]\nenable_cpu_offload = true\n"), "offloading");
  EXPECT_EQ(left_out("[optimizer]\nearly_step_in_backward = true\n"),
            "early steps of the optimizer");
}

TEST(TorchtitanImport, WhatAConfigurationInPythonMaySayIsAskedFor) {
  const std::string launch = "MODULE=qwen3 CONFIG=qwen3_8b ./run_train.sh";
  const std::string said = refused([&] { scenario_of_torchtitan(launch, "a.sh", ""); });
  EXPECT_NE(said.find("--define training.seq_len=N"), std::string::npos) << said;
  EXPECT_NE(said.find("--define training.local_batch_size=N"), std::string::npos) << said;
  const Scenario s = scenario_in(scenario_of_torchtitan(
      launch, "a.sh", "", {{"training.seq_len", "8192"}, {"training.local_batch_size", "2"}}));
  EXPECT_EQ(s.transformer->seq_length, 8192);
  EXPECT_EQ(s.microbatch_size, 2);
}

TEST(TorchtitanImport, AWholeJobInSixteenBitsAndALossThatIsCompiledAlone) {
  const std::string text = scenario_of_torchtitan(
      kTitan +
          "[training]\ndtype = \"bfloat16\"\n[compile]\nenable = true\ncomponents = [\"loss\"]\n",
      "a.toml", "");
  EXPECT_NE(text.find("bytes_per_parameter: {weights: 2, gradients: 2, optimizer: 4}"),
            std::string::npos)
      << text;
  EXPECT_EQ(scenario_in(text).stack.name, "torchtitan-eager");
}

TEST(TorchtitanImport, IsTheJobOfFlags) {
  const Scenario s = scenario_in(scenario_of_torchtitan(
      "torchrun --nproc_per_node=8 --nnodes 2 -m torchtitan.train --model.name llama3 "
      "--model.flavor 8B --training.local_batch_size 4 --parallelism.pipeline_parallel_degree 2 "
      "--parallelism.tensor_parallel_degree=4 --training.seq_len 4096 "
      "--parallelism.pipeline_parallel_schedule ZBVZeroBubble --compile.enable",
      "run.sh", "dgx-a100"));
  EXPECT_EQ(s.stack.name, "torchtitan");
  EXPECT_EQ(s.schedule->name, "zb-v");
  EXPECT_EQ(s.gpu_count(), 16);  // the shards take what is left of two nodes
  EXPECT_EQ(s.samples_per_update(), 8);
  EXPECT_EQ(s.cluster.name, "dgx-a100");
}

TEST(TorchtitanImport, EveryScheduleOfTorchIsOneOfOurs) {
  for (const char* name : {"1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
                           "ZBVZeroBubble", "DualPipeV"}) {
    const std::string text = scenario_of_torchtitan(
        std::string("[model]\nname = 'llama3'\nflavor = '405B'\n[training]\nlocal_batch_size = 16\n"
                    "[parallelism]\npipeline_parallel_degree = 8\ndata_parallel_shard_degree = 1\n"
                    "pipeline_parallel_schedule = '") +
            name + "'\n",
        "a.toml", "");
    EXPECT_EQ(text.find("not known here"), std::string::npos) << text;
    EXPECT_NO_THROW(scenario_in(text)) << text;
  }
}

std::string titan_with(const std::string& more, const std::string& activation_checkpoint = "") {
  return scenario_of_torchtitan(
      "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 4096\n" + more +
          "[activation_checkpoint]\n" + activation_checkpoint,
      "a.toml", "");
}

TEST(TorchtitanImport, ListsMayTakeSeveralLines) {
  const std::string text = titan_with(
      "[parallelism]\nmodule_fqns_per_model_part = [  # two\n  ['tok_embeddings', 'layers.0'],\n"
      "  [\"layers.1\", \"a]b\"],  # ]\n]\npipeline_parallel_degree = 2\n");
  EXPECT_EQ(scenario_in(text).shape.depth, 2u) << text;
  EXPECT_NE(
      text.find("#   parallelism.module_fqns_per_model_part [['tok_embeddings', '...: the cut"),
      std::string::npos)
      << text;
}

TEST(TorchtitanImport, StepsOfGradientAccumulationDrainThePipeline) {
  const std::string parallel =
      "[parallelism]\npipeline_parallel_degree = 4\ndata_parallel_shard_degree = 2\n";
  const auto job = [&](const std::string& batch) {
    return scenario_in(titan_with(batch + parallel, "mode = 'full'\n"));
  };
  const Scenario steps = job("local_batch_size = 8\nglobal_batch_size = 64\n");
  EXPECT_EQ(steps.samples_per_update(), 64);
  EXPECT_EQ(steps.shape.microbatches_per_update, 32u);
  EXPECT_EQ(steps.shape.accumulation_steps, 4u);
  const Scenario one = job("local_batch_size = 32\n");
  EXPECT_EQ(one.samples_per_update(), 64);
  EXPECT_EQ(one.shape.accumulation_steps, 1u);
  const std::string odd = titan_with("local_batch_size = 8\nglobal_batch_size = 40\n" + parallel);
  EXPECT_NE(odd.find("#   training.global_batch_size 40: it is no multiple"), std::string::npos)
      << odd;
  const Scenario flat =
      scenario_in(titan_with("local_batch_size = 2\nglobal_batch_size = 16\n"
                             "[parallelism]\ndata_parallel_shard_degree = 2\n"));
  EXPECT_EQ(flat.microbatch_size, 2);
  EXPECT_EQ(flat.shape.microbatches_per_update, 4u);
  EXPECT_EQ(flat.shape.accumulation_steps, 1u);
}

TEST(TorchtitanImport, SelectiveRecomputationIsByOperationOrByLayer) {
  const auto recompute = [](const std::string& text) { return scenario_in(text).recompute.at(0); };
  const std::string op = titan_with("", "mode = 'selective'\nselective_ac_option = 'op'\n");
  Recomputation by_op = Recompute::selective;
  by_op.parts = LayerPart::every_second_product;
  EXPECT_EQ(recompute(op), by_op) << op;
  EXPECT_EQ(scenario_in(op).missing_saves, "");
  EXPECT_NE(torchtitan_config(scenario_in(op)).find("selective_ac_option = \"op\""),
            std::string::npos);
  EXPECT_THROW(megatron_arguments(scenario_in(op)), InputError) << "it has no such module";
  const std::string pipeline = "[parallelism]\npipeline_parallel_degree = 4\n";
  const std::string layers =
      titan_with(pipeline, "mode = 'selective'\nselective_ac_option = '2'\n");
  EXPECT_EQ(recompute(layers), Recomputation::block(4)) << layers;  // of a stage's 8 layers
  EXPECT_EQ(recompute(titan_with("", "mode = 'selective'\nselective_ac_option = '1'\n")),
            Recompute::full);
  EXPECT_EQ(recompute(titan_with("", "mode = 'full'\nselective_ac_option = 'op'\n")),
            Recompute::full);
  const std::string nothing = titan_with("");
  EXPECT_EQ(recompute(nothing), Recomputation::block(16)) << nothing;
  EXPECT_NE(nothing.find("16 of the 32 layers of a stage (activation_checkpoint's default"),
            std::string::npos)
      << nothing;
}

TEST(TorchtitanImport, SaysWhatIsShardedAmongWhom) {
  const std::string hsdp = titan_with(
      "[parallelism]\ndata_parallel_shard_degree = 4\ndata_parallel_replicate_degree = 2\n");
  EXPECT_EQ(scenario_in(hsdp).sharding.group, 4) << hsdp;
  EXPECT_TRUE(scenario_in(hsdp).sharding.hybrid());
  EXPECT_EQ(scenario_in(hsdp).gpu_count(), 8);
  const Scenario context = scenario_in(
      titan_with("[parallelism]\ndata_parallel_shard_degree = 1\ncontext_parallel_degree = 4\n"));
  EXPECT_EQ(context.sharding.what, Sharded::weights) << "context ranks divide weights, too";
  EXPECT_EQ(context.sharding.group, 4);
  const auto gathering = [](const std::string& policy) {
    return scenario_in(titan_with("[parallelism]\ndata_parallel_shard_degree = 8\n"
                                  "fsdp_reshard_after_forward = \"" +
                                  policy + "\"\n"))
        .sharding.gathering;
  };
  EXPECT_EQ(gathering("default"), Gathering::each_pass);
  EXPECT_EQ(gathering("never"), Gathering::forward);
  const std::string ddp = titan_with(
      "[parallelism]\ndata_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 2\n");
  EXPECT_FALSE(scenario_in(ddp).sharding.sharded());
  EXPECT_EQ(ddp.find("FSDP"), std::string::npos) << ddp;
}

TEST(TorchtitanImport, AFlavorIsKnownOrAskedFor) {
  const auto parameters = [](const std::string& name, const std::string& flavor) {
    const Scenario s = scenario_in(scenario_of_torchtitan(
        fmt::format("[model]\nname = '{}'\nflavor = '{}'\n[training]\nseq_len = 2048\n", name,
                    flavor),
        "a.toml", ""));
    return static_cast<double>(s.transformer->parameters());
  };
  EXPECT_EQ(parameters("llama3", "8B"), 8'030'261'248);
  EXPECT_EQ(parameters("llama3", "8B_flex"), 8'030'261'248);
  EXPECT_EQ(parameters("llama3", "70B"), 70'553'706'496);
  EXPECT_EQ(parameters("llama3", "405B"), 405'853'388'800);
  EXPECT_EQ(parameters("qwen3", "0.6B"), 596'049'920);
  EXPECT_EQ(parameters("qwen3", "8B"), 8'190'735'360);
  EXPECT_EQ(parameters("qwen3", "14B"), 14'768'307'200);
  EXPECT_EQ(parameters("qwen3", "32B"), 32'762'123'264);
  EXPECT_EQ(parameters("llama2", "7B"), 6'738'415'616);
  const auto text = [](const std::string& model, const std::string& given = "") {
    return scenario_of_torchtitan(model + "[training]\nseq_len = 2048\n", "a.toml", "", {}, given);
  };
  const std::string moe = text("[model]\nname = 'deepseek_v3'\nflavor = '671B'\n");
  EXPECT_EQ(scenario_in(moe).missing, "");
  EXPECT_EQ(scenario_in(moe).transformer->parameters(),
            load_model("deepseek-v3-671b").parameters());
  EXPECT_NE(refused([&] {
              text("[model]\nname = 'qwen3'\nflavor = '99B'\n");
            }).find("'qwen3 99B' are not known here; give the model: --model config.json"),
            std::string::npos);
  EXPECT_NE(refused([&] { text(""); }).find("does not say which model it trains"),
            std::string::npos);
  EXPECT_EQ(scenario_in(text("", "gpt3-175b")).transformer->num_layers, 96);
  const char* const source = std::getenv("PENSTOCK_SOURCE");
  const std::string file =
      std::string(source != nullptr ? source : ".") + "/tests/scenarios/foreign/llama-3-8b.json";
  EXPECT_EQ(scenario_in(text("", file)).transformer->parameters(), 8'030'261'248);
  const std::string newer = scenario_of_torchtitan(
      "torchrun -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 4096 "
      "--training.local_batch_size 2",
      "run.sh", "");
  EXPECT_EQ(scenario_in(newer).transformer->num_layers, 32) << newer;
}

TEST(TorchtitanImport, WithoutFsdpAPipelineIsInFullPrecision) {
  const auto type = [](const std::string& parallelism) {
    return scenario_in(titan_with("[parallelism]\n" + parallelism)).transformer->compute_type;
  };
  EXPECT_EQ(type("pipeline_parallel_degree = 8\ndata_parallel_shard_degree = 1\n"), "fp32");
  EXPECT_EQ(type("tensor_parallel_degree = 8\ndata_parallel_shard_degree = 1\n"), "fp32");
  EXPECT_EQ(type("pipeline_parallel_degree = 4\ndata_parallel_shard_degree = 1\n"
                 "data_parallel_replicate_degree = 2\n"),
            "fp32");
  EXPECT_EQ(type("pipeline_parallel_degree = 4\n"), "bf16");  // the rest of the node: FSDP
  EXPECT_EQ(type("pipeline_parallel_degree = 4\ncontext_parallel_degree = 2\n"), "bf16");
  EXPECT_EQ(type("data_parallel_shard_degree = 1\n"), "bf16");  // autocast
}

TEST(TorchtitanImport, TheNumberOfGpusIsAskedForWhereItDecidesTheNumberType) {
  const auto import = [](const std::string& cluster, const ScriptSurroundings& defined = {}) {
    return scenario_of_torchtitan(
        "[model]\nname = 'llama3'\nflavor = '70B'\n[training]\nlocal_batch_size = 8\n"
        "seq_len = 8192\n[parallelism]\ndata_parallel_replicate_degree = 1\n"
        "data_parallel_shard_degree = -1\ntensor_parallel_degree = 8\n"
        "pipeline_parallel_degree = 1\n",
        "70b.toml", cluster, defined);
  };
  for (const char* cluster : {"", "dgx-h100"})
    EXPECT_NE(refused([&] {
                import(cluster);
              }).find("give --define nnodes=N, or --cluster '{base: NAME, nodes: N}'"),
              std::string::npos)
        << refused([&] { import(cluster); });
  const auto type = [](const std::string& text) {
    return fmt::format("{} on {}", scenario_in(text).transformer->compute_type,
                       scenario_in(text).gpu_count());
  };
  EXPECT_EQ(type(import("{base: dgx-h100, nodes: 4}")), "bf16 on 32");
  EXPECT_EQ(type(import("{base: dgx-h100, nodes: 1}")), "fp32 on 8");
  EXPECT_EQ(type(import("", {{"nnodes", "4"}})), "bf16 on 32");
  EXPECT_EQ(type(import("", {{"NGPU", "16"}})), "bf16 on 16");
}

TEST(TorchtitanImport, LayersPerStageCountTheEmbeddingAndTheOutput) {
  const auto job = [](const std::string& more) {
    return scenario_in(titan_with(
        "[parallelism]\npipeline_parallel_degree = 4\ndata_parallel_shard_degree = 2\n" + more));
  };
  const std::string looped = "pipeline_parallel_schedule = 'Interleaved1F1B'\n";
  const std::string per_stage = "pipeline_parallel_layers_per_stage = ";
  EXPECT_EQ(job(looped + per_stage + "3\n").layers,  // 34 of 12
            (std::vector<int>{2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1}));
  EXPECT_EQ(job(looped + per_stage +
                "2\npipeline_parallel_first_stage_less_layers = 0\n"
                "pipeline_parallel_last_stage_less_layers = 0\n")
                .layers,
            std::vector<int>(16, 2));
  EXPECT_EQ(job("pipeline_parallel_schedule = '1F1B'\n" + per_stage + "9\n").layers,
            (std::vector<int>{8, 9, 8, 7}));
  for (const auto& [more, why] :
       {std::pair{looped + per_stage + "2\n", "makes 17 virtual stages"},
        {looped + per_stage + "9\n", "takes at least 2 on each"},
        {"pipeline_parallel_schedule = '1F1B'\n" + per_stage + "3\n", "takes exactly 1 on each"}})
    EXPECT_NE(refused([&] { job(more); }).find(why), std::string::npos) << more;
}

TEST(TorchtitanImport, AScheduleThatTorchHasNotIsRefused) {
  const auto why = [](const std::string& name) {
    return refused([&] {
      titan_with("[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = '" +
                 name + "'\n");
    });
  };
  EXPECT_NE(why("FooBar").find("must be one of 1F1B, GPipe"), std::string::npos);
  EXPECT_NE(why("Interleaved1F1").find("did you mean Interleaved1F1B?"), std::string::npos);
  EXPECT_EQ(why("interleaved1f1b"), "");
}

TEST(TorchtitanImport, TheSharedFilesAreTheirJobs) {
  SKIP_WITHOUT_SHARED(shared_folder() / "cases");
  const Scenario qwen =
      scenario_in(scenario_of_torchtitan(shared_case("titan-qwen3.toml"), "q.toml", ""));
  EXPECT_EQ(qwen.transformer->parameters(), 32'762'123'264);
  EXPECT_EQ(qwen.missing + qwen.missing_saves, "");
  const Scenario pipeline =
      scenario_in(scenario_of_torchtitan(shared_case("titan-773.toml"), "t.toml", "dgx-a100"));
  EXPECT_EQ(pipeline.transformer->compute_type, "fp32");
  EXPECT_EQ(pipeline.gpu_count(), 8);
  // 34 of 16 virtual stages: the embedding and the output count as a layer each.
  EXPECT_EQ(pipeline.layers, (std::vector<int>{2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1}));
}

TEST(TorchtitanImport, EveryFlagComesOut) {
  const std::string text = scenario_of_torchtitan(
      "torchrun --banana 3 --rdzv_backend c10d --nproc_per_node=8 -m torchtitan.train "
      "--model.name llama3 --model.flavor 8B "
      "--training.dtype bfloat16 --training.mixed_precision_reduce "
      "float32 "
      "--training.mixed_precision_param float32",
      "run.sh", "");
  for (const char* line :
       {"#   rdzv_backend c10d", "#   banana 3", "#   training.mixed_precision_reduce float32"})
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  EXPECT_NE(text.find("#   training.dtype bfloat16: model.bytes_per_parameter"), std::string::npos);
  EXPECT_NE(text.find("precision: fp32"), std::string::npos) << text;
}

TEST(TorchtitanImport, AClusterWithNodesCountsTheGpus) {
  const std::string text = scenario_of_torchtitan(
      kTitan.substr(0, kTitan.find("data_parallel_shard_degree = 2")) +
          "data_parallel_shard_degree = -1\n" + kTitan.substr(kTitan.find("tensor_parallel")),
      "a.toml", "{base: dgx-a100, nodes: 16}");
  EXPECT_EQ(scenario_in(text).mesh.most(), 4) << text;
  EXPECT_EQ(scenario_in(text).gpu_count(), 128) << text;
}

TEST(TorchtitanImport, ConvertersAreTypesOfProducts) {
  const auto text = [](const std::string& converters) {
    return scenario_of_torchtitan("[model]\nname = 'llama3'\nflavor = '8B'\nconverters = " +
                                      converters + "\n[training]\nlocal_batch_size = 2\n",
                                  "a.toml", "");
  };
  const auto precision = [&](const std::string& converters) {
    const std::string all = text(converters);
    const std::size_t at = all.find("  precision: ") + 13;
    return all.substr(at, all.find('\n', at) - at);
  };
  EXPECT_EQ(precision("[]"), "mixed-bf16");
  EXPECT_TRUE(has_line(text("[]"), "#   model.converters []"));
  // torchao converts the LM head, too, unless a filter names it.
  EXPECT_EQ(precision("[\"float8\"]"), "{base: fp8-current, head: fp8-current}");
  const std::string filter = "\n[quantize.linear.float8]\nfilter_fqns = ['output']";
  EXPECT_TRUE(has_line(text("[]" + filter), "#   quantize.linear.float8.filter_fqns ['output']"));
  EXPECT_EQ(precision("['quantize.linear.float8']" + filter), "fp8-current");
  EXPECT_EQ(precision("['float8']\n[float8]\nrecipe_name = 'rowwise'\nfilter_fqns = ['output']"),
            "fp8-rowwise");
  EXPECT_EQ(precision("['float8']\n[float8]\nenable_fsdp_float8_all_gather = true\n"
                      "filter_fqns = ['output']"),
            "{base: fp8-current, linear_weights: narrow}");
  EXPECT_EQ(precision("['mx']\n[mx]\nrecipe_name = 'mxfp8_cublas'\nfilter_fqns = ['output']"),
            "mxfp8");
  EXPECT_EQ(precision("[]\n[float8]\nenable_float8_linear = true"),
            "{base: fp8-current, head: fp8-current}");
  EXPECT_EQ(precision("[]\n[float8]\nenable_float8_linear = false"), "mixed-bf16");
}

TEST(TorchtitanImport, AScriptsFileIsReadAndItsFlagsGoOverIt) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("penstock_titan_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "job.toml") << kTitan;
  const auto import = [&](const std::string& file) {
    return scenario_of_torchtitan(
        "torchrun --nproc_per_node=8 --nnodes $N -m torchtitan.train "
        "--job.config_file " +
            file + " --parallelism.pipeline_parallel_degree 8",
        (folder / "run.sh").string(), "", {{"N", "16"}});
  };
  for (const char* file : {"job.toml", "train_configs/job.toml"}) {
    const Scenario s = scenario_in(import(file));
    EXPECT_EQ(s.shape.depth, 8u) << file;
    EXPECT_EQ(s.mesh.size(Axis::tensor), 8) << file;
    EXPECT_EQ(s.transformer->num_layers, 80) << file;
  }
  try {
    import("other.toml");
    FAIL() << "took a job without its file";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("put it there, or import that file instead"),
              std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

TEST(TorchtitanImport, NoTextIsTooOdd) {
  for (const char* odd :
       {"[parallelism]\na=\n", "[parallelism\n=\nx.y=3\n", "[training]\nseq_len='",
        "training.x = \"\n", "parallelism.a = \xff\xfe\n"}) {
    try {
      scenario_in(scenario_of_torchtitan(odd, "a.toml", ""));
    } catch (const InputError&) {
    }
  }
  EXPECT_THROW(scenario_of_torchtitan("", "a.toml", ""), InputError);
}

TEST(TorchtitanConfig, IsReadAsTheJobThatItIsOf) {
  const char* const kJobs[] = {
      "schedule: 1f1b\npipeline: {stages: 1, width: 16, microbatch_size: 2, microbatches: 4, "
      "shard: "
      "weights}\n",
      "schedule: 1f1b\npipeline: {stages: 1, width: 16, microbatch_size: 1, microbatches: 2, "
      "shard: "
      "weights, shard_group: 8, reshard_after_forward: never, recompute: full}\n",
      "schedule: interleaved-1f1b-torch\npipeline: {stages: 2, chunks: 2, width: 2, tensor: 4, "
      "sequence_parallel: true, microbatch_size: 1, microbatches: 8, split: [8, 9, 8, 7], shard: "
      "weights}\n",
      "schedule: 1f1b\npipeline: {stages: 2, width: 4, context: 2, microbatch_size: 1, "
      "microbatches: 8, split: even, shard: weights}\n"};
  for (const char* job : kJobs) {
    const Scenario s = parse_scenario(
        fmt::format("model: {{base: llama-3.1-8b, seq_length: 8192}}\ncluster: {{base: dgx-h100, "
                    "nodes: 2}}\nstack: torchtitan-eager\n{}",
                    job),
        "test.yaml");
    const std::string text = torchtitan_config(s);
    const Scenario back =
        scenario_in(scenario_of_torchtitan(text, "a.toml", "{base: dgx-h100, nodes: 2}"));
    EXPECT_EQ(back.schedule->name, s.schedule->name) << text;
    EXPECT_EQ(back.shape.depth, s.shape.depth) << text;
    EXPECT_EQ(back.layers, s.layers) << text;
    EXPECT_EQ(back.sharding, s.sharding) << text;
    EXPECT_EQ(back.mesh.inner, s.mesh.inner) << text;
    EXPECT_EQ(back.mesh.width.at(0), s.mesh.width.at(0)) << text;
    EXPECT_EQ(back.microbatch_size, s.microbatch_size) << text;
    EXPECT_EQ(back.shape.microbatches_per_update, s.shape.microbatches_per_update) << text;
    EXPECT_EQ(back.recompute.at(0), s.recompute.at(0)) << text;
    EXPECT_EQ(back.transformer->parameters(), s.transformer->parameters()) << text;
  }
  const auto refused = [](const std::string& pipeline) {
    try {
      torchtitan_config(
          parse_scenario("model: {base: llama-3.1-8b, seq_length: 8192}\ncluster: dgx-h100\nstack: "
                         "none\nschedule: "
                         "1f1b\npipeline: {" +
                             pipeline + "}\n",
                         "test.yaml"));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused("stages: 1, width: 8, shard: optimizer").find("shard: weights"),
            std::string::npos);
  EXPECT_NE(refused("stages: 2, microbatches: 2, split: [20, 12]").find("of 2 stages: 16 16"),
            std::string::npos);
  EXPECT_NE(refused("stages: 1, width: 4, tensor: 2").find("has it always"), std::string::npos);
  EXPECT_NE(refused("stages: 1, width: 4, context: 2").find("divide weights, too"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::config_import_test
