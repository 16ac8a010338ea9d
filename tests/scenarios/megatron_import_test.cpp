// Launch scripts of Megatron-LM as scenarios.
#include "base/error.hpp"
#include "scenarios/document.hpp"
#include "scenarios/megatron_arguments.hpp"
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

std::string options_in(const std::string& script, const ShellVariables& defined = {}) {
  return text_of(script_options(script, defined));
}

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

TEST(ScriptOptions, WhatSlurmSaysIsKnown) {
  EXPECT_EQ(options_in("#SBATCH -N 16\n#SBATCH --gres=gpu:a100:4\nrun --a $SLURM_NNODES --b "
                       "$((SLURM_NNODES * SLURM_GPUS_ON_NODE))\n"),
            "--nodes 16\n--gres gpu:a100:4\n--gpus-per-node 4\n--a 16\n--b 64\n");
  EXPECT_EQ(options_in("srun -N2 --a 1 > --log 2>&1 | tee --b\n"), "--nodes 2\n--a 1\n--b\n");
}

TEST(ScriptOptions, WhatIsDefinedStays) {
  EXPECT_EQ(options_in("N=4\nM=$(nproc)\nrun --n $N --m $M --x $((X * N)) --y $((Y * N))",
                       {{"N", "8"}, {"X", "2"}}),
            "--n 8\n--m $M\n--x 16\n--y $((Y * 8))\n");
}

TEST(ScriptOptions, ConditionsThatAreKnownDecide) {
  const struct {
    const char *script, *options;
  } kCases[] = {
      {"A=1\nif [ \"$A\" = 1 ]; then\n X=3\nelse\n X=4\nfi\nrun --x $X", "--x 3\n"},
      {"A=2\nif [[ $A == 1 ]]\nthen X=3; elif [ $A -gt 1 ]; then X=4; else X=5; fi\nrun --x $X",
       "--x 4\n"},
      {"A=\nif [ ! -z \"$A\" ]; then run --x 1; fi\nrun --y", "--y\n"},
      {"A=1\n[ \"$A\" ] && OPTS=\"--x 1\"\n[ -z \"$A\" ] && OPTS=\"$OPTS --y 2\"\nrun $OPTS --z",
       "--x 1\n--z\n"},
      {"A=7b\n[ $A = 7b ] && N=32 || N=40\nrun --n $N", "--n 32\n"},
      {"A=13b\n[ $A = 7b ] && N=32 || N=40\nrun --n $N", "--n 40\n"},
      {"A=0\ntest $A -eq 1 && run --x\nif ! [ $A = 1 ] && [ $A != 2 ]; then run --y; fi", "--y\n"},
      {"A=1\nif [ $A = 0 ]; then\n if [ $B = 1 ]; then run --x; fi\n run --y\nfi\nrun --z",
       "--z\n"},
      {"A=0\n[ $A = 1 ] && {\n run --x\n run --y\n}\nrun --z", "--z\n"},
  };
  for (const auto& [script, options] : kCases) EXPECT_EQ(options_in(script), options) << script;
}

TEST(ScriptOptions, UnknownConditionsAreTakenAsTrueAndSaid) {
  const struct {
    const char *script, *options;
  } kCases[] = {
      {"if [ \"$D\" = 1 ]; then\n  OPTS=\"$OPTS --use-zero\"\nfi\n[ \"$VP\" ] && O=\"--vp 3\"\nrun",
       "--use-zero <[ \"$D\" = 1 ]>\n--vp 3 <[ \"$VP\" ]>\n"},
      {"if [ $A = 1 ]; then X=3; else X=4; fi\nrun --x $X --y 1", "--x 3 <[ $A = 1 ]>\n--y 1\n"},
      {"[ $A ] || run --x; run --y", "--x <! [ $A ]>\n--y\n"},
      {"if grep --quiet a b; then run --x; fi; run --y", "--x <grep --quiet a b>\n--y\n"},
      {"case $A in\n 7b) N=32;;\n --odd|*) N=40;;\nesac\nrun --n $N", "--n 40 <case $A in>\n"},
  };
  for (const auto& [script, options] : kCases) {
    std::string out;
    for (const ScriptOption& o : script_options(script)) {
      const std::string one = text_of({o});
      out += one.substr(0, one.size() - 1);
      out += o.condition.empty() ? "\n" : " <" + o.condition + ">\n";
    }
    EXPECT_EQ(out, options) << script;
  }
}

TEST(ScriptOptions, NoTextIsTooOdd) {
  for (const char* odd :
       {"",           "--",   "'",  "\"",    "$",    "${",   "$((",  "$((1/0))",
        "A=",         "=",    "\\", "--a=",  "((",   "if",   "fi",   "case",
        "case x in",  "esac", "[",  "[ a",   "test", "then", "else", "if [ a ]; fi",
        "#SBATCH -N", "{",    "}",  "a && ", "|| a", "! !"})
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
  EXPECT_EQ(name("--num-layers 24"), "run.sh");
  EXPECT_EQ(name("--num-layers 24 --num-experts 8 --expert-model-parallel-size 8"),
            "run.sh, without --num-experts, --expert-model-parallel-size");
  EXPECT_EQ(name(kScript), "run.sh, without --cp-comm-type");
}

TEST(Megatron, WhatIsNotThereIsAssumedAloud) {
  const std::string text = scenario_of_megatron("--num-layers 24 --hidden-size a", "-", "");
  EXPECT_NE(text.find("# has no value that can be told"), std::string::npos) << text;
  EXPECT_NE(text.find("model.hidden_size: 4096 (no --hidden-size with a number)"),
            std::string::npos);
  EXPECT_NO_THROW(parse_scenario(text, "test.yaml")) << text;
}

TEST(Megatron, WhatOnlyARunTellsIsAskedForAtOnce) {
  const std::string script =
      "DP=$WORLD\nGBS=$((DP*64))\ntorchrun --nproc_per_node 8 --nnodes ${SLURM_NNODES} a.py "
      "--num-layers 32 --tensor-model-parallel-size $TP --global-batch-size $GBS --save "
      "$CHECKPOINT";
  try {
    scenario_of_megatron(script, "x.sh", "");
    FAIL() << "took what it cannot know";
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "x.sh: --global-batch-size $(($WORLD*64)), --nnodes $SLURM_NNODES, "
        "--tensor-model-parallel-size $TP cannot be told without running it; give --define "
        "WORLD=N --define SLURM_NNODES=N --define TP=N");
  }
  const std::string text = scenario_of_megatron(
      script, "x.sh", "", {{"WORLD", "2"}, {"SLURM_NNODES", "1"}, {"TP", "4"}});
  const Scenario s = parse_scenario(text, "test.yaml");
  EXPECT_EQ(s.mesh.size(Axis::tensor), 4);
  EXPECT_EQ(s.mesh.most(), 2);
  EXPECT_EQ(s.samples_per_update(), 128);
}

TEST(Megatron, WithoutABatchTheScenarioSaysThatThereIsOneMicrobatch) {
  const Scenario s = parse_scenario(
      scenario_of_megatron("--num-layers 32 --pipeline-model-parallel-size 4", "x.sh", ""),
      "test.yaml");
  ASSERT_FALSE(s.notes.empty());
  EXPECT_NE(s.notes.front().find("one microbatch per weight update"), std::string::npos);
}

TEST(Megatron, AClusterWithNodesCountsTheGpus) {
  for (const char* cluster : {"{base: dgx-a100, nodes: 4}", "dgx-a100"}) {
    const std::string nodes = cluster[0] == '{' ? "" : "--nnodes 4 ";
    const Scenario s = parse_scenario(
        scenario_of_megatron(nodes + "--num-layers 32 --tensor-model-parallel-size 8 "
                                     "--use-distributed-optimizer",
                             "x.sh", cluster),
        "test.yaml");
    EXPECT_EQ(s.mesh.most(), 4) << cluster;
    EXPECT_EQ(s.cluster.devices(), 32) << cluster;
    EXPECT_TRUE(s.distributed_optimizer);
  }
  const Scenario dotted = parse_scenario(
      scenario_of_megatron("--num-layers 32 --nnodes 2", "x.sh", "p3.16xlarge"), "test.yaml");
  EXPECT_EQ(dotted.cluster.devices(), 16) << "a name, no file";
  const std::string unknown =
      scenario_of_megatron("--num-layers 32 --use-distributed-optimizer", "x.sh", "");
  EXPECT_NE(unknown.find("distributed_optimizer: true"), std::string::npos) << "whatever the width";
  EXPECT_THROW(scenario_of_megatron("--num-layers 32", "x.sh", "b200"), InputError);
}

TEST(Megatron, SaysWhichConditionsItTookAsTrue) {
  const std::string text = scenario_of_megatron(
      "if [ \"$D\" = 1 ]; then O=--use-distributed-optimizer; fi\nrun --num-layers 4 --nnodes 1",
      "x.sh", "");
  EXPECT_NE(text.find("# under a condition, taken as true (--define NAME=VALUE decides):\n#   "
                      "--use-distributed-optimizer: pipeline.distributed_optimizer: true (if [ "
                      "\"$D\" = 1 ])\n"),
            std::string::npos)
      << text;
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
    const std::string text = scenario_of_megatron(
        std::string("--pipeline-model-parallel-size 4 --nnodes 1 ") + flags, "x.sh", "");
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
      EXPECT_EQ(back.costs[i].forward_s, s.costs[i].forward_s);
      EXPECT_EQ(back.costs[i].backward_s, s.costs[i].backward_s);
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
