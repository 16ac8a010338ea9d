// Launch scripts of Megatron-LM as scenarios.
#include "base/error.hpp"
#include "scenarios/megatron_import.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/shell_words.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace penstock::megatron_import_test {
namespace {

std::string text_of(const std::vector<ScriptOption>& options) {
  std::string out;
  for (const ScriptOption& o : options) {
    out += "--" + o.name;
    for (const std::string& value : o.values) out += " " + value;
    out += "\n";
  }
  return out;
}

std::string options_in(const std::string& script) { return text_of(script_options(script)); }

TEST(ScriptOptions, AreFoundInCommandsArraysAndVariables) {
  EXPECT_EQ(options_in("python a.py --one 1 --two_words --three=3 \\\n  --four a b\n"),
            "--one 1\n--two-words\n--three 3\n--four a b\n");
  EXPECT_EQ(options_in("ARGS=(\n  --one 1   # the first\n  --two\n)\nrun ${ARGS[@]} --three 3\n"),
            "--one 1\n--two\n--three 3\n");
  EXPECT_EQ(options_in("OPTIONS=\" \\\n --one 1 \\\n --two 2\"\nrun $OPTIONS --three 3"),
            "--one 1\n--two 2\n--three 3\n");
}

TEST(ScriptOptions, EndWithTheirCommand) {
  EXPECT_EQ(options_in("ARGS=\"--one 1 --two 2\"\ntorchrun --three 3 $ARGS\n"),
            "--one 1\n--two 2\n--three 3\n");
  EXPECT_EQ(options_in("run --one 1; torchrun --two 2 && echo --three 3\ndone"),
            "--one 1\n--two 2\n--three 3\n");
  EXPECT_EQ(options_in("--one\n1\n--two\n2\n"), "--one 1\n--two 2\n") << "a word a line";
}

TEST(ScriptOptions, VariablesAreFollowed) {
  EXPECT_EQ(options_in("TP=8\nPP=${PP:-4}\nrun --tp $TP --pp ${PP} --gpus $((TP * $PP + 1))\n"),
            "--tp 8\n--pp 4\n--gpus 33\n");
  EXPECT_EQ(
      options_in("N=2\nrun --gpus $((${N}*8)) --nodes ${NNODES:-${SLURM_NNODES:-4}} --x ${Y-8}\n"),
      "--gpus 16\n--nodes 4\n--x 8\n");
  EXPECT_EQ(options_in("run --tp $1 --pp ${UNKNOWN} --x \"$(nproc)\"\n"),
            "--tp $1\n--pp $UNKNOWN\n--x $(nproc)\n");
  EXPECT_EQ(options_in("A=$B\nB=$A\nrun --a $A$A\n"), "--a $B$B\n");
}

TEST(ScriptOptions, CommentsCountOnlyForSlurm) {
  EXPECT_EQ(options_in("#SBATCH --nodes=4\n# --old 1\nrun --new 2 # --more 3\n"),
            "--nodes 4\n--new 2\n");
}

TEST(ScriptOptions, NoTextIsTooOdd) {
  for (const char* odd :
       {"", "--", "'", "\"", "$", "${", "$((", "$((1/0))", "A=", "=", "\\", "--a=", "(("})
    EXPECT_NO_THROW(script_options(odd)) << odd;
}

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
  EXPECT_EQ(s.mesh.tensor, 4);
  EXPECT_TRUE(s.sequence_parallel);
  EXPECT_TRUE(s.distributed_optimizer);
  EXPECT_EQ(s.mesh.context, 2);
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
  EXPECT_EQ(name("--num-layers 24"), "run.sh");
  EXPECT_EQ(name("--num-layers 24 --num-experts 8 --expert-model-parallel-size 8"),
            "run.sh, without --num-experts, --expert-model-parallel-size");
  EXPECT_EQ(name(kScript), "run.sh, without --cp-comm-type");
}

TEST(Megatron, WhatIsNotThereIsAssumedAloud) {
  const std::string text = scenario_of_megatron("--num-layers 24 --hidden-size $H", "-", "");
  EXPECT_NE(text.find("# has no value that can be told"), std::string::npos) << text;
  EXPECT_NE(text.find("model.hidden_size: 4096 (no --hidden-size with a number)"),
            std::string::npos);
  EXPECT_NO_THROW(parse_scenario(text, "test.yaml")) << text;
}

TEST(Megatron, TorchrunCountsGpusAndSlurmOnlyItsTasks) {
  const std::string text = scenario_of_megatron(
      "#SBATCH --nodes=16\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
      "torchrun --nproc-per-node 8 --nnodes 16 a.py --num-layers 32 --hidden-size 4096 \\\n"
      " --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4\n",
      "x.sh", "");
  EXPECT_NE(text.find("width: 8"), std::string::npos) << text;
}

TEST(Megatron, LayersOfARankAreThoseOfAllItsChunks) {
  const std::string text = scenario_of_megatron(
      "--num-layers 28 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
      "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 8",
      "x.sh", "");
  EXPECT_NE(text.find("split: [2, 4, 4, 4, 2, 4, 4, 4]"), std::string::npos) << text;
}

TEST(Megatron, NoNumberIsTooLarge) {
  for (const char* script :
       {"--num-layers 32 --tensor-model-parallel-size 4294967296 "
        "--pipeline-model-parallel-size 4294967296 --nnodes 1",
        "--num-layers-per-virtual-pipeline-stage 1000000 --pipeline-model-parallel-size 1000000 "
        "--num-layers 1000000 --nnodes 1000000 --nproc-per-node 1000000 --micro-batch-size "
        "1000000"})
    EXPECT_NO_THROW(scenario_of_megatron(script, "x.sh", "")) << script;
}

TEST(Megatron, ATextWithoutItsFlagsIsRefused) {
  EXPECT_THROW(scenario_of_megatron("echo --hello", "x.sh", ""), InputError);
}

TEST(Megatron, NothingOfAScriptEndsAComment) {
  const std::string text = scenario_of_megatron(
      "--num-layers 4 --wandb-project \"a\nschedule: evil\" --odd \"x\ty\"", "a\nb.sh", "");
  EXPECT_NO_THROW(parse_scenario(text, "test.yaml")) << text;
  EXPECT_EQ(text.find("\nschedule: evil"), std::string::npos) << text;
}

TEST(MegatronImport, ExpertsBecomeTheDenseModelThatComputesAsMuch) {
  const std::string text = scenario_of_megatron(
      "run --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --swiglu "
      "--micro-batch-size 1 --ffn-hidden-size 4096 --num-experts 8 --moe-router-topk 2 "
      "--moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 512",
      "run.sh", "");
  EXPECT_EQ(parse_scenario(text, "imported").transformer->ffn_hidden_size, 2 * 1408 + 512);
  EXPECT_NE(text.find("# cannot be modelled:\n#   --num-experts 8"), std::string::npos) << text;
  EXPECT_NE(text.find("routing and all-to-all are missing"), std::string::npos) << text;
}

}  // namespace
}  // namespace penstock::megatron_import_test
