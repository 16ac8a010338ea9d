// SPDX-License-Identifier: Apache-2.0
// Tables of training runs: which they are, what a row becomes, what is refused.
#include "validate/run_table.hpp"

#include "base/error.hpp"
#include "validate/measured_rows.hpp"

#include <gtest/gtest.h>

namespace penstock::run_table_test {
namespace {

const std::string kColumns =
    "id,model,layers,hidden,heads,vocab,seq,gpu,nodes,dp,tp,pp,microbatch,microbatches,zero,"
    "tp_mode,split,iteration_s,peak_gib,peak_of\n";
const std::string kRow =
    "a,llama-1b,6,512,8,1000,256,h100,1,2,2,2,1,4,1,REDUCE_SCATTER,4/2,1.5,2,\"stage 0, rank 0\"\n";

std::string errors_of(const std::string& text) {
  try {
    parse_run_table(text, "t.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RunTable, IsKnownByItsHeader) {
  EXPECT_EQ(measured_format("t.csv", kColumns + kRow), MeasuredFormat::runs);
  EXPECT_EQ(measured_format("t.csv", "a,b\n1,2\n"), MeasuredFormat::unknown);
}

TEST(RunTable, ARowIsAScenarioAndWhatWasMeasured) {
  const RunRow row = parse_run_table(kColumns + kRow, "t.csv").at(0);
  EXPECT_EQ(row.id, "a");
  EXPECT_EQ(row.pipeline_depth, 2);
  EXPECT_EQ(row.measured_s, 1.5);
  EXPECT_EQ(row.measured_bytes, 2.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(row.peak_of, PeakOf::first_stage);
  EXPECT_FALSE(row.of_whole_gpu);
  for (const char* line : {"family: llama\n", "split: [4, 2]\n", "sequence_parallel: true\n",
                           "distributed_optimizer: true\n", "\"base\":\"dgx-h100\""})
    EXPECT_NE(row.scenario.find(line), std::string::npos) << line << row.scenario;
}

TEST(RunTable, ARowMayHoldAWholeScenario) {
  const std::string columns = "id,model,pp,scenario_json,iteration_s,note\n";
  const std::string text =
      columns + R"(a,tiny,2,"{""name"": ""a"", ""pipeline"": {""stages"": 2}}",1.5,estimated)"
                "\n";
  EXPECT_EQ(measured_format("t.csv", text), MeasuredFormat::runs);
  EXPECT_EQ(unknown_columns(text, "t.csv"), "");
  const RunRow row = parse_run_table(text, "t.csv").at(0);
  EXPECT_EQ(row.scenario, "{\n \"name\": \"a\",\n \"pipeline\": {\n  \"stages\": 2\n }\n}\n");
  EXPECT_EQ(row.pipeline_depth, 2);
  EXPECT_EQ(row.measured_s, 1.5);
  EXPECT_EQ(row.model, "tiny");
  EXPECT_EQ(row.note, "estimated");
  EXPECT_NE(errors_of(columns + "a,tiny,2,[1],1.5,\n").find("'scenario_json': must be a map"),
            std::string::npos);
}

TEST(RunTable, MegatronOverlapsItsReductionWhereAColumnSaysSo) {
  const auto scenario = [](const std::string& columns, const std::string& cells) {
    return parse_run_table(
               "id,model,layers,hidden,heads,vocab,seq,gpu,dp,tp,pp,microbatch,microbatches," +
                   columns + "\na,llama-1b,6,512,8,1000,256,h100,2,1,2,1,4," + cells + "\n",
               "t.csv")
        .at(0)
        .scenario;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(scenario("source,overlap_grad_reduce", "SimuMax,1"), ", overlap: backward}"));
  EXPECT_TRUE(has(scenario("source,overlap_grad_reduce", "SimuMax,0"), ", overlap: none}"));
  EXPECT_TRUE(has(scenario("source", "SimuMax"), ", overlap: none}"));
  EXPECT_EQ(unknown_columns("id,overlap_grad_reduce\na,1\n", "t.csv"), "");
  EXPECT_FALSE(has(scenario("source", "nanotron"), "overlap"));
  EXPECT_TRUE(has(scenario("source", "a paper"), "stack: none\n"));
}

const std::string kVtrain =
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n";

TEST(RunTable, VtrainsColumnsAreKnownByTheirNames) {
  EXPECT_EQ(measured_format("t.csv", kVtrain), MeasuredFormat::runs);
  const auto rows = parse_run_table(
      kVtrain + "8,32,4,1024,16,24,1024,2,2,2,220\n64,64,1,1024,16,24,1024,8,4,2,500\n", "t.csv");
  EXPECT_EQ(rows[0].id, "line 2: 8 GPUs, h 1024, 24 layers, b 4, t 2, d 2, p 2, m 4");
  EXPECT_EQ(rows[0].measured_s, 0.22);
  EXPECT_EQ(rows[0].pipeline_depth, 2);
  for (const char* line : {"vocab_size: 50257\n", "microbatches: 4\n", "recompute: full\n",
                           "stack: megatron-a100-node\n", "\"nodes\":1"})
    EXPECT_NE(rows[0].scenario.find(line), std::string::npos) << line << rows[0].scenario;
  EXPECT_NE(rows[1].scenario.find("stack: megatron-a100-nodes\n"), std::string::npos);
  EXPECT_NE(rows[1].scenario.find("\"nodes\":8"), std::string::npos);
}

TEST(RunTable, VtrainsRowsMustAgreeWithThemselves) {
  const auto error_in = [](const std::string& row) { return errors_of(kVtrain + row); };
  EXPECT_NE(error_in("8,32,4,many,16,24,1024,2,2,2,220\n").find("'hidden size' must be an integer"),
            std::string::npos);
  EXPECT_NE(error_in("8,32,4,1024,16,24,1024,2,2,2,0\n").find("'iteration time (ms)' must be"),
            std::string::npos);
  EXPECT_NE(error_in("4,32,4,1024,16,24,1024,2,2,2,220\n").find("is 8, not the 4 GPUs"),
            std::string::npos);
  EXPECT_NE(error_in("8,30,4,1024,16,24,1024,2,2,2,220\n").find("must be a multiple of"),
            std::string::npos);
  std::string header = kVtrain;
  header.replace(header.find("micro batch"), 11, "microbatch");
  EXPECT_NE(errors_of(header + "8,32,4,1024,16,24,1024,2,2,2,220\n").find("did you mean"),
            std::string::npos);
}

TEST(RunTable, AScheduleMayHaveChunks) {
  const std::string columns =
      "layers,hidden,heads,vocab,seq,gpu,dp,tp,pp,chunks,schedule,microbatch,microbatches\n";
  const RunRow row =
      parse_run_table(columns + "8,512,8,1000,256,h100,1,1,2,2,interleaved-1f1b,1,4\n", "t.csv")
          .at(0);
  EXPECT_NE(row.scenario.find("schedule: interleaved-1f1b\n"), std::string::npos) << row.scenario;
  EXPECT_NE(row.scenario.find("  chunks: 2\n"), std::string::npos) << row.scenario;
}

TEST(RunTable, ASourceIsAStackAndAGpuItsDevice) {
  const auto scenario = [](const std::string& source, const std::string& cluster) {
    const std::string columns =
        "source,layers,hidden,heads,vocab,seq,gpu,cluster_json,dp,tp,pp,microbatch,microbatches\n";
    return parse_run_table(columns + source + ",6,512,8,1000,256,b200," + cluster + ",1,2,2,1,4\n",
                           "t.csv")
        .at(0)
        .scenario;
  };
  const std::string nearest = scenario("SimuMax docs", "\"{\"\"base\"\": \"\"gb200-nvl72\"\"}\"");
  EXPECT_NE(nearest.find("stack: megatron-b200-node\n"), std::string::npos) << nearest;
  EXPECT_NE(nearest.find(R"("device":{"base":"b200","matrix_efficiency":"48.2%")"),
            std::string::npos)
      << nearest;
  EXPECT_EQ(nearest.find("sequence_parallel"), std::string::npos) << nearest;
  const std::string said = scenario("nanotron", "\"{\"\"device\"\": \"\"H100\"\"}\"");
  EXPECT_NE(said.find("\"device\":\"H100\""), std::string::npos) << said;
  EXPECT_NE(said.find("sequence_parallel: true"), std::string::npos) << said;
}

TEST(RunTable, ACellStaysOneValue) {
  std::string row = kRow;
  row.replace(row.find("llama-1b"), 8, "\"llama, x: [1\"");
  EXPECT_NE(parse_run_table(kColumns + row, "t.csv").at(0).scenario.find("name: \"llama, x: [1\""),
            std::string::npos);
}

TEST(RunTable, RefusesWhatIsNoNumberAndGpusThatNoClusterHas) {
  std::string row = kRow;
  row.replace(row.find("1.5"), 3, "1,5");
  EXPECT_NE(errors_of(kColumns + row).find("line 2 has 21 cells"), std::string::npos);
  row = kRow;
  row.replace(row.find("1.5"), 3, "1.x");
  row.replace(row.find("h100"), 4, "z80");
  EXPECT_NE(errors_of(kColumns + row).find("'iteration_s': must be a number"), std::string::npos);
  EXPECT_NE(errors_of(kColumns + row).find("no cluster is known for 'z80'"), std::string::npos);
  EXPECT_NE(errors_of("layers,gpu\n1,h100\n").find("column 'hidden' is missing"),
            std::string::npos);
  EXPECT_NE(errors_of("").find("holds no row"), std::string::npos);
}

TEST(RunTable, WhatItsColumnsSayOfContextTransfersBytesAndReductionIsInTheScenario) {
  const std::string columns =
      "layers,hidden,heads,vocab,seq,cluster_json,dp,tp,cp,pp,microbatch,microbatches,transfers,"
      "reduction,bytes_json,class\n";
  const RunRow row =
      parse_run_table(
          columns +
              "8,512,8,1000,256,\"{\"\"base\"\": \"\"dgx-h100\"\"}\",2,1,2,2,1,4,coupled,"
              "ring,\"{\"\"version\"\": 4}\",odd\n",
          "t.csv")
          .at(0);
  for (const char* line : {"transfers: coupled\n", "  context: 2\n", "{algorithm: ring}\n",
                           "  bytes_per_parameter: {\"version\":4}\n"})
    EXPECT_NE(row.scenario.find(line), std::string::npos) << line << row.scenario;
  EXPECT_EQ(row.row_class, "odd");
}

TEST(RunTable, ARateStandsForATime) {
  const auto row = [](const std::string& column, const std::string& cell) {
    return parse_run_table(
               "layers,hidden,heads,vocab,seq,gpu,dp,tp,pp,microbatch,microbatches,iteration_s," +
                   column + "\n8,512,8,1000,256,h100,2,1,1,4,8," + cell + "\n",
               "t.csv")
        .at(0);
  };
  EXPECT_EQ(row("samples_per_s", ",16").measured_s, 4);
  EXPECT_EQ(row("samples_per_s", "3,16").measured_s, 3) << "the time that was measured goes first";
  EXPECT_FALSE(row("samples_per_s", ",0").measured_s);
  EXPECT_EQ(row("tflops_per_gpu", ",430").measured_tflops, 430);
  EXPECT_FALSE(row("tflops_per_gpu", "3,430").measured_tflops);
  EXPECT_FALSE(row("tflops_attention", ",full").attention_by_half);
  EXPECT_TRUE(row("tflops_attention", ",half").attention_by_half);
  EXPECT_THROW(row("tflops_attention", ",some"), InputError);
}

const std::string kSimumax = R"({"system": "b200", "rows": [
  {"case": "llama3_70b_l12_tp2_cp4_pp1_dp1_seq32768_mbc4_cef", "model": "llama3-70b", "layer_num": 12,
   "mbc": 4, "real_ms": 1758.0, "real_alloc_gib": 68.43},
  {"case": "deepseekv2_tp1_ep8_pp1_dp8_l4_mbc4_cef", "model": "deepseekv2", "layer_num": 4, "mbc": 4,
   "real_ms": 1, "real_alloc_gib": 1}]})";

TEST(RunTable, PrecisionIsTheTypeOfProductsAndRecipesGatherNarrowWeights) {
  const std::string columns =
      "id,source,layers,hidden,heads,vocab,seq,gpu,nodes,dp,tp,pp,microbatch,microbatches,"
      "precision,grad_bytes\n";
  const auto scenario = [&](const std::string& source, const std::string& precision) {
    return parse_run_table(
               columns + "a," + source + ",6,512,8,1000,256,h100,1,2,2,2,1,4," + precision + ",2\n",
               "t.csv")
        .at(0)
        .scenario;
  };
  EXPECT_NE(scenario("somebody", "fp8").find("\n  precision: fp8\n"), std::string::npos);
  EXPECT_NE(scenario("somebody", "nvfp4").find("\n  precision: nvfp4\n"), std::string::npos);
  const std::string recipe = scenario("NVIDIA/dgxc-benchmarking 25.04", "fp8");
  EXPECT_NE(recipe.find("precision: {base: fp8, linear_weights: narrow}\n"), std::string::npos);
  EXPECT_NE(recipe.find("stack: nemo\n"), std::string::npos);
  EXPECT_NE(recipe.find("{gradients: 2}"), std::string::npos);
  EXPECT_NE(scenario("NVIDIA/dgxc-benchmarking 25.04", "mixed-bf16").find("precision: mixed-bf16"),
            std::string::npos);
}

TEST(Summaries, ALineOfMegatronBridgesIsARunOrSaysWhyNot) {
  const std::string columns =
      "release,task,System,Model,#-GPUs,Precision,GBS,MBS,Sequence Length,FSDP,TP,PP,CP,VP,EP,GA,"
      "Tokens / sec / GPU,Model TFLOP / sec / GPU\n";
  const std::string text =
      columns +
      "26.06,Pre-Training Performance,DGX-H100,LLAMA3.1_405B,1024,FP8,1536,1,8192,,8,8,2,8,n/a,,"
      "326,822\n"
      "25.11,Pre-Training Performance,DGX-B200,LLAMA3_8B,8,FP8-CS (FP8-MX),128,2,8192,0,1,1,1,n/a,"
      "1,8,30624 (29521),1576 (1519)\n"
      "26.06,Pre-Training Performance,DGX-GB300,GPT OSS 120B,64,MXFP8,1280,4,4096,,1,1,1,n/a,16,,"
      "33024,1077\n"
      "26.06,LoRA Performance,DGX-GB200,LLAMA3_70B,8,MXFP8,32,1,4096,,1,4,1,20,n/a,,5958,1663\n"
      "25.11,Pre-Training Performance,DGX-H100,LLAMA3_8B,8,FP8-CS,128,1,8192,8,1,1,1,n/a,1,16,"
      "14451,744\n";
  EXPECT_EQ(measured_format("t.csv", text), MeasuredFormat::runs);
  EXPECT_EQ(unknown_columns(text, "t.csv"), "");
  const std::vector<RunRow> rows = parse_run_table(text, "t.csv");
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_NEAR(*rows[0].measured_s, 1536.0 * 8192 / (326 * 1024), 1e-3);
  for (const char* line :
       {"num_layers: 126\n", "vocab_size: 128256\n", "base: fp8-current, linear_weights: narrow",
        "\"base\":\"dgx-h100\",\"nodes\":128", "chunks: 8\n", "width: 8\n", "context: 2\n",
        "microbatches: 192\n", "schedule: interleaved-1f1b\n", "tensor_overlap: true\n",
        "split: [1, 2, 2"})
    EXPECT_NE(rows[0].scenario.find(line), std::string::npos) << line << rows[0].scenario;
  EXPECT_NEAR(*rows[1].measured_s, 128.0 * 8192 / (30624 * 8), 1e-3) << "what stands first";
  EXPECT_NE(rows[1].scenario.find("microbatches: 8\n"), std::string::npos) << rows[1].scenario;
  for (const char* line : {"base: gpt-oss-120b\n", "expert: 16\n", "expert_tensor: 1\n",
                           "width: 64\n", "expert_exchange: once-per-node\n"})
    EXPECT_NE(rows[2].scenario.find(line), std::string::npos) << line << rows[2].scenario;
  EXPECT_EQ(rows[3].left_out, "adapters alone are trained");
  EXPECT_NE(rows[4].scenario.find("  shard: weights\n  shard_group: 8\n"), std::string::npos);
  EXPECT_TRUE(!rows[2].unsupported && rows[3].unsupported && !rows[4].unsupported);
}

/// Bridge's pages do not say whether passes run together, nor what is recomputed: its recipes did,
/// by release.
TEST(Summaries, RowsOfMixturesAreAsTheirRecipesWere) {
  const auto scenario = [](const std::string& release, const std::string& row) {
    return parse_run_table(
               "release,task,System,Model,#-GPUs,Precision,GBS,MBS,Sequence Length,FSDP,TP,PP,CP,"
               "VP,EP,GA,Tokens / sec / GPU,Model TFLOP / sec / GPU\n" +
                   release + ",Pre-Training Performance," + row,
               "t.csv")
        .at(0)
        .scenario;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const char* deepseek = "DGX-GB300,DeepSeekV3,256,MXFP8,4096,1,4096,,1,2,1,8,32,,6288,1635\n";
  const std::string before = scenario("26.04", deepseek), later = scenario("26.06", deepseek);
  EXPECT_TRUE(has(before, "recompute_modules: [mla_up_proj]\n")) << before;
  EXPECT_FALSE(has(before, "expert_overlap: true") || has(before, "cuda_graphs: true"));
  EXPECT_FALSE(has(later, "recompute_modules")) << later;
  EXPECT_TRUE(has(later, "expert_overlap: true") && has(later, "cuda_graphs: true")) << later;
  const std::string eight =
      scenario("26.02", "DGX-B300,Qwen3_235B_a22B,256,MXFP8,8192,1,4096,,1,8,1,4,8,,2600,383\n");
  EXPECT_TRUE(has(eight, "expert_exchange: all-to-all\n") && has(eight, "expert_overlap: true"));
}

TEST(Summaries, RowsGatheredFromBridgesPagesAreTheSameRuns) {
  const std::string text =
      "id,release,task,system,model,ngpus,precision,gbs,mbs,sequence_length,fsdp,tp,pp,cp,vp,ep,ga,"
      "tokens_per_sec_per_gpu\nm,26.06,Pre-Training "
      "Performance,DGX-H100,LLAMA3.1_405B,1024,FP8,1536,1,8192,,8,8,2,8,n/a,,326\n";
  const RunRow row = parse_run_table(text, "t.csv").at(0);
  EXPECT_NEAR(*row.measured_s, 1536.0 * 8192 / (326 * 1024), 1e-3);
  EXPECT_NE(row.scenario.find("chunks: 8\n"), std::string::npos) << row.scenario;
}

TEST(Summaries, KnownTablesOfOtherThingsSayWhatTheyHold) {
  EXPECT_EQ(errors_of("gpus,dispatch_GBps,combine_GBps\n16,43,42\n"),
            "t.csv: holds rates of DeepEP's all-to-alls, no runs");
  EXPECT_NE(errors_of("id,class,fit_s\na,C,3.4\n").find("classes of another table's rows"),
            std::string::npos);
  const std::string golden =
      "case,golden,iter_median_s,n_iter,mem_max_alloc_bytes\nbert,g,1.6,11,3e9\n";
  EXPECT_EQ(measured_format("t.csv", golden), MeasuredFormat::runs);
  const RunRow row = parse_run_table(golden, "t.csv").at(0);
  EXPECT_EQ(row.id, "line 2: bert");
  EXPECT_TRUE(row.unsupported);
  EXPECT_NE(row.left_out.find("neither the vocabulary nor"), std::string::npos);
}

TEST(OpTimes, AreA1F1BOfEachDevicesOwnWithSharedVocabularyLayersInItsFAndB) {
  const std::string columns =
      "id,model,pp,microbatches,iteration_s,schedule,f_us,b_us,s_us,input_f_us,input_b_us,comm_"
      "us\n";
  const auto rows = parse_run_table(columns +
                                        "a,m,2,128,1.5,1f1b,10 30,20 60,,,,\n"
                                        "b,m,2,4,1,1f1b-vocab-1,10 11,20 21,5 6,1 2,3 4,7\n"
                                        "c,m,2,4,1,1f1b,,,,,,\n",
                                    "t.csv", true);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(*rows[0].measured_s, 1.5);
  EXPECT_NE(rows[0].scenario.find("\"30 us\""), std::string::npos) << rows[0].scenario;
  EXPECT_NE(rows[1].scenario.find("\"13 us\""), std::string::npos) << "F and the input's";
  EXPECT_NE(rows[1].scenario.find("\"38 us\""), std::string::npos)
      << "B, S, the input's, exchanges";
  EXPECT_EQ(rows[2].left_out, "no times of ops");
  const auto refusal = [&](const std::string& cells) {
    try {
      parse_run_table(columns + cells, "t.csv", true);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal("a,m,2,128,1.5,1f1b,10 30 1,20 60,,,,\n").find("'f_us': must be a time"),
            std::string::npos)
      << refusal("a,m,2,128,1.5,1f1b,10 30 1,20 60,,,,\n");
  EXPECT_NE(refusal("a,m,2,128,1.5,1f1b,10 30,20 x,,,,\n").find("'b_us'"), std::string::npos);
  EXPECT_NE(refusal("a,m,2,128,1.5,1f1b,10 30,,,,,\n").find("'b_us'"), std::string::npos);
}

TEST(RunTable, AJobOverRacksTakesAsManyGpusOfEach) {
  const auto cluster = [](const std::string& dp) {
    const std::string text =
        parse_run_table(
            "layers,hidden,heads,vocab,seq,gpu,nodes,dp,tp,pp,microbatch,microbatches\n"
            "8,512,8,1000,256,gb200,128," +
                dp + ",2,1,1,4\n",
            "t.csv")
            .at(0)
            .scenario;
    return text.substr(text.find("cluster: "),
                       text.find('\n', text.find("cluster: ")) - text.find("cluster: "));
  };
  EXPECT_EQ(
      cluster("256"),
      R"(cluster: {"base":"gb200-nvl72","devices_per_node":64,"inter":{"nics":64},"nodes":8})");
  EXPECT_EQ(cluster("32"), R"(cluster: {"base":"gb200-nvl72","nodes":1})");
  EXPECT_EQ(cluster("72"), R"(cluster: {"base":"gb200-nvl72","nodes":2})") << "full racks";
}

TEST(RunTable, NotesThatSayCudaGraphsAreTheStacks) {
  const auto scenario = [](const std::string& flags) {
    return parse_run_table(
               "layers,hidden,heads,vocab,seq,gpu,dp,tp,pp,microbatch,microbatches,flags\n"
               "8,512,8,1000,256,h100,1,1,1,1,4," +
                   flags + "\n",
               "t.csv")
        .at(0)
        .scenario;
  };
  EXPECT_NE(
      scenario("CUDA graph of the whole step").find("stack: {base: none, cuda_graphs: true}\n"),
      std::string::npos);
  EXPECT_NE(scenario("NVLS off").find("stack: none\n"), std::string::npos);
}

TEST(Summaries, AConfigurationOfMlperfIsARunOrSaysWhyNot) {
  const std::string text =
      "id,benchmark,gpu,gpus,tp,pp,vp,cp,dp,microbatch,microbatches,seq,precision,overlap,"
      "iteration_s\n"
      "a,llama31_405b,GB300,512,2,8,8,2,16,1,56,8192,NVFP4;attention F16,CUDA graphs,9.59548\n"
      "b,deepseekv3_671b,GB300,256,1,4,4,1,64,1,240,4096,MXFP8;FP8 attention,combined 1F1B,38.9\n"
      "c,flux1,GB300,256,1,1,1,1,256,1,1,4096,NVFP4,,1.2\n";
  const std::vector<RunRow> rows = parse_run_table(text, "t.csv");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(*rows[0].measured_s, 9.59548);
  for (const char* line : {"precision: nvfp4\n", "vocab_size: 32000\n", "stages: 8\n",
                           "\"devices_per_node\":64,\"inter\":{\"nics\":64},\"nodes\":8",
                           "microbatches: 56\n", "stack: {base: nemo, cuda_graphs: true}\n"})
    EXPECT_NE(rows[0].scenario.find(line), std::string::npos) << line << rows[0].scenario;
  EXPECT_EQ(rows[0].scenario.find("tensor_overlap"), std::string::npos);
  for (const char* line :
       {"base: deepseek-v3-671b\n", "mtp_layers: 1\n", "\"attention\":\"fp8\"",
        "split: [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1]\n", "expert_overlap: true\n"})
    EXPECT_NE(rows[1].scenario.find(line), std::string::npos) << line << rows[1].scenario;
  EXPECT_EQ(rows[2].left_out, "flux1 is not a model that is shipped");
}

TEST(Simumax, ACaseIsARunOfAModelOrOfAMixtureOfExperts) {
  EXPECT_EQ(measured_format("t.json", kSimumax), MeasuredFormat::runs);
  const auto rows = parse_run_table(kSimumax, "t.json");
  EXPECT_EQ(rows.at(0).measured_s, 1.758);
  EXPECT_EQ(rows[0].measured_bytes, 68.43 * 1024 * 1024 * 1024);
  for (const char* line : {"num_layers: 12\n", "seq_length: 32768\n", "  tensor: 2\n",
                           "  context: 4\n", "  width: 1\n", "microbatches: 4\n",
                           "distributed_optimizer: true", "stack: megatron-b200-node\n"})
    EXPECT_NE(rows[0].scenario.find(line), std::string::npos) << line << rows[0].scenario;
  for (const char* line :
       {"base: deepseek-v2\n", "num_layers: 4\n", "first_dense_layers: 1\n", "expert: 8\n"})
    EXPECT_NE(rows.at(1).scenario.find(line), std::string::npos) << line << rows[1].scenario;
}

TEST(Simumax, RefusesWhatIsNone) {
  for (const char* text :
       {R"({"real_ms": 1})", R"({"rows": [{"real_ms": 1}]})", R"({"rows": [], "real_ms": 1})",
        R"({"rows": 3, "real_ms": 1})", "{\"real_ms\":"})
    EXPECT_NE(errors_of(text), "") << text;
}

TEST(PredictedRows, AreReadAsTheyAreWritten) {
  const std::string text =
      "name,measured_s,predicted_s,depth,class,measured_bytes,predicted_bytes\n"
      "\"a, b\",2,1,4,T,8e9,\nc,,1,,,,\n";
  EXPECT_EQ(measured_format("t.csv", text), MeasuredFormat::predicted);
  const MeasuredReport report = parse_predicted_rows(text, "t.csv");
  EXPECT_EQ(report.rows[0].name, "a, b");
  EXPECT_EQ(report.rows[0].error(), -0.5);
  EXPECT_EQ(report.rows[0].pipeline_depth, 4);
  EXPECT_EQ(report.rows[0].row_class, "T");
  EXPECT_EQ(report.rows[0].measured_bytes, 8'000'000'000);
  EXPECT_FALSE(report.rows[0].predicted_bytes);
  EXPECT_FALSE(report.rows[1].measured_s);
}

TEST(PredictedRows, SayEverythingThatIsWrong) {
  try {
    parse_predicted_rows("name,measured_s\na,two\nb,-1\n", "t.csv");
    FAIL();
  } catch (const InputError& error) {
    const std::string said = error.what();
    for (const char* part :
         {"t.csv:1:1: column 'predicted_s' is missing", "t.csv:2:0: 'measured_s': must be a number",
          "t.csv:3:0: 'measured_s': must be a number"})
      EXPECT_NE(said.find(part), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace penstock::run_table_test
