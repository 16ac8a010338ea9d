// SPDX-License-Identifier: Apache-2.0
// Files of flags: GPT-NeoX, NeMo, Bridge, Primus, Megatron-LM's own.
#include "tests/scenarios/megatron_job.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace penstock::flag_files_test {
namespace {

TEST(FlagFiles, AFileOfFlagsThatIsNotThereIsSaid) {
  const std::string said = refusal_of("torchrun pretrain_gpt.py --yaml-cfg conf.yaml");
  EXPECT_NE(said.find("the file of --yaml-cfg, 'conf.yaml', is not beside it"), std::string::npos)
      << said;
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
  EXPECT_TRUE(neox.sharding.sharded());
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
  EXPECT_TRUE(tests.sharding.sharded());

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
  EXPECT_TRUE(nemo.sharding.sharded());
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
  EXPECT_TRUE(bridge.sharding.sharded());

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

std::string recipe(const std::string& target, const std::string& more = "") {
  return "trainer: {devices: 8, num_nodes: 2, strategy: {tensor_model_parallel_size: 1}}\n"
         "data: {seq_length: 4096, global_batch_size: 128, micro_batch_size: 1}\n"
         "model:\n  config: {_target_: " +
         target + more + "}\noptim: {config: {optimizer: adam, bf16: true}}\n";
}

TEST(FlagFiles, ClassesOfOtherFamiliesAreRefusedWhateverTheirModule) {
  const std::string module = "nemo.collections.llm.gpt.model.llama.";
  for (const char* name : {"T5Config220M", "MambaConfig2_8B", "SSMConfig", "HyenaConfig",
                           "NemotronHConfig", "CLIPConfig", "NevaConfig", "LlavaConfig",
                           "NemotronHModelProvider8B", "Qwen25VLModelProvider7B"}) {
    const std::string why = refusal_of(recipe(module + name), "job.yaml");
    EXPECT_NE(why.find("trains no decoder-only GPT"), std::string::npos) << name << why;
  }
  for (const char* name : {"ChatGLM2Config6B", "AcmeConfig"})
    EXPECT_NE(refusal_of(recipe(module + name), "job.yaml").find("is not known here"),
              std::string::npos)
        << name;
  const std::string sizes =
      ", num_layers: 24, hidden_size: 1024, num_attention_heads: 16, ffn_hidden_size: 4096, "
      "vocab_size: 30522";
  const Scenario bert = parse_scenario(
      scenario_of_megatron(recipe(module + "BertConfig", sizes), "job.yaml", ""), "test.yaml");
  EXPECT_EQ(bert.transformer->family, Family::bert);
}

TEST(FlagFiles, ClassesWithExpertsAreTheirModelOrAskedForThem) {
  const auto read = [](const std::string& target, const std::string& more = "") {
    return parse_scenario(scenario_of_megatron(recipe(target, more), "job.yaml", ""), "test.yaml");
  };
  for (const char* name : {"DeepSeekV3Config", "DeepSeekV3ModelProvider"})
    EXPECT_EQ(read(std::string("a.b.") + name).transformer->experts->count, 256) << name;
  EXPECT_EQ(read("a.MixtralConfig8x7B").transformer->experts->count, 8);
  EXPECT_EQ(read("a.MixtralConfig8x7B", ", vocab_size: 32000").transformer->experts->count, 8);
  for (const char* name : {"MixtralConfig8x3B", "Qwen3MoEConfig", "Qwen3Config40BA4B"})
    EXPECT_NE(refusal_of(recipe(std::string("a.") + name), "job.yaml")
                  .find("num_moe_experts, moe_router_topk, moe_ffn_hidden_size"),
              std::string::npos)
        << name;
  const Scenario half = read("a.Llama3Config8B", ", num_layers: 16");
  EXPECT_EQ(half.transformer->num_layers, 16);
  EXPECT_EQ(half.transformer->hidden_size, 4096);
  EXPECT_EQ(half.transformer->num_query_groups, 8);
  EXPECT_EQ(read("nemo.collections.llm.recipes.llama3_8b.model").transformer->num_layers, 32);
}

TEST(FlagFiles, NemosOptimizerChangesBytes) {
  const auto read = [](const std::string& name) {
    return parse_scenario(
        scenario_of_megatron("trainer: {devices: 8, num_nodes: 1, precision: bf16}\nmodel: "
                             "{num_layers: 4, hidden_size: 64, num_attention_heads: 4, "
                             "encoder_seq_length: 64, vocab_size: 256, micro_batch_size: 1, "
                             "global_batch_size: 8, optim: {name: " +
                                 name + "}}\n",
                             "job.yaml", ""),
        "test.yaml");
  };
  EXPECT_DOUBLE_EQ(read("distributed_fused_adam").transformer->bytes.optimizer, 12);
  EXPECT_DOUBLE_EQ(read("sgd").transformer->bytes.optimizer, 8);
  EXPECT_NE(read("adafactor").missing.find("the state of adafactor"), std::string::npos);
}

TEST(FlagFiles, BatchSizesOfDeepSpeedSayTheReplicasOrContradict) {
  const auto job = [](const std::string& more) {
    return "{\"pipe-parallel-size\": 1, \"model-parallel-size\": 1, \"num-layers\": 4, "
           "\"hidden-size\": 64, \"num-attention-heads\": 4, \"seq-length\": 64, \"vocab_size\": "
           "256, \"train_micro_batch_size_per_gpu\": 4, \"train_batch_size\": 2048, "
           "\"zero_optimization\": {\"stage\": 1}, \"bf16\": {\"enabled\": true}" +
           more + "}";
  };
  const std::string steps = ", \"gradient_accumulation_steps\": 8";
  const Scenario s = parse_scenario(scenario_of_megatron(job(steps), "job.yml", ""), "test.yaml");
  EXPECT_EQ(s.gpu_count(), 64);
  EXPECT_EQ(s.samples_per_update(), 2048);
  EXPECT_NE(refusal_of(job(steps + ", \"global_num_gpus\": 32"), "job.yml")
                .find("train_batch_size 2048 is not 4 x 8, the microbatch x "
                      "gradient_accumulation_steps x 32 replicas"),
            std::string::npos);
  EXPECT_NE(refusal_of(job(", \"gradient_accumulation_steps\": 7"), "job.yml")
                .find("is no multiple of 4 x 7"),
            std::string::npos);
  EXPECT_NE(refusal_of(job(", \"global_num_gpus\": 48"), "job.yml").find("which DeepSpeed refuses"),
            std::string::npos);
}

TEST(FlagFiles, DeepSpeedsHostfileCountsTheGpus) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "hostfile";
  std::filesystem::create_directories(folder);
  const auto read = [&](const std::string& hosts, const std::string& flags = "") {
    std::ofstream(folder / "hosts.txt") << hosts;
    return parse_scenario(
        scenario_of_megatron("deepspeed --hostfile=hosts.txt " + flags +
                                 " pretrain_gpt.py --num-layers 4 --hidden-size 64 "
                                 "--num-attention-heads 4 --seq-length 64 --vocab-size 256 "
                                 "--micro-batch-size 1 --global-batch-size 256 --deepspeed "
                                 "--zero-stage 1 --bf16",
                             (folder / "job.sh").string(), ""),
        "test.yaml");
  };
  EXPECT_EQ(read("n1 slots=8\n# n2\nn3 slots=8 # a node\n\n").gpu_count(), 16);
  EXPECT_EQ(read("n1 slots=8\nn2 slots=8\n", "--num_nodes 1 --num_gpus 8").gpu_count(), 8);
  EXPECT_THROW(read("n1 slots=eight\n"), InputError);
}

}  // namespace
}  // namespace penstock::flag_files_test
