// SPDX-License-Identifier: Apache-2.0
// Launch scripts of Megatron-LM as scenarios.
#include "base/error.hpp"
#include "scenarios/document.hpp"
#include "scenarios/megatron_arguments.hpp"
#include "scenarios/megatron_import.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/shell_words.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace penstock::megatron_import_test {
namespace {

const std::string kScript =
    "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    "GPUS_PER_NODE=8\nNNODES=8\n"
    "DISTRIBUTED_ARGS=\"--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_port 6000\"\n"
    "MODEL=(--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672\n"
    "  --num-attention-heads 64 --group-query-attention --num-query-groups 8\n"
    "  --seq-length 8192 --max-position-embeddings 8192 --swiglu --normalization RMSNorm\n"
    "  --untie-embeddings-and-output-weights --disable-bias-linear\n"
    "  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3-70B)\n"
    "torchrun $DISTRIBUTED_ARGS pretrain_gpt.py ${MODEL[@]} --bf16 \\\n"
    "  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --sequence-parallel \\\n"
    "  --num-layers-per-virtual-pipeline-stage 10 --micro-batch-size 1 --global-batch-size 1024 "
    "\\\n"
    "  --use-distributed-optimizer --overlap-grad-reduce --lr 1e-4 --context-parallel-size 2 \\\n"
    "  --cp-comm-type a2a \\\n"
    "  --frobnicate 7\n";

/// A whole job; of a flag that stands twice the later one counts.
const std::string kJob =
    "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--vocab-size 50257 --bf16 --micro-batch-size 1 --global-batch-size 64 ";

std::string imported(const std::string& flags, const std::string& cluster = "") {
  return scenario_of_megatron(kJob + flags, "x.sh", cluster);
}

Scenario job_of(const std::string& flags) { return parse_scenario(imported(flags), "test.yaml"); }

std::string refusal_of(const std::string& text, const std::string& origin = "x.sh",
                       const ScriptSurroundings& defined = {}, const std::string& model = "") {
  try {
    scenario_of_megatron(text, origin, "", defined, model);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Megatron, LearnedPositionsHaveTheRowsOfTheirFlag) {
  const auto rows = [](const std::string& flags) {
    return job_of(flags).transformer->learned_positions();
  };
  EXPECT_EQ(rows("--max-position-embeddings 8192"), 8192);
  EXPECT_EQ(rows("--max-position-embeddings 2048"), 4096) << "Megatron-LM would not start";
  EXPECT_EQ(rows(""), 4096);
  EXPECT_EQ(rows("--max-position-embeddings 8192 --position-embedding-type rope"), 0);
}

TEST(Megatron, DropoutComesBackFromAnExport) {
  for (const char* model : {"{base: llama-3-8b}", "{base: llama-3-8b, dropout: true}",
                            "{base: gpt-2.2b}", "{base: gpt-2.2b, dropout: false}"}) {
    const Scenario s =
        parse_scenario(fmt::format("model: {}\ncluster: dgx-h100\nstack: megatron\nschedule: 1f1b\n"
                                   "transfers: coupled\npipeline: {{stages: 8, microbatches: 8}}\n",
                                   model),
                       "test.yaml");
    const Scenario back =
        parse_scenario(scenario_of_megatron(megatron_arguments(s), "x.sh", ""), "test.yaml");
    EXPECT_EQ(back.transformer->form().dropout, s.transformer->form().dropout) << model;
  }
}

TEST(Megatron, AScriptBecomesItsScenario) {
  const Scenario s = parse_scenario(scenario_of_megatron(kScript, "run.sh", ""), "test.yaml");
  ASSERT_TRUE(s.transformer);
  EXPECT_EQ(s.transformer->num_layers, 80);
  EXPECT_EQ(s.transformer->family, Family::llama);
  EXPECT_EQ(s.transformer->num_query_groups, 8);
  EXPECT_EQ(s.transformer->vocab_size, 128'256);
  EXPECT_FALSE(s.transformer->tie_embeddings);
  EXPECT_EQ(s.schedule->name, "interleaved-1f1b");
  EXPECT_EQ(s.shape.depth, 4U);
  EXPECT_EQ(s.shape.chunks, 2U);
  EXPECT_EQ(s.mesh.size(Axis::tensor), 4);
  EXPECT_TRUE(s.sequence_parallel);
  EXPECT_TRUE(s.distributed_optimizer);
  EXPECT_EQ(s.mesh.size(Axis::context), 2);
  EXPECT_EQ(s.mesh.most(), 2) << "64 GPUs, of which 4 x 4 x 2 hold a replica";
  EXPECT_EQ(s.samples_per_update(), 1024);
}

TEST(Megatron, EveryFlagHasALine) {
  const std::string text = scenario_of_megatron(kScript, "run.sh", "dgx-a100");
  for (const ScriptOption& option : script_options(kScript))
    EXPECT_NE(text.find("#   --" + option.name), std::string::npos) << option.name;
  const auto under = [&](const std::string& title, const std::string& flag) {
    std::istringstream lines(text);
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("#   ")) inside = line.starts_with(title);
      if (inside && line.starts_with(flag)) return true;
    }
    return false;
  };
  EXPECT_TRUE(under("# cannot be modelled", "#   --cp-comm-type a2a: context")) << text;
  EXPECT_TRUE(under("# not known here", "#   --frobnicate 7")) << text;
  EXPECT_TRUE(under("# changes nothing", "#   --lr 1e-4")) << text;
  EXPECT_NE(text.find("base: dgx-a100"), std::string::npos);
}

TEST(Megatron, TheNameSaysWhatIsMissing) {
  const auto name = [](const std::string& script) {
    return parse_scenario(scenario_of_megatron(script, "jobs/run.sh", ""), "test.yaml").name;
  };
  EXPECT_EQ(name(kJob), "run.sh");
  EXPECT_EQ(name(kJob + "--num-experts 8 --expert-model-parallel-size 8"),
            "run.sh, without --num-experts, --expert-model-parallel-size");
  EXPECT_EQ(name(kScript), "run.sh, without --cp-comm-type");
}

TEST(Megatron, SizesThatAreNotThereAreAskedForAtOnce) {
  EXPECT_EQ(
      refusal_of("pretrain_gpt.py --num-layers 24 --hidden-size a --bf16 --use-checkpoint-args"),
      "x.sh: it does not say --seq-length, --hidden-size, --num-attention-heads, --vocab-size, "
      "--micro-batch-size, without which it would be another job; give --define seq-length=N "
      "--define hidden-size=N --define num-attention-heads=N --define vocab-size=N --define "
      "micro-batch-size=N, or --model config.json|NAME, which gives the sizes of the model");
}

TEST(Megatron, ATypoOfWhatIsAskedForIsSaid) {
  const std::string said = refusal_of(
      "pretrain_gpt.py --num-layer 24 --hiden-size 1024 --bf16 "
      "--num-attention-heads 16 --seq-length 1024 --vocab-size 50257 "
      "--micro-batch-size 1 --tensor-model-parallel-size 1");
  EXPECT_NE(said.find("--num-layers (--num-layer is not known)"), std::string::npos) << said;
  EXPECT_NE(said.find("--hidden-size (--hiden-size is not known)"), std::string::npos) << said;
}

/// Published counts of parameters, from flags.
TEST(Megatron, LayersUnlikeTheirFamilysAreSaid) {
  const struct {
    const char* flags;
    std::int64_t parameters;
  } kCases[] = {
      {"--swiglu --normalization RMSNorm --num-layers 36 --hidden-size 2560 --ffn-hidden-size 9728 "
       "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 "
       "--qk-layernorm --vocab-size 151936 --position-embedding-type rope --disable-bias-linear",
       4'022'468'096},  // Qwen3-4B: heads wider than hidden / heads
      {"--swiglu --normalization RMSNorm --num-layers 28 --hidden-size 3584 --ffn-hidden-size "
       "18944 "
       "--num-attention-heads 28 --group-query-attention --num-query-groups 4 --add-qkv-bias "
       "--untie-embeddings-and-output-weights --vocab-size 152064 --position-embedding-type rope "
       "--disable-bias-linear",
       7'615'616'512},  // Qwen2.5-7B
  };
  for (const auto& [flags, parameters] : kCases)
    EXPECT_EQ(job_of(flags).transformer->parameters(), parameters) << flags;
}

/// A gated MLP alone is a llama's, which a line says; what flags say counts.
TEST(Megatron, FlagsSayWhatALayerHasBesideAGatedMlp) {
  const struct {
    const char *flags, *keys;
  } kCases[] = {
      {"--swiglu", "(positions, norm, biases as a llama has them"},
      {"--swiglu --normalization RMSNorm --use-rotary-position-embeddings",
       "(biases as a llama has them"},
      {"--swiglu --position-embedding-type learned_absolute --normalization LayerNorm",
       "  positions: learned\n  norm: layer\n"},
      {"--swiglu --position-embedding-type rope --disable-bias-linear --add-qkv-bias",
       "  biases: qkv\n"},
      {"--disable-bias-linear --add-qkv-bias", "  biases: qkv\n"},
      {"--hidden-dropout 0 --attention-dropout 0.0", "  dropout: false\n"},
      {"--swiglu --hidden-dropout 0.1", "  dropout: true\n"},
      {"--window-size 4095,0 --window-attn-skip-freq 6",
       "  sliding_window: 4096\n  full_attention_every: 6\n"},
  };
  for (const auto& [flags, keys] : kCases) {
    const std::string text = imported(flags);
    EXPECT_NE(text.find(keys), std::string::npos) << flags << "\n" << text;
    EXPECT_NO_THROW(parse_scenario(text, "test.yaml")) << text;
  }
  const std::string llama = imported(
      "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear");
  for (const char* key : {"  norm:", "  positions:", "  biases:"})
    EXPECT_EQ(llama.find(std::string("\n") + key), std::string::npos) << llama;
  EXPECT_EQ(imported("--hidden-dropout 0").find("\n  dropout:"), std::string::npos);
}

TEST(Megatron, WhatMegatronRefusesIsAnError) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--pipeline-model-parallel-size 3 --nnodes 1 --nproc-per-node 8",
       "8 GPUs are no multiple of 3 (stages x tensor x context), which Megatron-LM refuses"},
      {"--tensor-model-parallel-size 3 --nproc-per-node 8", "8 GPUs are no multiple of 3"},
      {"--pipeline-model-parallel-size 16 --world-size 8", "8 GPUs are no multiple of 16"},
      {"--num-layers-per-virtual-pipeline-stage 4",
       "4 layers per virtual stage without pipeline parallelism"},
      {"--num-virtual-stages-per-pipeline-rank 2", "2 virtual stages without pipeline parallelism"},
      {"--swiglu --hidden-size 8 --num-attention-heads 1", "it does not say --ffn-hidden-size"}};
  for (const auto& [flags, why] : kCases)
    EXPECT_NE(refusal_of(kJob + flags).find(why), std::string::npos)
        << flags << ": " << refusal_of(kJob + flags);
}

TEST(Megatron, ItsStackIsDeepSpeedsOnlyWithDeepSpeed) {
  const auto stack = [](const std::string& launcher) {
    return parse_scenario(scenario_of_megatron(launcher + kJob, "x.sh", ""), "test.yaml")
        .stack.name;
  };
  EXPECT_EQ(stack("srun --num-gpus 8 "), "megatron");
  EXPECT_EQ(stack("deepspeed --num_gpus 8 "), "megatron-deepspeed");
  EXPECT_EQ(stack("torchrun --nproc-per-node 8 /opt/deepspeed/"), "megatron");
}

TEST(Megatron, AnFp32JobIsSaid) {
  const std::string job =
      "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 "
      "--vocab-size 100 --micro-batch-size 1 ";
  const char* const kLine = "#   model.precision: fp32, as neither --bf16 nor --fp16 is given\n";
  EXPECT_NE(scenario_of_megatron(job, "x.sh", "").find(kLine), std::string::npos);
  EXPECT_EQ(scenario_of_megatron(job + "--bf16", "x.sh", "").find(kLine), std::string::npos);
}

TEST(Megatron, ProgramsThatPretrainNothingAreRefused) {
  for (const char* program :
       {"tools/run_text_generation_server.py", "tools/checkpoint/convert.py",
        "tools/preprocess_data.py", "train_dpo.py", "train_grpo.py", "train_rl.py",
        "examples/multimodal/train.py", "examples/inference/gpt/gpt_static_inference.py",
        "pretrain_gpt.py --export-kd-teacher-load /t"})
    EXPECT_NE(refusal_of("torchrun " + std::string(program) + kJob.substr(kJob.find(' '))), "")
        << program;
  const std::string text =
      scenario_of_megatron("torchrun run.py" + kJob.substr(kJob.find(' ')), "x.sh", "");
  EXPECT_NE(text.find("'run.py' pretrains a GPT (its name does not say"), std::string::npos)
      << text;
}

TEST(Megatron, OnlyNearNamesAreSuggested) {
  EXPECT_EQ(imported("--model-type llama_2").find("did you mean"), std::string::npos);
}

TEST(Megatron, AFileOfFlagsThatIsNotThereIsSaid) {
  const std::string said = refusal_of("torchrun pretrain_gpt.py --yaml-cfg conf.yaml");
  EXPECT_NE(said.find("the file of --yaml-cfg, 'conf.yaml', is not beside it"), std::string::npos)
      << said;
}

TEST(Megatron, ADefinedFlagIsAFlag) {
  const std::string script =
      "pretrain_gpt.py --num-layers 24 --hidden-size 1024 --bf16 "
      "--num-attention-heads $HEADS --seq-length 1024 --vocab-size 50257";
  const Scenario s = parse_scenario(
      scenario_of_megatron(script, "x.sh", "",
                           {{"micro-batch-size", "2"}, {"HEADS", "16"}, {"num_layers", "12"}}),
      "test.yaml");
  EXPECT_EQ(s.microbatch_size, 2);
  EXPECT_EQ(s.transformer->num_layers, 12) << "a definition goes over the script's";
  EXPECT_EQ(s.transformer->num_attention_heads, 16);
}

TEST(Megatron, LaunchersSayHowManyGpusThereAre) {
  const struct {
    const char* launcher;
    std::int64_t gpus;
    const char* cluster;
  } kCases[] = {
      {"mpirun -np 32 -npernode 4 python ", 32, "{base: dgx-h100, nodes: 8}"},
      {"srun -n 16 --ntasks-per-node 8 python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"srun -N 4 -n 16 python ", 16, "{base: dgx-h100, nodes: 4}"},
      {"#SBATCH --gres=gpu:a100:4\n#SBATCH -N 2\n", 8, "{base: dgx-a100, nodes: 2}"},
      {"#SBATCH --gpus-per-node=h200:4\n#SBATCH -N 2\n", 8, "{base: dgx-h200, nodes: 2}"},
      {"#SBATCH --gpus-per-node 4\n#SBATCH -N 2\n", 8, "{base: dgx-h100, nodes: 2}"},
      {"#SBATCH --ntasks=1 --gpus-per-node=8\n", 8, "{base: dgx-h100, nodes: 1}"},
      {"#SBATCH --gpus=16\nsrun python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"srun --gpus=16 --ntasks-per-node 8 python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"#SBATCH --gpus=64 --nodes=2\ntorchrun --nnodes 2 --nproc_per_node 8 ", 16,
       "{base: dgx-h100, nodes: 2}"},
      {"srun -n 2 torchrun --nnodes 2 --nproc_per_node 8 ", 16, "{base: dgx-h100, nodes: 2}"},
  };
  for (const auto& [launcher, gpus, cluster] : kCases) {
    const std::string text = scenario_of_megatron(launcher + kJob, "x.sh", "");
    EXPECT_EQ(parse_scenario(text, "test.yaml").mesh.most(), gpus) << text;
    EXPECT_NE(text.find(std::string("\ncluster: ") + cluster), std::string::npos) << text;
  }
}

TEST(Megatron, ProductsBeyondAllJobsAreErrors) {
  for (const char* flags :
       {"--tensor-model-parallel-size 65536 --pipeline-model-parallel-size 65536 "
        "--context-parallel-size 65536 --nnodes 65536",
        "--nnodes 1000000 --nproc-per-node 1000000"})
    EXPECT_NE(refusal_of(kJob + flags).find("GPUs are more than 1000000000"), std::string::npos)
        << refusal_of(kJob + flags);
}

TEST(Megatron, ManyUnknownFlagsAreReadAtOnce) {
  std::string flags;
  for (int i = 0; i < 15'000; ++i) flags += "--unknown-flag-" + std::to_string(i) + " ";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(imported(flags).find("#   --unknown-flag-14999\n"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST(Megatron, AModelGivesItsSizes) {
  const Scenario s = parse_scenario(
      scenario_of_megatron("pretrain_gpt.py --use-checkpoint-args --bf16 --seq-length 2048 "
                           "--micro-batch-size 1 --pipeline-model-parallel-size 4 --nnodes 1",
                           "x.sh", "", {}, "llama-3-8b"),
      "test.yaml");
  EXPECT_EQ(s.transformer->parameters(), 8'030'261'248);
  EXPECT_EQ(s.transformer->seq_length, 2048);
}

TEST(Megatron, NumbersThatAreNoneAreErrorsWithTheirLine) {
  const std::string said = refusal_of(kJob +
                                      "\\\n --num-layers -24 --hidden-size 2.4e1 \\\n"
                                      " --tensor-model-parallel-size 2000000000");
  for (const char* part :
       {"x.sh:2:2: --num-layers must be an integer from 1 to 1000000, got '-24'",
        "x.sh:2:19: --hidden-size must be an integer from 1 to 1000000, got '2.4e1'",
        "x.sh:3:2: --tensor-model-parallel-size must be an integer from 1 to 1000000"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST(Megatron, OtherModelsThanAGptAreRefused) {
  const char* const kCases[][2] = {
      {"torchrun pretrain_t5.py --encoder-num-layers 12 --decoder-num-layers 12 --hidden-size 768",
       "'pretrain_t5.py' trains no decoder-only GPT: T5 has an encoder"},
      {"run --encoder-num-layers 12 --decoder-num-layers 12 --hidden-size 768",
       "'--decoder-num-layers' trains no decoder-only GPT"},
      {"S=pretrain_mamba.py\ntorchrun $S --num-layers 48 --hidden-size 2048", "state-space"},
      {"run --num-layers 48 --hybrid-override-pattern M-M*", "layers are of several kinds"},
      {"run --num-layers 4 --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec",
       "state-space"},
      {"python pretrain_vlm.py --num-layers 4", "vision encoder"},
      {"python pretrain_retro.py --num-layers 4", "Retro"},
      {"python pretrain_gpt_retro.py --num-layers 4", "Retro"},
      {"python pretrain_ict.py --num-layers 4", "two encoders"},
      {"python pretrain_vision_classify.py --num-layers 4", "images"},
  };
  for (const auto& [script, why] : kCases) {
    const std::string said = refusal_of(script);
    EXPECT_NE(said.find(why), std::string::npos) << script << "\n" << said;
    EXPECT_NE(said.find("a model by costs"), std::string::npos) << "what to do: " << said;
  }
  EXPECT_EQ(refusal_of("# not pretrain_t5.py\npython tools/preprocess_vision.py\n" + kJob), "");
}

TEST(Megatron, BertIsBert) {
  const Scenario s = parse_scenario(
      scenario_of_megatron("pretrain_bert.py --num-layers 24 --hidden-size 1024 --bf16 "
                           "--num-attention-heads 16 --seq-length 512 --micro-batch-size 4 "
                           "--tokenizer-type BertWordPieceLowerCase --bert-no-binary-head",
                           "x.sh", ""),
      "test.yaml");
  EXPECT_EQ(s.transformer->family, Family::bert);
  EXPECT_EQ(s.transformer->vocab_size, 30'522);
}

TEST(Megatron, TokenizersAreKnownOrAskedFor) {
  const std::string job =
      "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads "
      "32 --seq-length 4096 --bf16 --micro-batch-size 1 --tokenizer-type ";
  const std::pair<const char*, int> kKnown[] = {
      {"HuggingFaceTokenizer --tokenizer-model Qwen/Qwen2.5-7B", 152'064},
      {"GPT2BPETokenizer --vocab-file v.json", 50'257},
      {"Llama2Tokenizer --tokenizer-model /data/tokenizer.model", 32'000},
      {"HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B", 128'256},
      {"SentencePieceTokenizer --tokenizer-model /x/Llama-2-7b-hf/tokenizer.model", 32'000}};
  for (const auto& [tokenizer, vocabulary] : kKnown)
    EXPECT_EQ(parse_scenario(scenario_of_megatron(job + tokenizer, "x.sh", ""), "test.yaml")
                  .transformer->vocab_size,
              vocabulary)
        << tokenizer;
  for (const char* unknown :
       {"HuggingFaceTokenizer --tokenizer-model acme/own",
        "SentencePieceTokenizer --tokenizer-model /x/t.model", "NullTokenizer"})
    EXPECT_NE(refusal_of(job + unknown).find("--define vocab-size=N"), std::string::npos)
        << unknown;
}

TEST(Megatron, AFlagAtItsNeutralValueIsNoNews) {
  for (const char* flag : {"--kv-channels 128", "--num-experts 1", "--moe-expert-parallel-size 1",
                           "--context-parallel-size 1", "--fp8-format none", "--mtp-num-layers 0",
                           "--cp-comm-type p2p", "--expert-model-parallel-size 1",
                           "--moe-router-topk 2", "--optimizer adam", "--recompute-num-layers 0",
                           "--data-parallel-sharding-strategy no_shard", "--main-grads-dtype fp32",
                           "--window-size none", "--hybrid-attention-ratio 0.0",
                           "--window-size -1,0", "--num-distributed-optimizer-instances 1"}) {
    const Scenario s = job_of(flag);
    EXPECT_EQ(s.left_out(), "") << flag;
    EXPECT_EQ(s.name, "x.sh") << flag << ": nothing is missing";
    EXPECT_EQ(imported(flag).find("# not known"), std::string::npos) << flag;
  }
}

TEST(Megatron, SelectiveRecomputationIsOfTheModulesThatAreNamed) {
  const auto parts = [](const std::string& modules) {
    const std::string flags = "--recompute-granularity selective" + modules;
    return job_of(flags).recompute.at(0).parts;
  };
  EXPECT_EQ(parts(""), LayerPart::core_attn);
  EXPECT_EQ(parts(" --recompute-modules core_attn"), LayerPart::core_attn);
  EXPECT_EQ(parts(" --recompute-modules mlp"), LayerPart::mlp);
  EXPECT_EQ(parts(" --recompute-modules layernorm moe_act mla_up_proj"),
            LayerParts(LayerPart::layernorm) | LayerPart::moe_act);
}

TEST(Megatron, WhatIsLeftOutSaysWhichWayMemoryErrs) {
  const struct {
    const char *flags, *more, *less;
  } kCases[] = {
      {"--num-experts 8", "the other experts' weights, routing and all-to-all", ""},
      {"--multi-latent-attention --kv-lora-rank 512", "multi-latent attention", ""},
      {"--mtp-num-layers 1", "the layers of multi-token prediction", ""},
      {"--use-torch-fsdp2", "", "sharded gradients and weights"},
      {"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "",
       "sharded gradients"},
      {"--use-megatron-fsdp --data-parallel-sharding-strategy optim", "", ""},
      {"--optimizer-cpu-offload", "", "offloading"},
      {"--cpu-offloading --cpu-offloading-num-layers 4", "", "offloading"},
      {"--recompute-granularity selective --recompute-modules core_attn moe", "",
       "the recomputation of moe"},
      {"--recompute-granularity selective --recompute-modules core_attn mlp", "", ""},
      {"--zero-stage 2", "", "sharded gradients"},
      {"--num-experts 8 --zero-stage 3", "the other experts' weights, routing and all-to-all",
       "sharded gradients and weights"},
      {"--use-distributed-optimizer --num-distributed-optimizer-instances 2",
       "the optimizer's several instances", ""},
      {"--lora-rank 8", "", "frozen weights"},
      {"--peft-type lora", "", "frozen weights"},
      {"--peft-type none", "", ""},
      {"--train-type lora", "", "frozen weights"},
      {"--train-type full", "", ""},
      {"--freeze-LM", "", "frozen weights"},
      {"--optimizer shampoo", "the state of shampoo", "the state of shampoo"},
  };
  for (const auto& [flags, more, less] : kCases) {
    const Scenario s = job_of(flags);
    EXPECT_EQ(s.missing, more) << flags;
    EXPECT_EQ(s.missing_saves, less) << flags;
  }
}

TEST(Megatron, ATypoBesideHarmlessFlagsGetsASuggestion) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--tensor-model-paralel-size 8", "did you mean --tensor-model-parallel-size?"},
      {"--use-distributed-optimiser", "did you mean --use-distributed-optimizer?"},
      {"--data-parallel-sharding-stategy optim", "did you mean --data-parallel-sharding-strategy?"},
      {"--micro-batchsize 4", "did you mean --micro-batch-size?"}};
  for (const auto& [typo, meant] : kCases)
    EXPECT_NE(imported(std::string("--lr 1 --log-interval 5 ") + typo).find(meant),
              std::string::npos)
        << imported(typo);
}

TEST(Megatron, WhatAParameterCostsFollowsFromItsFlags) {
  const struct {
    const char* flags;
    double weights, gradients, optimizer;
  } kCases[] = {
      {"", 2, 4.77, 12},
      {"--grad-reduce-in-bf16", 2, 2, 12},
      {"--optimizer sgd", 2, 4.77, 8},
      {"--optimizer sgd --sgd-momentum 0.0", 2, 4.77, 4},
      {"--optimizer lion", 2, 4.77, 8},
      {"--use-precision-aware-optimizer --main-grads-dtype bf16 --exp-avg-dtype bf16 "
       "--exp-avg-sq-dtype bf16",
       2, 2, 8},
      {"--use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-dtype fp8", 2, 4.77, 7},
  };
  for (const auto& [flags, weights, gradients, optimizer] : kCases) {
    const ParameterBytes bytes = job_of(flags).transformer->bytes;
    EXPECT_DOUBLE_EQ(bytes.weights, weights) << flags;
    EXPECT_DOUBLE_EQ(bytes.gradients, gradients) << flags;
    EXPECT_DOUBLE_EQ(bytes.optimizer, optimizer) << flags;
  }
  const double muon = job_of("--optimizer muon").transformer->bytes.optimizer;
  EXPECT_GT(muon, 8);
  EXPECT_LT(muon, 8.5) << "32 x 12 x 4096^2 of 6.6e9 parameters are matrices of layers";
  const auto fp16 = [](const std::string& more) {
    return parse_scenario(
               scenario_of_megatron("pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
                                    "--num-attention-heads 32 --seq-length 4096 --vocab-size 50257 "
                                    "--micro-batch-size 1 --fp16 " +
                                        more,
                                    "x.sh", ""),
               "test.yaml")
        .transformer->bytes.gradients;
  };
  EXPECT_DOUBLE_EQ(fp16("--optimizer sgd"), 2);
  EXPECT_DOUBLE_EQ(fp16(""), 2) << "summed in fp32 by default with --bf16 only";
  EXPECT_DOUBLE_EQ(fp16("--accumulate-allreduce-grads-in-fp32"), 4.77);
}

TEST(Megatron, RecomputationOf2021IsUnderstood) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--checkpoint-activations", "recompute: full\n"},
      {"--checkpoint-activations --checkpoint-num-layers 2",
       "recompute: full\n  recompute_method: uniform\n  recompute_layers: 2\n"},
      {"--activations-checkpoint-method uniform", "recompute: full\n"},
      {"--activations-checkpoint-method block --activations-checkpoint-num-layers 3",
       "recompute: full\n  recompute_method: block\n  recompute_layers: 3\n"},
      {"--activations-checkpoint-granularity selective", "recompute: selective\n"}};
  for (const auto& [flags, keys] : kCases) {
    const std::string text = imported(flags);
    EXPECT_NE(text.find(keys), std::string::npos) << text;
    EXPECT_EQ(text.find("# not known"), std::string::npos) << text;
  }
}

TEST(Megatron, ALayoutCountsTheChunks) {
  const Scenario s = job_of(
      "--pipeline-model-parallel-size 4 --nnodes 1 "
      "--pipeline-model-parallel-layout 'Et*3|(t*4|)*6,t*5L'");
  EXPECT_EQ(s.shape.chunks, 2U);
  EXPECT_EQ(s.schedule->name, "interleaved-1f1b");
}

TEST(Megatron, ALayoutWhoseLossIsNotLastIsAnError) {
  EXPECT_NE(refusal_of(kJob + "--num-layers 4 --pipeline-model-parallel-size 4 "
                              "--pipeline-model-parallel-layout 'Et|tt|tL|'")
                .find("the loss ('L') must be in the last stage"),
            std::string::npos);
}

TEST(MegatronDeepSpeed, IsItsOwnDialect) {
  const Scenario s = parse_scenario(
      scenario_of_megatron(
          "deepspeed --num_nodes 4 --num_gpus 8 pretrain_gpt.py --tensor-model-parallel-size 4 "
          "--pipeline-model-parallel-size 4 --num-layers 40 --hidden-size 5120 "
          "--num-attention-heads 40 --num-key-value-heads 8 --num-experts 1 --seq-length 2048 "
          "--micro-batch-size 2 --global-batch-size 1024 --fp16 --vocab-size 50257 "
          "--checkpoint-activations --deepspeed --zero-stage 1 --deepspeed_config ds.json "
          "--enable-zbh1-pipeline",
          "x.sh", ""),
      "test.yaml");
  EXPECT_EQ(s.stack.name, "megatron-deepspeed");
  EXPECT_EQ(s.mesh.most(), 2);
  EXPECT_TRUE(s.distributed_optimizer);
  EXPECT_EQ(s.transformer->num_query_groups, 8);
  EXPECT_EQ(s.schedule->name, "zb-h1");
  EXPECT_EQ(s.left_out(), "");
  EXPECT_FALSE(s.transformer->flash_attention);
}

TEST(MegatronDeepSpeed, ItsConfigurationIsReadWhereItLiesAndAskedForWhereNot) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "mds";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "ds.json") << R"({"train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "bf16": {"enabled": true}})";
  const std::string script =
      "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 40 --hidden-size 5120 "
      "--num-attention-heads 40 --seq-length 2048 --vocab-size 50257 --deepspeed "
      "--deepspeed_config ";
  const Scenario s = parse_scenario(
      scenario_of_megatron(script + "conf/ds.json", (folder / "run.sh").string(), ""), "test.yaml");
  EXPECT_EQ(s.microbatch_size, 2);
  EXPECT_EQ(s.missing_saves, "sharded gradients, offloading");
  EXPECT_EQ(s.transformer->compute_type, "bf16");
  const std::string said = refusal_of(script + "other.json", (folder / "run.sh").string());
  EXPECT_NE(said.find("--define zero-stage=N"), std::string::npos) << said;
  EXPECT_NE(said.find("--define micro-batch-size=N"), std::string::npos) << said;
}

TEST(FlagFiles, OfOtherToolsAreReadOrRefusedWithWhatToDo) {
  const auto read = [](const std::string& text, const std::string& model = "") {
    return parse_scenario(
        scenario_of_megatron(text, "job.yaml", "{base: dgx-h100, nodes: 2}", {}, model),
        "test.yaml");
  };
  const Scenario neox = read(
      "{\"pipe-parallel-size\": 4, \"model-parallel-size\": 2, # a comment\n"
      " \"num-layers\": 44, \"hidden-size\": 6144, \"num-attention-heads\": 64,\n"
      " \"seq-length\": 2048, \"no-weight-tying\": true, \"pos-emb\": \"rotary\", "
      "\"gpt_j_residual\": true,\n"
      " \"zero_optimization\": {\"stage\": 1}, \"fp16\": {\"enabled\": true},\n"
      " \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 32,\n"
      " \"tokenizer-type\": \"HFTokenizer\", \"vocab-file\": \"./20B_tokenizer.json\",\n"
      " \"checkpoint-activations\": true, \"checkpoint-num-layers\": 1,}");
  EXPECT_EQ(neox.shape.depth, 4U);
  EXPECT_EQ(neox.mesh.size(Axis::tensor), 2);
  EXPECT_EQ(neox.microbatch_size, 4);
  EXPECT_EQ(neox.samples_per_update(), 256) << "4 x 32, of 2 replicas";
  EXPECT_TRUE(neox.distributed_optimizer);
  EXPECT_EQ(neox.stack.name, "megatron-deepspeed");
  EXPECT_EQ(neox.transformer->parameters(), 20'554'567'680);
  const Scenario gated = read(
      "{\"pipe_parallel_size\": 1, \"model_parallel_size\": 1, \"num_layers\": 32, \n"
      "\"hidden_size\": 4096, \"intermediate_size\": 32768, \"num_attention_heads\": 32,\n"
      "\"seq_length\": 4096, \"no_weight_tying\": true, \"norm\": \"rmsnorm\",\n"
      "\"pos_emb\": \"rotary\", \"use_bias_in_attn_linear\": false,\n"
      "\"activation\": \"swiglu\", \"mlp_multiple_of\": 256, \"vocab_size\": 32000,\n"
      "\"train_micro_batch_size_per_gpu\": 1, \"precision\": \"bfloat16\"}");
  EXPECT_NEAR(static_cast<double>(gated.transformer->parameters()), 6.738e9, 0.001e9)
      << "Llama-2-7B, as its file in GPT-NeoX has it";

  const Scenario tests = read(
      "ENV_VARS:\n  NCCL_ALGO: Ring\nTEST_TYPE: regular\nMODEL_ARGS:\n  --num-layers: 12\n"
      "  --hidden-size: 512\n  --num-attention-heads: 8\n  --seq-length: 1024\n"
      "  --micro-batch-size: 4\n  --global-batch-size: 64\n  --bf16: true\n"
      "  --vocab-file: data/gpt2-vocab.json\n  --tokenizer-type: GPT2BPETokenizer\n"
      "  --pipeline-model-parallel-size: 4\n  --num-layers-per-virtual-pipeline-stage: 1\n"
      "  --use-distributed-optimizer: true\n  --sequence-parallel: false\n");
  EXPECT_EQ(tests.shape.depth, 4U);
  EXPECT_EQ(tests.shape.chunks, 3U);
  EXPECT_TRUE(tests.distributed_optimizer);

  const Scenario nemo = read(
      "trainer: {devices: 8, num_nodes: 2, precision: bf16}\nexp_manager: {name: x}\nmodel:\n"
      "  micro_batch_size: 1\n  global_batch_size: 128\n  tensor_model_parallel_size: 4\n"
      "  pipeline_model_parallel_size: 2\n  virtual_pipeline_model_parallel_size: null\n"
      "  encoder_seq_length: 4096\n  num_layers: 32\n  hidden_size: 4096\n"
      "  ffn_hidden_size: 11008\n  num_attention_heads: 32\n  num_query_groups: null\n"
      "  activation: fast-swiglu\n  share_embeddings_and_output_weights: false\n"
      "  activations_checkpoint_granularity: full\n  activations_checkpoint_method: block\n"
      "  activations_checkpoint_num_layers: 4\n  sequence_parallel: true\n  kv_channels: null\n"
      "  tokenizer: {library: huggingface, type: meta-llama/Llama-2-7b-hf}\n"
      "  optim: {name: distributed_fused_adam, lr: 1e-4}\n  data: {data_prefix: [a, b]}\n");
  EXPECT_EQ(nemo.gpu_count(), 16);
  EXPECT_EQ(nemo.mesh.most(), 2);
  EXPECT_TRUE(nemo.distributed_optimizer);
  EXPECT_TRUE(nemo.sequence_parallel);
  EXPECT_EQ(nemo.transformer->parameters(), 6'738'415'616);
  EXPECT_EQ(nemo.recompute.at(0).layers, 4);

  const Scenario bridge = read(
      "model:\n  seq_length: 4096\n  pipeline_model_parallel_size: 2\ntrain:\n"
      "  train_iters: 20\n  global_batch_size: 8\n  micro_batch_size: 1\n"
      "mixed_precision: bf16_mixed\nddp:\n  use_distributed_optimizer: true\n"
      "  grad_reduce_in_fp32: false\ndist: {use_megatron_fsdp: false}\n",
      "llama-3-8b");
  EXPECT_EQ(bridge.shape.depth, 2U);
  EXPECT_DOUBLE_EQ(bridge.transformer->bytes.gradients, 2);
  EXPECT_TRUE(bridge.distributed_optimizer);

  const Scenario recipe =
      read("model: {seq_length: 4096}\ntrain: {micro_batch_size: 1, global_batch_size: 16}",
           "llama-3-8b");
  EXPECT_EQ(recipe.transformer->compute_type, "bf16") << "as its recipes train";
  const std::string sizes =
      "  micro_batch_size: 1\n  global_batch_size: 16\n  encoder_seq_length: 512\n  num_layers: "
      "24\n"
      "  hidden_size: 1024\n  num_attention_heads: 16\n  vocab_size: 30522\n"
      "  share_embeddings_and_output_weights: null\n";
  const Scenario bert =
      read("trainer: {devices: 8, num_nodes: 2}\nmodel:\n" + sizes + "  bert_binary_head: true\n");
  EXPECT_EQ(bert.transformer->family, Family::bert);
  EXPECT_TRUE(bert.transformer->tie_embeddings) << "null is no news";
  const Scenario primus = parse_scenario(
      scenario_of_megatron(
          "modules:\n  pre_trainer:\n    framework: megatron\n    model: llama3_8B.yaml\n"
          "    overrides:\n      micro_batch_size: ${MBS:2}\n      global_batch_size: 64\n"
          "      seq_length: ${SEQ:4096}\n",
          "job.yaml", "", {{"SEQ", "2048"}}),
      "test.yaml");
  EXPECT_EQ(primus.microbatch_size, 2);
  EXPECT_EQ(primus.transformer->seq_length, 2048);

  const std::string neox_of =
      R"({"pipe-parallel-size": 1, "num-layers": 44, "hidden-size": 1024, "attention_config": )";
  for (const char* layers : {R"([[["mamba"], 44]])", R"([[["flash", "rwkv"], 22]])",
                             R"([[["gmlp"], "all"]])", R"([[["sparse_fixed"], 44]])"})
    EXPECT_NE(refusal_of(neox_of + layers + "}", "job.yml").find("'attention_config' has layers"),
              std::string::npos)
        << layers;
  for (const char* part :
       {"  encoder: {num_layers: 12}\n  decoder: {num_layers: 12}\n", "  mm_cfg: {llm: x}\n",
        "  vision_encoder: {a: 1}\n", "  _target_: nemo.collections.llm.t5.model.t5.T5Model\n"})
    EXPECT_NE(refusal_of("trainer: {devices: 8}\nmodel:\n" + sizes + part, "job.yaml")
                  .find("trains no decoder-only GPT"),
              std::string::npos)
        << part;

  const std::pair<const char*, const char*> kRefused[] = {
      {R"({"train_batch_size": 256, "zero_optimization": {"stage": 1}})",
       "import megatron-args train.sh"},
      {"modules: {pre_trainer: {framework: megatron, model: acme_9B.yaml, overrides: {}}}",
       "put the file there, or give --model"},
      {"modules: {pre_trainer: {framework: torchtitan, model: llama3_8b.yaml}}",
       "penstock import torchtitan-config"},
      {"model: {seq_length: 4096}\ntrain: {micro_batch_size: 1, global_batch_size: 8}",
       "--model config.json|NAME"},
      {"a: 1\nb: 2", "has none of Megatron-LM's flags"}};
  for (const auto& [text, what] : kRefused)
    EXPECT_NE(refusal_of(text, "job.yaml").find(what), std::string::npos)
        << refusal_of(text, "job.yaml");
}

TEST(FlagFiles, PrimusTakesItsModelFromTheFileBesideIt) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "primus";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "own_base.yaml")
      << "swiglu: true\nnormalization: RMSNorm\nposition_embedding_type: rope\n"
         "add_bias_linear: false\nuntie_embeddings_and_output_weights: "
         "true\ngroup_query_attention: false\n"
         "moe_router_topk: 2\nnum_experts: null\nkv_lora_rank: 32\nmulti_latent_attention: false\n";
  std::ofstream(folder / "own_7B.yaml")
      << "extends:\n  - own_base.yaml\nnum_layers: 32\nhidden_size: 4096\nffn_hidden_size: 11008\n"
         "num_attention_heads: 32\nvocab_size: 32000\n";
  const std::string job =
      "modules:\n  pre_trainer:\n    framework: megatron\n    model: own_7B.yaml\n"
      "    overrides:\n      micro_batch_size: 2\n      global_batch_size: 64\n"
      "      seq_length: 4096\n      pipeline_model_parallel_size: 4\n";
  const Scenario s =
      parse_scenario(scenario_of_megatron(job, (folder / "job.yaml").string(), ""), "test.yaml");
  EXPECT_EQ(s.transformer->parameters(), 6'738'415'616);
  EXPECT_EQ(s.microbatch_size, 2);
  EXPECT_EQ(s.left_out(), "");
}

TEST(Megatron, WhatOnlyARunTellsIsAskedForAtOnce) {
  const std::string script =
      "DP=$WORLD\nGBS=$((DP*64))\ntorchrun --nproc_per_node 8 --nnodes ${SLURM_NNODES} " + kJob +
      "--num-layers 32 --tensor-model-parallel-size $TP --global-batch-size $GBS --save "
      "$CHECKPOINT";
  try {
    scenario_of_megatron(script, "x.sh", "");
    FAIL() << "took what it cannot know";
  } catch (const InputError& error) {
    std::vector<std::string> said;
    for (const Diagnostic& one : error.diagnostics())
      said.push_back(std::to_string(one.where.line) + ": " + one.message);
    const std::vector<std::string> expected{
        "3: '--nnodes $SLURM_NNODES' cannot be told without running the script; give --define "
        "SLURM_NNODES=VALUE",
        "3: '--tensor-model-parallel-size $TP' cannot be told without running the script; give "
        "--define TP=VALUE",
        "3: '--global-batch-size $((DP*64))' cannot be told without running the script; give "
        "--define WORLD=VALUE"};
    EXPECT_EQ(said, expected);
  }
  const std::string text = scenario_of_megatron(
      script, "x.sh", "", {{"WORLD", "2"}, {"SLURM_NNODES", "1"}, {"TP", "4"}});
  const Scenario s = parse_scenario(text, "test.yaml");
  EXPECT_EQ(s.mesh.size(Axis::tensor), 4);
  EXPECT_EQ(s.mesh.most(), 2);
  EXPECT_EQ(s.samples_per_update(), 128);
}

TEST(Megatron, WithoutABatchEachReplicaHasOneMicrobatch) {
  const Scenario s =
      parse_scenario(scenario_of_megatron(
                         "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 "
                         "--hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --bf16 "
                         "--vocab-size 50257 --micro-batch-size 2 --pipeline-model-parallel-size 4",
                         "x.sh", ""),
                     "test.yaml");
  EXPECT_EQ(s.samples_per_update(), 4) << "Megatron-LM's default: 2 x 2 replicas";
}

TEST(Megatron, AClusterWithNodesCountsTheGpus) {
  for (const char* cluster : {"{base: dgx-a100, nodes: 4}", "dgx-a100"}) {
    const std::string nodes = cluster[0] == '{' ? "" : "--nnodes 4 ";
    const Scenario s = parse_scenario(
        imported(nodes + "--tensor-model-parallel-size 8 --use-distributed-optimizer", cluster),
        "test.yaml");
    EXPECT_EQ(s.mesh.most(), 4) << cluster;
    EXPECT_EQ(s.cluster.devices(), 32) << cluster;
    EXPECT_TRUE(s.distributed_optimizer);
  }
  EXPECT_NE(imported("--nnodes 2", "p3.16xlarge").find("{base: p3.16xlarge, nodes: 2}"),
            std::string::npos)
      << "a name, no file";
  EXPECT_NE(imported("--use-distributed-optimizer").find("distributed_optimizer: true"),
            std::string::npos)
      << "whatever the width";
  EXPECT_THROW(imported("", "b200"), InputError);
}

TEST(Megatron, SaysWhichConditionsItTookAsTrue) {
  const std::string script =
      "O=\nif [ \"$D\" = 1 ]; then O=--use-distributed-optimizer; fi\n"
      "[ -d x ] && W=--wandb-project || W=\n" +
      kJob + "--nnodes 1 $O $W";
  try {
    scenario_of_megatron(script, "x.sh", "");
    FAIL() << "took a condition as true";
  } catch (const InputError& error) {
    ASSERT_EQ(error.diagnostics().size(), 1U) << error.what();
    EXPECT_EQ(error.diagnostics()[0].where.line, 2);
    EXPECT_EQ(error.diagnostics()[0].message,
              "'--use-distributed-optimizer' stands under a condition that is not known, "
              "[ \"$D\" = 1 ]; give --define D=VALUE");
  }
  const auto on = scenario_of_megatron(script, "x.sh", "", {{"D", "1"}});
  EXPECT_NE(on.find("distributed_optimizer: true"), std::string::npos) << on;
  EXPECT_NE(on.find("--wandb-project (if [ -d x ])"), std::string::npos) << on;
  const auto off = scenario_of_megatron(script, "x.sh", "", {{"D", ""}});
  EXPECT_EQ(off.find("distributed_optimizer: true"), std::string::npos) << off;
}

/// What is not followed has its own reason, and the layers are divided as if it were not there.
TEST(Megatron, SplitsThatAreNotFollowedSayWhy) {
  const struct {
    const char *flags, *why;
    bool even;
  } kCases[] = {
      {"--num-layers 80 --num-layers-per-virtual-pipeline-stage 5 "
       "--decoder-first-pipeline-num-layers 18",
       "the other 62 layers do not divide among 3 ranks", true},
      {"--num-layers 30 --num-virtual-stages-per-pipeline-rank 2 "
       "--decoder-first-pipeline-num-layers 3",
       "the 3 layers of rank 0 do not divide into 2 virtual stages", false},
      {"--num-layers 8 --decoder-first-pipeline-num-layers 9", "are not those of a model of 8",
       true},
      {"--num-layers 32 --account-for-loss-in-pipeline-split", "32 layers and what it counts",
       true},
      {"--num-layers 32 --pipeline-model-parallel-layout 'Et*16|t*16L'",
       "it has 2 stages, the job 4", true},
      {"--num-layers 32 --pipeline-model-parallel-layout 'Et|t|t|tL'",
       "it has 4 layers, the model 32", true},
  };
  for (const auto& [flags, why, even] : kCases) {
    const std::string text =
        imported(std::string("--pipeline-model-parallel-size 4 --nnodes 1 ") + flags);
    EXPECT_NE(text.find("not followed: "), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
    EXPECT_EQ(text.find("split: balanced") == std::string::npos, even) << text;
  }
}

/// What flags cannot say: the software, how it sends and reduces, and what it keeps of a parameter.
std::vector<Override> unsaid_by_flags(const Value& document, const ParameterBytes& bytes) {
  std::vector<Override> out;
  const Value* stack = document.find("stack");
  out.push_back({"stack", stack == nullptr ? "{name: neutral}" : stack->text});
  const Value* transfers = document.find("transfers");
  out.push_back({"transfers", transfers == nullptr ? "overlapped" : transfers->text});
  const Value* reduction = document.find("pipeline")->find("reduction");
  if (reduction != nullptr)
    out.push_back({"pipeline.reduction.algorithm", reduction->find("algorithm")->text});
  for (const auto& [key, value] :
       {std::pair{"weights", bytes.weights}, std::pair{"gradients", bytes.gradients},
        std::pair{"optimizer", bytes.optimizer}})
    out.push_back({std::string("model.bytes_per_parameter.") + key, std::to_string(value)});
  return out;
}

TEST(Megatron, WhatIsExportedComesBackAsTheSameJob) {
  int exported = 0;
  for (const std::string& name : shipped_names("scenarios")) {
    const Scenario s = load_scenario(data_folder() + "/scenarios/" + name + ".yaml");
    std::string flags;
    try {
      flags = megatron_arguments(s);
    } catch (const InputError&) {
      continue;
    }
    ++exported;
    SCOPED_TRACE(name);
    const Value document = parse_document(s.text, name);
    const std::size_t at = s.text.find("\ncluster: ") + 10;
    const std::string cluster = s.text.substr(at, s.text.find('\n', at) - at);
    const Scenario back = parse_scenario(scenario_of_megatron(flags, name, cluster), name,
                                         unsaid_by_flags(document, s.transformer->bytes));
    EXPECT_EQ(back.gpu_count(), s.gpu_count());
    EXPECT_EQ(back.samples_per_update(), s.samples_per_update());
    EXPECT_EQ(back.distributed_optimizer, s.distributed_optimizer);
    ASSERT_EQ(back.costs.size(), s.costs.size());
    for (std::size_t i = 0; i < s.costs.size(); ++i) {
      EXPECT_EQ(back.costs[i][OpKind::forward].seconds, s.costs[i][OpKind::forward].seconds);
      EXPECT_EQ(back.costs[i][OpKind::backward].seconds, s.costs[i][OpKind::backward].seconds);
      EXPECT_EQ(back.costs[i].reduce_grad_s, s.costs[i].reduce_grad_s);
      EXPECT_EQ(back.costs[i].step_s, s.costs[i].step_s);
      EXPECT_EQ(back.costs[i].activation_bytes, s.costs[i].activation_bytes);
      EXPECT_EQ(back.costs[i].weight_bytes, s.costs[i].weight_bytes);
      EXPECT_EQ(back.costs[i].optimizer_bytes, s.costs[i].optimizer_bytes);
    }
  }
  EXPECT_GE(exported, 9);
}

TEST(Megatron, TorchrunCountsGpusAndSlurmOnlyItsTasks) {
  const std::string text = scenario_of_megatron(
      "#SBATCH --nodes=16\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
      "torchrun --nproc-per-node 8 --nnodes 16 " +
          kJob + " --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4\n",
      "x.sh", "");
  EXPECT_NE(text.find("width: 8"), std::string::npos) << text;
}

TEST(Megatron, LayersOfARankAreThoseOfAllItsChunks) {
  const std::string text = imported(
      "--num-layers 28 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
      "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 8");
  EXPECT_NE(text.find("split: [2, 4, 4, 4, 2, 4, 4, 4]"), std::string::npos) << text;
}

TEST(Megatron, NoNumberIsTooLarge) {
  EXPECT_NE(refusal_of(kJob + "--tensor-model-parallel-size 4294967296 --nnodes 1"), "");
  const std::string said =
      refusal_of(kJob +
                 "--num-layers-per-virtual-pipeline-stage 1000000 --pipeline-model-parallel-size "
                 "1000000 --num-layers 1000000 --nnodes 1000000 --nproc-per-node 1000000 "
                 "--micro-batch-size 1000000");
  EXPECT_NE(said.find("1000000 x 1000000 GPUs are more than"), std::string::npos) << said;
}

TEST(Megatron, ATextWithoutItsFlagsIsRefused) {
  EXPECT_THROW(scenario_of_megatron("echo --hello", "x.sh", ""), InputError);
}

TEST(Megatron, NothingOfAScriptEndsAComment) {
  const std::string text = scenario_of_megatron(
      kJob + "--wandb-project \"a\nschedule: evil\" --odd \"x\ty\"", "a\nb.sh", "");
  EXPECT_NO_THROW(parse_scenario(text, "test.yaml")) << text;
  EXPECT_EQ(text.find("\nschedule: evil"), std::string::npos) << text;
}

TEST(MegatronImport, ExpertsBecomeTheDenseModelThatComputesAsMuch) {
  const std::string text = scenario_of_megatron(
      "run --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --swiglu "
      "--micro-batch-size 1 --vocab-size 50257 --ffn-hidden-size 4096 --num-experts 8 "
      "--moe-router-topk 2 "
      "--moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 512",
      "run.sh", "");
  EXPECT_EQ(parse_scenario(text, "imported").transformer->ffn_hidden_size, 2 * 1408 + 512);
  EXPECT_NE(text.find("# cannot be modelled:\n#   --num-experts 8"), std::string::npos) << text;
  EXPECT_NE(text.find("routing and all-to-all are missing"), std::string::npos) << text;
}

}  // namespace
}  // namespace penstock::megatron_import_test
