// SPDX-License-Identifier: Apache-2.0
// What flags of Megatron-LM become.
#include "scenarios/document.hpp"
#include "scenarios/megatron_arguments.hpp"
#include "tests/scenarios/megatron_job.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace penstock::megatron_import_test {
namespace {

TEST(MegatronFlags, LearnedPositionsHaveTheRowsOfTheirFlag) {
  const auto rows = [](const std::string& flags) {
    return job_of(flags).transformer->learned_positions();
  };
  EXPECT_EQ(rows("--max-position-embeddings 8192"), 8192);
  EXPECT_EQ(rows("--max-position-embeddings 2048"), 4096) << "Megatron-LM would not start";
  EXPECT_EQ(rows(""), 4096);
  EXPECT_EQ(rows("--max-position-embeddings 8192 --position-embedding-type rope"), 0);
}

TEST(MegatronFlags, DropoutComesBackFromAnExport) {
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

TEST(MegatronFlags, SizesThatAreNotThereAreAskedForAtOnce) {
  EXPECT_EQ(
      refusal_of("pretrain_gpt.py --num-layers 24 --hidden-size a --bf16 --use-checkpoint-args"),
      "x.sh: it does not say --seq-length, --hidden-size, --num-attention-heads, --vocab-size, "
      "--micro-batch-size, without which it would be another job; give --define seq-length=N "
      "--define hidden-size=N --define num-attention-heads=N --define vocab-size=N --define "
      "micro-batch-size=N, or --model config.json|NAME, which gives the sizes of the model");
}

TEST(MegatronFlags, ATypoOfWhatIsAskedForIsSaid) {
  const std::string said = refusal_of(
      "pretrain_gpt.py --num-layer 24 --hiden-size 1024 --bf16 "
      "--num-attention-heads 16 --seq-length 1024 --vocab-size 50257 "
      "--micro-batch-size 1 --tensor-model-parallel-size 1");
  EXPECT_NE(said.find("--num-layers (--num-layer is not known)"), std::string::npos) << said;
  EXPECT_NE(said.find("--hidden-size (--hiden-size is not known)"), std::string::npos) << said;
}

/// Published counts of parameters, from flags.
TEST(MegatronFlags, LayersUnlikeTheirFamilysAreSaid) {
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
TEST(MegatronFlags, FlagsSayWhatALayerHasBesideAGatedMlp) {
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

TEST(MegatronFlags, WhatMegatronRefusesIsAnError) {
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

TEST(MegatronFlags, AnFp32JobIsSaid) {
  const std::string job =
      "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 "
      "--vocab-size 100 --micro-batch-size 1 ";
  const char* const kLine = "#   model.precision: fp32, as neither --bf16 nor --fp16 is given\n";
  EXPECT_NE(scenario_of_megatron(job, "x.sh", "").find(kLine), std::string::npos);
  EXPECT_EQ(scenario_of_megatron(job + "--bf16", "x.sh", "").find(kLine), std::string::npos);
}

TEST(MegatronFlags, FormatsAndRecipesAreTypesOfProducts) {
  const std::string job =
      "pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 2 --seq-length 64 "
      "--vocab-size 100 --micro-batch-size 1 ";
  const std::pair<const char*, const char*> kCases[] = {
      {"--bf16", "mixed-bf16"},
      {"--bf16 --fp8-format none", "mixed-bf16"},
      {"--bf16 --fp8-recipe mxfp8", "mixed-bf16"},
      {"--bf16 --fp8-format hybrid", "fp8"},
      {"--bf16 --fp8-hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max", "fp8"},
      {"--bf16 --fp8-format e4m3 --fp8-recipe tensorwise", "fp8-current"},
      {"--bf16 --fp8-format e4m3 --fp8-recipe blockwise", "fp8-block"},
      {"--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather",
       "{base: mxfp8, linear_weights: narrow}"},
      {"--bf16 --fp4-format e2m1 --fp4-recipe nvfp4", "nvfp4"},
      {"--bf16 --fp8-format hybrid --fp8-dot-product-attention", "{base: fp8, attention: fp8}"},
      {"--bf16 --fp8-format hybrid --first-last-layers-bf16 --num-layers-at-end-in-bf16 2",
       "{base: fp8, first_wide_layers: 1, last_wide_layers: 2}"},
      {"--fp16 --fp8-format hybrid",
       "{base: mixed-fp16, attention_projections: fp8, mlp: fp8, experts: fp8}"}};
  for (const auto& [flags, precision] : kCases) {
    const std::string text = scenario_of_megatron(job + flags, "x.sh", "");
    EXPECT_NE(text.find(std::string("\n  precision: ") + precision + "\n"), std::string::npos)
        << flags << ":\n"
        << text;
    EXPECT_EQ(text.find("not modelled"), std::string::npos) << text;
  }
}

TEST(MegatronFlags, OnlyNearNamesAreSuggested) {
  EXPECT_EQ(imported("--model-type llama_2").find("did you mean"), std::string::npos);
  for (const char* flag : {"--moe-ffn-hidden-size 100", "--virtual-pipeline-model-parallel-size 2"})
    EXPECT_EQ(imported(flag).find("did you mean"), std::string::npos) << imported(flag);
}

TEST(MegatronFlags, ProductsBeyondAllJobsAreErrors) {
  for (const char* flags :
       {"--tensor-model-parallel-size 65536 --pipeline-model-parallel-size 65536 "
        "--context-parallel-size 65536 --nnodes 65536",
        "--nnodes 1000000 --nproc-per-node 1000000"})
    EXPECT_NE(refusal_of(kJob + flags).find("GPUs are more than 1000000000"), std::string::npos)
        << refusal_of(kJob + flags);
}

TEST(MegatronFlags, AModelGivesItsSizes) {
  const Scenario s = parse_scenario(
      scenario_of_megatron("pretrain_gpt.py --use-checkpoint-args --bf16 --seq-length 2048 "
                           "--micro-batch-size 1 --pipeline-model-parallel-size 4 --nnodes 1",
                           "x.sh", "", {}, "llama-3-8b"),
      "test.yaml");
  EXPECT_EQ(s.transformer->parameters(), 8'030'261'248);
  EXPECT_EQ(s.transformer->seq_length, 2048);
}

TEST(MegatronFlags, NumbersThatAreNoneAreErrorsWithTheirLine) {
  const std::string said = refusal_of(kJob +
                                      "\\\n --num-layers -24 --hidden-size 2.4e1 \\\n"
                                      " --tensor-model-parallel-size 2000000000");
  for (const char* part :
       {"x.sh:2:2: --num-layers must be an integer from 1 to 1000000, got '-24'",
        "x.sh:2:19: --hidden-size must be an integer from 1 to 1000000, got '2.4e1'",
        "x.sh:3:2: --tensor-model-parallel-size must be an integer from 1 to 1000000"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST(MegatronFlags, BertIsBert) {
  const Scenario s = parse_scenario(
      scenario_of_megatron("pretrain_bert.py --num-layers 24 --hidden-size 1024 --bf16 "
                           "--num-attention-heads 16 --seq-length 512 --micro-batch-size 4 "
                           "--tokenizer-type BertWordPieceLowerCase --bert-no-binary-head",
                           "x.sh", ""),
      "test.yaml");
  EXPECT_EQ(s.transformer->family, Family::bert);
  EXPECT_EQ(s.transformer->vocab_size, 30'522);
}

TEST(MegatronFlags, TokenizersAreKnownOrAskedFor) {
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

TEST(MegatronFlags, AFlagAtItsNeutralValueIsNoNews) {
  for (const char* flag : {"--kv-channels 128",
                           "--num-experts 1",
                           "--moe-expert-parallel-size 1",
                           "--context-parallel-size 1",
                           "--fp8-format none",
                           "--mtp-num-layers 0",
                           "--cp-comm-type p2p",
                           "--expert-model-parallel-size 1",
                           "--moe-router-topk 2",
                           "--optimizer adam",
                           "--recompute-num-layers 0",
                           "--data-parallel-sharding-strategy no_shard",
                           "--main-grads-dtype fp32",
                           "--window-size none",
                           "--hybrid-attention-ratio 0.0",
                           "--window-size -1,0",
                           "--num-distributed-optimizer-instances 1",
                           "--remote-device none",
                           "--decoupled-lr 5.0e-4",
                           "--softmax-type vanilla",
                           "--encoder-pipeline-model-parallel-size 0",
                           "--expert-interval 2",
                           "--num-experts 1 --mlp-type residual",
                           "--attention-backend auto"}) {
    const Scenario s = job_of(flag);
    EXPECT_EQ(s.left_out(), "") << flag;
    EXPECT_EQ(s.name, "x.sh") << flag << ": nothing is missing";
    EXPECT_EQ(imported(flag).find("# not known"), std::string::npos) << flag;
  }
}

TEST(MegatronFlags, ContextRanksExchangeInOneWayInAllLayers) {
  const std::string context = "--context-parallel-size 2 --cp-comm-type ";
  EXPECT_NE(imported(context + "a2a a2a a2a a2a").find("context_exchange: all-to-all"),
            std::string::npos);
  const std::string unlike = imported(context + "all_gather all_gather p2p p2p");
  EXPECT_EQ(unlike.find("context_exchange"), std::string::npos) << unlike;
  EXPECT_NE(imported(context + "allgather").find("context_exchange: all-gather"),
            std::string::npos);
  for (const char* each : {"all_gather all_gather p2p p2p", "p2p a2a p2p a2a"})
    EXPECT_EQ(job_of(context + each).name, "x.sh, without --cp-comm-type") << each;
  EXPECT_EQ(job_of(context + "p2p p2p").name, "x.sh");
  const Scenario both = job_of(
      "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-"
      "sizes 2 4");
  EXPECT_EQ(both.name, "x.sh");
  EXPECT_EQ(both.mesh.size(Axis::ulysses), 2);
  EXPECT_EQ(both.mesh.size(Axis::context), 4);
  EXPECT_NE(megatron_arguments(both).find("--cp-comm-type a2a+p2p \\\n  "
                                          "--hierarchical-context-parallel-sizes 2 4"),
            std::string::npos)
      << megatron_arguments(both);
  const Scenario ring = job_of(
      "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-"
      "sizes 1 8");
  EXPECT_EQ(ring.name, "x.sh");
  EXPECT_EQ(ring.mesh.size(Axis::context), 8);
  EXPECT_EQ(job_of("--context-parallel-size 8 --cp-comm-type a2a+p2p "
                   "--hierarchical-context-parallel-sizes 2 2")
                .name,
            "x.sh, without --cp-comm-type");
}

TEST(MegatronFlags, SelectiveRecomputationIsOfTheModulesThatAreNamed) {
  const auto parts = [](const std::string& modules) {
    const std::string flags = "--recompute-granularity selective" + modules;
    return job_of(flags).recompute.at(0).parts;
  };
  EXPECT_EQ(parts(""), LayerPart::core_attn);
  EXPECT_EQ(parts(" --recompute-modules core_attn"), LayerPart::core_attn);
  EXPECT_EQ(parts(" --recompute-modules mlp"), LayerPart::mlp);
  EXPECT_EQ(parts(" --recompute-modules layernorm moe_act mla_up_proj"),
            LayerParts(LayerPart::layernorm) | LayerPart::moe_act | LayerPart::mla_up_proj);
}

TEST(MegatronFlags, NoLayerInABlockIsNotRecomputed) {
  const std::string block = "--recompute-granularity full --recompute-method block ";
  EXPECT_EQ(imported(block + "--recompute-num-layers 0").find("  recompute:"), std::string::npos);
  EXPECT_NE(imported(block + "--recompute-num-layers 2").find("  recompute: full"),
            std::string::npos);
}

TEST(MegatronFlags, TheBackendOfAttentionSaysWhetherItKeepsProbabilities) {
  for (const char* kernel : {"flash", "fused", "auto"})
    EXPECT_TRUE(job_of(std::string("--attention-backend ") + kernel).transformer->flash_attention)
        << kernel;
  for (const char* kernel : {"unfused", "local", "AttnBackend.unfused"})
    EXPECT_FALSE(job_of(std::string("--attention-backend ") + kernel).transformer->flash_attention)
        << kernel;
}

TEST(MegatronFlags, APaddedVocabularyIsOne) {
  const std::string job =
      "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 "
      "--seq-length 1024 --micro-batch-size 1 --bf16 ";
  EXPECT_NE(scenario_of_megatron(job + "--tokenizer-name-or-path bigscience/tokenizer "
                                       "--pad-vocab-size-to 250880",
                                 "x.sh", "")
                .find("vocab_size: 250880"),
            std::string::npos);
}

TEST(MegatronFlags, SayWhatIsShardedAmongWhom) {
  const auto sharding = [](const std::string& flags) {
    const std::string launch = "torchrun --nnodes 1 --nproc-per-node 8 " + kJob + flags;
    return parse_scenario(scenario_of_megatron(launch, "x.sh", ""), "test.yaml").sharding;
  };
  EXPECT_EQ(sharding("--use-torch-fsdp2").what, Sharded::weights);
  EXPECT_EQ(sharding("--zero-stage 2").what, Sharded::gradients);
  EXPECT_EQ(sharding("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads").what,
            Sharded::gradients);
  EXPECT_EQ(sharding("--use-megatron-fsdp --data-parallel-sharding-strategy optim").what,
            Sharded::optimizer);
  const std::string optimizer = "--use-distributed-optimizer --overlap-param-gather";
  EXPECT_EQ(sharding(optimizer).gathering, Gathering::first_forward);
  const Sharding halves = sharding(optimizer + " --num-distributed-optimizer-instances 2");
  EXPECT_EQ(halves.group * 2, halves.sharers);
  EXPECT_FALSE(sharding("--overlap-param-gather").sharded());
}

TEST(MegatronFlags, WhatIsLeftOutSaysWhichWayMemoryErrs) {
  const struct {
    const char *flags, *more, *less;
  } kCases[] = {
      {"--num-experts 8", "", ""},
      {"--num-experts 8 --expert-model-parallel-size 8", "", ""},
      {"--multi-latent-attention --kv-lora-rank 512", "", ""},
      {"--mtp-num-layers 1", "", ""},
      {"--use-torch-fsdp2", "", ""},
      {"--optimizer-cpu-offload", "", "offloading"},
      {"--cpu-offloading --cpu-offloading-num-layers 4", "", "offloading"},
      {"--recompute-granularity selective --recompute-modules core_attn moe", "", ""},
      {"--recompute-granularity selective --recompute-modules core_attn dsa", "",
       "the recomputation of dsa"},
      {"--recompute-granularity selective --recompute-modules core_attn", "", ""},
      {"--num-experts 8 --zero-stage 3", "", ""},
      {"--remote-device cpu", "", "offloading"},
      {"--num-experts 8 --moe-layer-recompute", "", ""},
      {"--num-experts 8 --moe-latent-size 1024", "", "the experts' narrower size"},
      {"--num-experts 8 --mlp-type residual", "the MLPs beside experts", ""},
      {"--num-experts 8 16", "layers with other numbers of experts",
       "layers with other numbers of experts"},
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

TEST(MegatronFlags, ATypoBesideHarmlessFlagsGetsASuggestion) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--tensor-model-paralel-size 8", "did you mean --tensor-model-parallel-size?"},
      {"--fp8-formt hybrid", "did you mean --fp8-format?"},
      {"--num-experts 8 --expert-model-paralel-size 2",
       "did you mean --expert-model-parallel-size?"},
      {"--use-distributed-optimiser", "did you mean --use-distributed-optimizer?"},
      {"--data-parallel-sharding-stategy optim", "did you mean --data-parallel-sharding-strategy?"},
      {"--seq-len 4", "did you mean --seq-length?"},
      {"--micro-batchsize 4", "did you mean --micro-batch-size?"}};
  for (const auto& [typo, meant] : kCases)
    EXPECT_NE(imported(std::string("--lr 1 --log-interval 5 ") + typo).find(meant),
              std::string::npos)
        << imported(typo);
}

TEST(MegatronFlags, WhatAParameterCostsFollowsFromItsFlags) {
  const struct {
    const char* flags;
    double weights, gradients, optimizer;
  } kCases[] = {
      {"", 2, 4, 12},
      {"--grad-reduce-in-bf16", 2, 2, 12},
      {"--optimizer sgd", 2, 4, 8},
      {"--optimizer sgd --sgd-momentum 0.0", 2, 4, 4},
      {"--optimizer lion", 2, 4, 8},
      {"--use-precision-aware-optimizer --main-grads-dtype bf16 --exp-avg-dtype bf16 "
       "--exp-avg-sq-dtype bf16",
       2, 2, 8},
      {"--use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-dtype fp8", 2, 4, 7},
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
  EXPECT_DOUBLE_EQ(fp16("--accumulate-allreduce-grads-in-fp32"), 4);
}

TEST(MegatronFlags, RecomputationOf2021IsUnderstood) {
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

TEST(MegatronFlags, ALayoutCountsTheChunks) {
  const Scenario s = job_of(
      "--pipeline-model-parallel-size 4 --nnodes 1 "
      "--pipeline-model-parallel-layout 'Et*3|(t*4|)*6,t*5L'");
  EXPECT_EQ(s.shape.chunks, 2U);
  EXPECT_EQ(s.schedule->name, "interleaved-1f1b");
}

TEST(MegatronFlags, ALayoutWhoseLossIsNotLastIsAnError) {
  EXPECT_NE(refusal_of(kJob + "--num-layers 4 --pipeline-model-parallel-size 4 "
                              "--pipeline-model-parallel-layout 'Et|tt|tL|'")
                .find("the loss ('L') must be in the last stage"),
            std::string::npos);
}

TEST(MegatronFlags, WithoutABatchEachReplicaHasOneMicrobatch) {
  const Scenario s =
      parse_scenario(scenario_of_megatron(
                         "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 "
                         "--hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --bf16 "
                         "--vocab-size 50257 --micro-batch-size 2 --pipeline-model-parallel-size 4",
                         "x.sh", ""),
                     "test.yaml");
  EXPECT_EQ(s.samples_per_update(), 4) << "Megatron-LM's default: 2 x 2 replicas";
}

/// What is not followed has its own reason, and the layers are divided as if it were not there.
TEST(MegatronFlags, SplitsThatAreNotFollowedSayWhy) {
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
TEST(MegatronFlags, WhatIsExportedComesBackAsTheSameJob) {
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
    const Value document = parse_document(s.text(), name);
    const std::size_t at = s.text().find("\ncluster: ") + 10;
    const std::string cluster = s.text().substr(at, s.text().find('\n', at) - at);
    const Scenario back = parse_scenario(scenario_of_megatron(flags, name, cluster), name,
                                         unsaid_by_flags(document, s.transformer->bytes));
    EXPECT_EQ(back.gpu_count(), s.gpu_count());
    EXPECT_EQ(back.samples_per_update(), s.samples_per_update());
    EXPECT_EQ(back.sharding, s.sharding);
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

TEST(MegatronFlags, LayersOfARankAreThoseOfAllItsChunks) {
  const std::string text = imported(
      "--num-layers 28 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
      "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 8");
  EXPECT_NE(text.find("split: [2, 4, 4, 4, 2, 4, 4, 4]"), std::string::npos) << text;
}

TEST(MegatronFlags, NoNumberIsTooLarge) {
  EXPECT_NE(refusal_of(kJob + "--tensor-model-parallel-size 4294967296 --nnodes 1"), "");
  const std::string said =
      refusal_of(kJob +
                 "--num-layers-per-virtual-pipeline-stage 1000000 --pipeline-model-parallel-size "
                 "1000000 --num-layers 1000000 --nnodes 1000000 --nproc-per-node 1000000 "
                 "--micro-batch-size 1000000");
  EXPECT_NE(said.find("1000000 x 1000000 GPUs are more than"), std::string::npos) << said;
}

TEST(MegatronFlags, ExpertsAreTheModels) {
  const auto experts = [](const std::string& more) {
    const std::string text = scenario_of_megatron(
        "run --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
        "--swiglu --micro-batch-size 1 --vocab-size 50257 --ffn-hidden-size 4096 --num-experts 8 "
        "--moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-aux-loss-coeff 1e-3 " +
            more,
        "run.sh", "");
    EXPECT_EQ(text.find("# not known"), std::string::npos) << text;
    return parse_scenario(text, "imported").transformer->experts.value();
  };
  EXPECT_EQ(experts(""), (Experts{.count = 8, .top_k = 2, .width = 4096}));
  EXPECT_EQ(
      experts("--moe-router-topk 4 --moe-ffn-hidden-size 1408 "
              "--moe-shared-expert-intermediate-size 512 --moe-shared-expert-gate"),
      (Experts{.count = 8, .top_k = 4, .width = 1408, .shared_width = 512, .shared_gate = true}));
  const auto layers = [&](const std::string& freq) {
    const Experts e = experts("--moe-layer-freq " + freq);
    return std::pair(e.first_dense, e.every);
  };
  using Pair = std::pair<int, int>;
  // Of Megatron-DeepSpeed's own defaults.
  EXPECT_EQ(experts("--deepspeed --zero-stage 1"),
            (Experts{.count = 8, .top_k = 1, .width = 4096, .every = 2}));
  EXPECT_EQ(experts("--deepspeed --zero-stage 1 --topk 2 --expert-interval 1"),
            (Experts{.count = 8, .top_k = 2, .width = 4096}));
  EXPECT_EQ(layers("1"), Pair(0, 1));
  EXPECT_EQ(layers("2"), Pair(0, 2));
  EXPECT_EQ(layers("'[0]*3+[1]*5'"), Pair(3, 1));
  EXPECT_EQ(layers("'([0]*1+[1]*7)'"), Pair(1, 1));
  EXPECT_EQ(layers("'([0,1]*4)'"), Pair(1, 2));
  EXPECT_EQ(layers("[0,1,1,1,1,1,1,1]"), Pair(1, 1));
}

TEST(MegatronFlags, WhatIsKeptInFp32IsMissingAndTooManyExpertsAreAnError) {
  EXPECT_EQ(job_of("--fp32-residual-connection").missing, "a residual stream in fp32");
  EXPECT_EQ(job_of("--embedding-weights-in-fp32").missing, "an embedding's weights in fp32");
  EXPECT_EQ(job_of("--fp8-margin 0").missing, "");
  std::string encoder = kJob;
  encoder.replace(encoder.find("--num-layers"), 12, "--encoder-num-layers");
  EXPECT_EQ(parse_scenario(scenario_of_megatron(encoder, "x.sh", ""), "x").transformer->num_layers,
            32);
  EXPECT_NE(refusal_of(kJob + "--moe-router-topk 9 --num-experts 8")
                .find("a token cannot use 9 of 8 experts"),
            std::string::npos);
}

TEST(MegatronFlags, ACapacityOfExpertsIsReadBothWays) {
  const std::string job =
      "--num-experts 8 --moe-router-topk 2 --swiglu --expert-model-parallel-size 2 ";
  const Scenario none = job_of(job);
  EXPECT_FALSE(none.routing);
  EXPECT_FALSE(job_of(job + "--moe-expert-capacity-factor -1").routing) << "as Megatron-LM has it";
  for (const bool pads : {false, true}) {
    const Scenario s =
        job_of(job + "--moe-expert-capacity-factor 1.25 --moe-token-drop-policy probs" +
               (pads ? " --moe-pad-expert-input-to-capacity" : ""));
    ASSERT_TRUE(s.routing);
    EXPECT_EQ(s.routing->capacity_factor, 1.25);
    EXPECT_EQ(s.routing->padded, pads);
    const std::string flags = megatron_arguments(s);
    const Scenario again = parse_scenario(scenario_of_megatron(flags, "x.sh", ""), "again.yaml");
    ASSERT_TRUE(again.routing) << flags;
    EXPECT_EQ(again.routing->capacity_factor, 1.25);
    EXPECT_EQ(again.routing->padded, pads);
  }
  EXPECT_NE(refusal_of(kJob + job + "--moe-pad-expert-input-to-capacity")
                .find("without --moe-expert-capacity-factor, which Megatron-LM refuses"),
            std::string::npos);
}

TEST(MegatronFlags, MultiprocessorsOfExchangesAreReadBothWays) {
  const std::string job =
      "--num-experts 8 --moe-router-topk 2 --swiglu --expert-model-parallel-size 2 ";
  const auto sms = [&](const std::string& flags) { return job_of(job + flags).mesh.routing.sms; };
  EXPECT_EQ(sms("--moe-deepep-num-sms 24"), 0) << "its tokens go by NCCL";
  EXPECT_EQ(sms("--moe-token-dispatcher-type flex --moe-enable-deepep"), 20);
  EXPECT_EQ(sms("--moe-token-dispatcher-type flex --moe-enable-deepep --moe-deepep-num-sms 24 "
                "--moe-hybridep-num-sms 8"),
            24);
  const Scenario s = job_of(job +
                            "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend "
                            "hybridep --moe-hybridep-num-sms 8 --moe-deepep-num-sms 24");
  EXPECT_EQ(s.mesh.routing.sms, 8);
  const std::string flags = megatron_arguments(s);
  EXPECT_EQ(parse_scenario(scenario_of_megatron(flags, "x.sh", ""), "again.yaml").mesh.routing.sms,
            8)
      << flags;
}

TEST(MegatronFlags, LayersOfExpertsThatFollowNoRuleAreSaid) {
  const std::string text = imported("--num-experts 4 --moe-layer-freq '[1,1,0,1]'");
  EXPECT_NE(text.find("--moe-layer-freq [1,1,0,1]: layers with experts are all behind"),
            std::string::npos)
      << text;
}

TEST(MegatronFlags, LatentAttentionAndFurtherTokensAreTheModels) {
  const Scenario s = job_of(
      "--multi-latent-attention --q-lora-rank 96 --kv-lora-rank 64 --qk-head-dim 32 "
      "--qk-pos-emb-head-dim 16 --v-head-dim 24 --qk-layernorm --kv-channels 48 "
      "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.1");
  const LatentAttention latent{
      .q_rank = 96, .kv_rank = 64, .rope_dim = 16, .nope_dim = 32, .value_dim = 24};
  EXPECT_EQ(s.transformer->latent, latent);
  EXPECT_EQ(s.transformer->form().qk_norm, QueryKeyNorm::none);
  EXPECT_EQ(s.transformer->mtp_layers, 2);
  const LatentAttention usual{
      .q_rank = 0, .kv_rank = 32, .rope_dim = 64, .nope_dim = 128, .value_dim = 128};
  EXPECT_EQ(job_of("--multi-latent-attention").transformer->latent, usual);
  EXPECT_EQ(job_of("--mtp-num-layers 0 --q-lora-rank 8").transformer->mtp_layers, 0);
}

TEST(MegatronFlags, OfAMixtureSayItAgain) {
  const Scenario s = parse_scenario(
      "model: {base: deepseek-v3-671b, num_layers: 4, first_dense_layers: 1, mtp_layers: 1}\n"
      "cluster: dgx-h100\nschedule: 1f1b\npipeline: {stages: 1}\n",
      "x.yaml");
  const Scenario again =
      parse_scenario(scenario_of_megatron(megatron_arguments(s), "x.sh", ""), "again.yaml");
  EXPECT_EQ(again.transformer->experts, s.transformer->experts);
  EXPECT_EQ(again.transformer->latent, s.transformer->latent);
  EXPECT_EQ(again.transformer->parameters(), s.transformer->parameters());
}

TEST(MegatronImport, SwitchesOfTheSoftwareChangeItsStack) {
  const auto loss = [](const std::string& flags) { return job_of(flags).stack.cross_entropy; };
  EXPECT_EQ(loss(""), CrossEntropy::separate);
  EXPECT_EQ(loss("--cross-entropy-fusion-impl te"), CrossEntropy::separate);  // without the switch
  EXPECT_EQ(loss("--cross-entropy-loss-fusion"), CrossEntropy::fused);
  EXPECT_EQ(loss("--cross-entropy-loss-fusion --cross-entropy-fusion-impl native"),
            CrossEntropy::fused);
  EXPECT_EQ(loss("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"),
            CrossEntropy::in_place);
  EXPECT_FALSE(job_of("--cuda-graph-impl none").stack.cuda_graphs);
  for (const char* flag :
       {"--enable-cuda-graph", "--external-cuda-graph", "--cuda-graph-impl transformer_engine"}) {
    const Scenario graphs = job_of(flag);
    EXPECT_TRUE(graphs.stack.cuda_graphs) << flag;
    EXPECT_EQ(graphs.stack.name, "megatron");
  }
  const Scenario te =
      job_of("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te --enable-cuda-graph");
  const Scenario again =
      parse_scenario(scenario_of_megatron(megatron_arguments(te), "x.sh", ""), "again.yaml");
  EXPECT_EQ(again.stack.cross_entropy, CrossEntropy::in_place);
  EXPECT_TRUE(again.stack.cuda_graphs);
}

}  // namespace
}  // namespace penstock::megatron_import_test
