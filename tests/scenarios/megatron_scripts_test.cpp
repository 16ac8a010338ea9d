// SPDX-License-Identifier: Apache-2.0
// Launch scripts of Megatron-LM and Megatron-DeepSpeed as scenarios.
#include "scenarios/shell_words.hpp"
#include "tests/scenarios/megatron_job.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace penstock::megatron_scripts_test {
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
    "  --cp-comm-type a2a+p2p \\\n"
    "  --frobnicate 7\n";

TEST(MegatronScripts, AScriptBecomesItsScenario) {
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
  EXPECT_TRUE(s.sharding.sharded());
  EXPECT_EQ(s.mesh.size(Axis::context), 2);
  EXPECT_EQ(s.mesh.most(), 2) << "64 GPUs, of which 4 x 4 x 2 hold a replica";
  EXPECT_EQ(s.samples_per_update(), 1024);
}

TEST(MegatronScripts, EveryFlagHasALine) {
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
  EXPECT_TRUE(under("# cannot be modelled", "#   --cp-comm-type a2a+p2p: context")) << text;
  EXPECT_TRUE(under("# not known here", "#   --frobnicate 7")) << text;
  EXPECT_TRUE(under("# changes nothing", "#   --lr 1e-4")) << text;
  EXPECT_NE(text.find("base: dgx-a100"), std::string::npos);
}

TEST(MegatronScripts, TheNameSaysWhatIsMissing) {
  const auto name = [](const std::string& script) {
    return parse_scenario(scenario_of_megatron(script, "jobs/run.sh", ""), "test.yaml").name;
  };
  EXPECT_EQ(name(kJob), "run.sh");
  EXPECT_EQ(name(kJob + "--cpu-offloading"), "run.sh, without --cpu-offloading");
  EXPECT_EQ(name(kScript), "run.sh, without --cp-comm-type");
}

TEST(MegatronScripts, ItsStackIsDeepSpeedsOnlyWithDeepSpeed) {
  const auto stack = [](const std::string& launcher) {
    return parse_scenario(scenario_of_megatron(launcher + kJob, "x.sh", ""), "test.yaml")
        .stack.name;
  };
  EXPECT_EQ(stack("srun --num-gpus 8 "), "megatron");
  EXPECT_EQ(stack("deepspeed --num_gpus 8 "), "megatron-deepspeed");
  EXPECT_EQ(stack("torchrun --nproc-per-node 8 /opt/deepspeed/"), "megatron");
}

TEST(MegatronScripts, ProgramsThatPretrainNothingAreRefused) {
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

TEST(MegatronScripts, OfSeveralLaunchesThatWhichTrainsIsTaken) {
  const std::string flags = kJob.substr(kJob.find(' '));
  const std::string text = scenario_of_megatron(
      "python tools/checkpoint/convert.py --num-layers 12\n"
      "torchrun pretrain_gpt.py" +
          flags,
      "x.sh", "");
  EXPECT_NE(text.find("launch 2 of 2"), std::string::npos) << text;
  EXPECT_NE(text.find("num_layers: 32"), std::string::npos) << text;
}

TEST(MegatronScripts, SwitchesOfTransformerEngineSayWhatAttentionKeeps) {
  const auto flash = [](const std::string& script) {
    return parse_scenario(scenario_of_megatron(script, "x.sh", ""), "test.yaml")
        .transformer->flash_attention;
  };
  const std::string off = "export NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0\n" + kJob;
  EXPECT_FALSE(flash(off));
  EXPECT_TRUE(flash(off + "--attention-backend flash"));
  EXPECT_TRUE(flash("export NVTE_FLASH_ATTN=1 NVTE_FUSED_ATTN=0\n" + kJob));
  // They are those that the launch gets.
  EXPECT_FALSE(flash("NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0 " + kJob));
  EXPECT_TRUE(flash(kJob + "\nexport NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0\n"));
}

TEST(MegatronScripts, ADefinedFlagIsAFlag) {
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

TEST(MegatronScripts, LaunchersSayHowManyGpusThereAre) {
  const struct {
    const char* launcher;
    std::int64_t gpus;
    const char* cluster;
  } kCases[] = {
      {"mpirun -np 32 -npernode 4 python ", 32,
       "{base: dgx-h100, nodes: 8, devices_per_node: 4, inter: {nics: 4}}"},
      {"srun -n 16 --ntasks-per-node 8 python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"deepspeed --include localhost:0,1,2,3 ", 4, "{base: dgx-h100, nodes: 1}"},
      {"deepspeed --include n0:0,1@n1:2,3 ", 4,
       "{base: dgx-h100, nodes: 2, devices_per_node: 2, inter: {nics: 2}}"},
      {"accelerate launch --num_processes 16 --num_machines 2 ", 16, "{base: dgx-h100, nodes: 2}"},
      {"torchrun --standalone --nproc-per-node=gpu ", 8, "{base: dgx-h100, nodes: 1}"},
      {"srun -N 4 -n 16 python ", 16,
       "{base: dgx-h100, nodes: 4, devices_per_node: 4, inter: {nics: 4}}"},
      {"#SBATCH --gres=gpu:a100:4\n#SBATCH -N 2\n", 8,
       "{base: dgx-a100, nodes: 2, devices_per_node: 4, inter: {nics: 4}}"},
      {"#SBATCH --gpus-per-node=h200:4\n#SBATCH -N 2\n", 8,
       "{base: dgx-h200, nodes: 2, devices_per_node: 4, inter: {nics: 4}}"},
      {"#SBATCH --gpus-per-node 4\n#SBATCH -N 2\n", 8,
       "{base: dgx-h100, nodes: 2, devices_per_node: 4, inter: {nics: 4}}"},
      {"#SBATCH --ntasks=1 --gpus-per-node=8\n", 8, "{base: dgx-h100, nodes: 1}"},
      {"#SBATCH --gpus=16\nsrun python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"srun --gpus=16 --ntasks-per-node 8 python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"#SBATCH -G 16\nsrun python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"#SBATCH -J job -Ga100:16 -p long\nsrun python ", 16, "{base: dgx-a100, nodes: 2}"},
      {"#SBATCH --gpus a100:16\nsrun python ", 16, "{base: dgx-a100, nodes: 2}"},
      {"#SBATCH --mem 8G -n 16 -N2\nsrun python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"srun -N 2 -n 16 python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"srun -G 16 python ", 16, "{base: dgx-h100, nodes: 2}"},
      {"#SBATCH --gpus=64 --nodes=2\ntorchrun --nnodes 2 --nproc_per_node 8 ", 16,
       "{base: dgx-h100, nodes: 2}"},
      {"mpirun -np 4 -npernode 1 python ", 4,
       "{base: dgx-h100, nodes: 4, devices_per_node: 1, inter: {nics: 1}}"},
      {"srun -n 2 torchrun --nnodes 2 --nproc_per_node 8 ", 16, "{base: dgx-h100, nodes: 2}"},
  };
  for (const auto& [launcher, gpus, cluster] : kCases) {
    const std::string text = scenario_of_megatron(launcher + kJob, "x.sh", "");
    EXPECT_EQ(parse_scenario(text, "test.yaml").mesh.most(), gpus) << text;
    EXPECT_NE(text.find(std::string("\ncluster: ") + cluster), std::string::npos) << text;
  }
}

TEST(MegatronScripts, AnyClusterCanHaveFewerGpusOfEachNode) {
  std::string job = kJob;
  job.erase(job.find("--bf16"), 6);  // fp32, which every device has
  for (const std::string& cluster : shipped_names("models/clusters"))
    for (int each = 1; each < 8; ++each) {
      const std::string text =
          scenario_of_megatron(fmt::format("torchrun --nnodes 4 --nproc_per_node {} ", each) + job +
                                   " --global-batch-size 1680",
                               "x.sh", cluster);
      if (text.find("\ncluster: {base: " + cluster + ",") == std::string::npos) continue;
      EXPECT_EQ(parse_scenario(text, "test.yaml").mesh.most(), 4 * each) << text;
    }
  const auto cluster_of = [](const std::string& launch, const std::string& cluster) {
    const std::string text = scenario_of_megatron(launch + kJob, "x.sh", cluster);
    const std::size_t at = text.find("\ncluster: ") + 10;
    return text.substr(at, text.find('\n', at) - at);
  };
  // A rack has trays of four, which its switches join.
  EXPECT_EQ(cluster_of("torchrun --nnodes 18 --nproc_per_node 4 ", "gb200-nvl72"),
            "{base: gb200-nvl72, nodes: 1}");
  // Four NICs of eight GPUs: two GPUs have one, three have one and a half.
  EXPECT_NE(cluster_of("torchrun --nnodes 4 --nproc_per_node 2 ", "p4d.24xlarge")
                .find("devices_per_node: 2, inter: {nics: 1}"),
            std::string::npos);
  EXPECT_EQ(cluster_of("torchrun --nnodes 4 --nproc_per_node 3 ", "p4d.24xlarge"),
            "{base: p4d.24xlarge, nodes: 2}");
  const std::string map = "{base: dgx-h100, inter: {bandwidth: 200 Gbps}}";
  EXPECT_EQ(cluster_of("torchrun --nnodes 4 --nproc_per_node 4 ", map),
            "{base: dgx-h100, inter: {bandwidth: 200 Gbps}, nodes: 2}");
}

TEST(MegatronScripts, ManyUnknownFlagsAreReadAtOnce) {
  std::string flags;
  for (int i = 0; i < 15'000; ++i) flags += "--unknown-flag-" + std::to_string(i) + " ";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(imported(flags).find("#   --unknown-flag-14999\n"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST(MegatronScripts, OtherModelsThanAGptAreRefused) {
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
  EXPECT_TRUE(s.sharding.sharded());
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
  EXPECT_EQ(s.missing_saves, "offloading");
  EXPECT_EQ(s.transformer->compute_type, "bf16");
  std::ofstream(folder / "plain.json") << R"({"train_micro_batch_size_per_gpu": 2})";
  const std::string plain =
      scenario_of_megatron(script + "plain.json", (folder / "run.sh").string(), "");
  EXPECT_EQ(plain.find("  shard"), std::string::npos) << "it has no ZeRO: " << plain;
  const std::string said = refusal_of(script + "other.json", (folder / "run.sh").string());
  EXPECT_NE(said.find("--define zero-stage=N"), std::string::npos) << said;
  EXPECT_NE(said.find("--define micro-batch-size=N"), std::string::npos) << said;
}

TEST(MegatronDeepSpeed, AConfigurationThatTheScriptWritesIsRead) {
  const std::string script =
      "STAGE=2\nDS=$OUT/ds.json\ncat <<EOT > $DS\n{\n  \"train_micro_batch_size_per_gpu\": 2,\n"
      "  \"zero_optimization\": {\"stage\": $STAGE},\n  \"bf16\": {\"enabled\": true}\n}\nEOT\n"
      "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 40 --hidden-size 5120 "
      "--num-attention-heads 40 --seq-length 2048 --vocab-size 50257 --deepspeed "
      "--deepspeed_config=$DS\n";
  const std::string text = scenario_of_megatron(script, "x.sh", "");
  for (const char* said : {"shard: gradients", "microbatch_size: 2", "precision: mixed-bf16"})
    EXPECT_NE(text.find(said), std::string::npos) << text;
  const auto of_bf16 = [](const std::string& type) {
    return scenario_of_megatron(
               "torchrun --nproc-per-node 8 " + kJob + "--deepspeed --zero-stage 0" + type, "x.sh",
               "")
        .find("distributed_optimizer: true (DeepSpeed's optimizer for bf16");
  };
  EXPECT_NE(of_bf16(""), std::string::npos) << "its optimizer for bf16 divides its state by itself";
  EXPECT_EQ(of_bf16(" --bf16 false --fp16"), std::string::npos);
  const std::string alone = kJob + "--deepspeed";
  EXPECT_NE(refusal_of(alone).find("--define zero-stage=N"), std::string::npos);
}

TEST(MegatronScripts, WhatOnlyARunTellsIsAskedForAtOnce) {
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

TEST(MegatronScripts, AClusterWithNodesCountsTheGpus) {
  for (const char* cluster : {"{base: dgx-a100, nodes: 4}", "dgx-a100"}) {
    const std::string nodes = cluster[0] == '{' ? "" : "--nnodes 4 ";
    const Scenario s = parse_scenario(
        imported(nodes + "--tensor-model-parallel-size 8 --use-distributed-optimizer", cluster),
        "test.yaml");
    EXPECT_EQ(s.mesh.most(), 4) << cluster;
    EXPECT_EQ(s.cluster.devices(), 32) << cluster;
    EXPECT_TRUE(s.sharding.sharded());
  }
  EXPECT_NE(imported("--nnodes 2", "p3.16xlarge").find("{base: p3.16xlarge, nodes: 2}"),
            std::string::npos)
      << "a name, no file";
  EXPECT_NE(imported("--use-distributed-optimizer").find("distributed_optimizer: true"),
            std::string::npos)
      << "whatever the width";
  EXPECT_THROW(imported("", "b200"), InputError);
}

TEST(MegatronScripts, SaysWhichConditionsItTookAsTrue) {
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

/// Variables are empty that a script sets in a branch alone which it does not take.
TEST(MegatronScripts, ABranchThatIsNotTakenLeavesItsVariablesEmpty) {
  const std::string flags = "VP=--num-layers-per-virtual-pipeline-stage\n",
                    launch = "torchrun --nproc-per-node 8 " + kJob +
                             "--pipeline-model-parallel-size $PP $X\n";
  for (const char* branch :
       {"if (( PP > 1 )); then X=\"$VP 4\"; fi\n", "[ $PP -gt 1 ] && X=\"$VP 4\"\n",
        "if [[ $PP == 1 ]]; then Y=2; else X=\"$VP 4\"; fi\n",
        "if [ $PP -eq 1 ]; then\n  Y=2\nelif true; then\n  X=\"$VP 4\"\nfi\n"}) {
    const auto chunks = [&](const char* stages) {
      const std::string script = "PP=" + std::string(stages) + "\n" + flags + branch + launch;
      return parse_scenario(scenario_of_megatron(script, "x.sh", ""), "test.yaml").shape.chunks;
    };
    EXPECT_EQ(chunks("1"), 1U) << branch;
    EXPECT_EQ(chunks("4"), 2U) << branch;
  }
  // It is asked for where no branch sets it.
  EXPECT_NE(refusal_of("PP=1\n" + launch).find("'$X' may hold any flags"), std::string::npos);
}

TEST(MegatronScripts, TorchrunCountsGpusAndSlurmOnlyItsTasks) {
  const std::string text = scenario_of_megatron(
      "#SBATCH --nodes=16\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
      "torchrun --nproc-per-node 8 --nnodes 16 " +
          kJob + " --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4\n",
      "x.sh", "");
  EXPECT_NE(text.find("width: 8"), std::string::npos) << text;
}

TEST(MegatronScripts, ATextWithoutItsFlagsIsRefused) {
  EXPECT_THROW(scenario_of_megatron("echo --hello", "x.sh", ""), InputError);
}

TEST(MegatronScripts, NothingOfAScriptEndsAComment) {
  const std::string text = scenario_of_megatron(
      kJob + "--wandb-project \"a\nschedule: evil\" --odd \"x\ty\"", "a\nb.sh", "");
  EXPECT_NO_THROW(parse_scenario(text, "test.yaml")) << text;
  EXPECT_EQ(text.find("\nschedule: evil"), std::string::npos) << text;
}

}  // namespace
}  // namespace penstock::megatron_scripts_test
