// SPDX-License-Identifier: Apache-2.0
// The key `stack`: names, files and maps; what it leaves to the pipeline's own keys.
#include "base/error.hpp"
#include "scenarios/scenario.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::stack_key_test {
namespace {

const std::string kLlama = "model: llama-3-8b\ncluster: {base: dgx-h100, nodes: 2}\n";

constexpr const char* kUsual = "megatron";

Scenario read(const std::string& text) { return parse_scenario(text, "test.yaml"); }

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(StackKey, TakesANameOrAMapThatChangesIt) {
  const std::string rest = kLlama + "schedule: 1f1b\npipeline: {stages: 4, width: 4}\n";
  const Scenario named = read(rest + "stack: nanotron\n");
  EXPECT_EQ(named.stack.name, "nanotron");
  const Scenario changed = read(rest + "stack: {base: nanotron, iteration_overhead: 1 s}\n");
  EXPECT_EQ(changed.stack.iteration_overhead_s, 1);
  EXPECT_EQ(changed.stack.matrix_efficiency, named.stack.matrix_efficiency);
  EXPECT_NE(refusal(rest + "stack: nanotrom\n").find("did you mean 'nanotron'"), std::string::npos);
}

const std::string kJob = "schedule: 1f1b\npipeline: {stages: 4, width: 4}\n";

TEST(StackKey, AModelByShapeHasTheUsualOneAndOthersHaveNone) {
  const Scenario usual = read(kLlama + kJob), named = read(kLlama + "stack: megatron\n" + kJob);
  EXPECT_EQ(usual.stack.name, kUsual);
  EXPECT_EQ(usual.costs[0][OpKind::forward].seconds, named.costs[0][OpKind::forward].seconds);
  EXPECT_EQ(usual.costs[0].activation_bytes, named.costs[0].activation_bytes);
  const auto says = [](const Scenario& s) {
    return std::ranges::any_of(s.notes, [](const std::string& note) {
      return note.find("its software is taken to be megatron") != std::string::npos;
    });
  };
  EXPECT_TRUE(says(usual));
  EXPECT_FALSE(says(named));
  EXPECT_EQ(read("model: {forward: 1 s, backward: 2 s}\nschedule: 1f1b\n").stack.name, "");
}

TEST(StackKey, NoneIsTheNeutralOne) {
  const Scenario none = read(kLlama + "stack: none\n" + kJob);
  EXPECT_EQ(none.stack.name, "none");
  EXPECT_FALSE(none.stack.takes_layers_apart());
  EXPECT_DOUBLE_EQ(none.cluster.inter.bytes_per_s, load_cluster("dgx-h100").inter.bytes_per_s);
  EXPECT_EQ(none.transformer->bytes.gradients, ParameterBytes{}.gradients);
}

TEST(StackKey, ItsBytesAreThoseOfMixedPrecision) {
  for (const std::string stack : {"megatron", "torchtitan", "nanotron", "deepspeed"}) {
    const std::string job = "stack: " + stack + "\n" + kJob;
    const Scenario single = read(
        "model: {base: llama-3-8b, precision: fp32}\ncluster: {base: dgx-h100, nodes: 2}\n" + job);
    EXPECT_EQ(single.transformer->bytes.weights, 4) << stack;
    EXPECT_EQ(single.transformer->bytes.gradients, 4) << stack;
    EXPECT_EQ(single.transformer->bytes.optimizer, 8) << stack;
  }
  const Scenario half = read(
      "model: {base: llama-3-8b, precision: mixed-fp16}\ncluster: {base: dgx-h100, nodes: "
      "2}\nstack: megatron\n" +
      kJob);
  EXPECT_EQ(half.transformer->bytes.gradients, 2);
  EXPECT_EQ(half.transformer->bytes.reduced, 2);
}

TEST(StackKey, SaysWhichNumberWasNotMeasuredOnTheDevice) {
  const auto said = [](const std::string& text, const std::string& part) {
    const Scenario s = read(text + kJob);
    return std::ranges::any_of(s.file_notes, [&](const std::string& note) {
      return note.find(part) != std::string::npos;
    });
  };
  const std::string h200 = "model: llama-3-8b\ncluster: {base: dgx-h100, nodes: 2, device: H200}\n";
  EXPECT_TRUE(said(h200 + "stack: none\n", "the efficiency curve of H200 is assumed"));
  EXPECT_FALSE(said(kLlama + "stack: none\n", "is assumed"));
  EXPECT_TRUE(said(h200 + "stack: nanotron\n", "'nanotron' was not measured on it"));
  EXPECT_FALSE(said(kLlama + "stack: nanotron\n", "is assumed"));
  const std::string b200 = "model: llama-3-8b\ncluster: {base: dgx-b200, nodes: 2";
  EXPECT_FALSE(said(b200 + "}\nstack: megatron\n", "assumed")) << "its kernels were measured";
  EXPECT_TRUE(said(b200 + "}\nstack: megatron-b200-node\n", "is assumed"));
  EXPECT_FALSE(said(
      b200 + ", device: {base: b200, matrix_efficiency: 48%}}\n" + "stack: megatron-b200-node\n",
      "is assumed"));
}

TEST(StackKey, OverlapsTheReductionWhereThePipelineDoesNotSayIt) {
  const std::string stack = kLlama + "stack: {reduction_overlap: backward}\n";
  const std::string flushed = stack + "schedule: 1f1b\n";
  EXPECT_GT(read(flushed + "pipeline: {stages: 4, width: 4}\n").reduction.buckets.at(0).size(), 1U);
  EXPECT_TRUE(read(flushed + "pipeline: {stages: 4, width: 4, reduction: {overlap: none}}\n")
                  .reduction.buckets.at(0)
                  .empty());
  EXPECT_NO_THROW(read(stack + "schedule: interleaved-1f1b\npipeline: {stages: 4, width: 4, "
                               "microbatches: 8}\n"));
}

TEST(StackKey, SlowsLinksAndSaysBytesThatTheModelLeavesOpen) {
  const std::string rest =
      "schedule: 1f1b\npipeline: {stages: 4, width: 4}\n"
      "stack: {link_efficiency: 50%, link_latency: 1 ms, node_latency: 2 ms, gradient_bytes: 6}\n";
  const Scenario s = read(kLlama + rest), neutral = read(kLlama + "stack: none\nschedule: 1f1b\n");
  EXPECT_DOUBLE_EQ(s.cluster.inter.bytes_per_s, neutral.cluster.inter.bytes_per_s / 2);
  EXPECT_DOUBLE_EQ(s.cluster.inter.latency_s, 1e-3);
  EXPECT_DOUBLE_EQ(s.cluster.intra.latency_s, 2e-3);
  EXPECT_EQ(s.transformer->bytes.gradients, 6);
  EXPECT_EQ(read("model: {base: llama-3-8b, bytes_per_parameter: {gradients: 2}}\ncluster: "
                 "{base: dgx-h100, nodes: 2}\n" +
                 rest)
                .transformer->bytes.gradients,
            2);
}

TEST(StackKey, TheLossMovesWhatItsKernelsDoUnlessItIsSaid) {
  const auto moved = [](const std::string& stack) {
    return read(kLlama + "schedule: 1f1b\npipeline: {stages: 4, width: 4}\nstack: " + stack + "\n")
        .stack.logits_traffic;
  };
  EXPECT_EQ(moved("megatron"), 26);
  EXPECT_EQ(moved("{base: megatron, cross_entropy: fused}"), 14);
  EXPECT_EQ(moved("{base: megatron, cross_entropy: in-place}"), 5);
  EXPECT_EQ(moved("{base: megatron, cross_entropy: fused, logits_traffic: 3}"), 3);
  EXPECT_EQ(moved("{base: nemo, cross_entropy: in-place}"), 4);
  EXPECT_EQ(moved("{cross_entropy: in-place}"), 0);  // nothing was measured
}

TEST(StackKey, NoHostTimeCountsWhereKernelsAreGraphs) {
  const std::string host =
      "stack: {base: megatron, forward_host: 1 s, backward_host: 1 s, tensor_host: 1 s";
  const std::string rest = "schedule: 1f1b\npipeline: {stages: 4, tensor: 2, width: 2}\n";
  const Scenario launched = read(kLlama + rest + host + "}\n"),
                 graph = read(kLlama + rest + host + ", cuda_graphs: true}\n");
  EXPECT_GT(launched.costs[0][OpKind::forward].seconds, 1);
  EXPECT_LT(graph.costs[0][OpKind::forward].seconds, 1);
  // The curve of whole layers has launches of its device.
  const std::string tiny =
      "model: {family: gpt, num_layers: 4, hidden_size: 8, num_attention_heads: 1, seq_length: 8, "
      "vocab_size: 8}\ncluster: dgx-h100\nschedule: 1f1b\npipeline: {stages: 4}\n";
  const double floor_s = 20 * 4e-6;  // of a layer's forward kernels, 4 us each
  EXPECT_DOUBLE_EQ(read(tiny + "stack: none\n").costs[0][OpKind::forward].seconds, floor_s);
  EXPECT_LT(
      read(tiny + "stack: {base: none, cuda_graphs: true}\n").costs[0][OpKind::forward].seconds,
      floor_s / 2);
}

TEST(StackKey, RefusesWhatNeedsLayersTakenApart) {
  EXPECT_NE(refusal(kLlama + "schedule: 1f1b\nstack: {forward_host: 1 ms}\n")
                .find("'forward_host' needs 'matrix_efficiency'"),
            std::string::npos);
  EXPECT_NE(refusal(kLlama + "schedule: 1f1b\nstack: {matrix_efficiency: 0}\n")
                .find("'matrix_efficiency' must be more than 0"),
            std::string::npos);
}

TEST(StackKey, ChangesWhatStagesOfGivenCostsTake) {
  const std::string job =
      "model: {forward: [1 s, 0.5 s], backward: [2 s, 1 s], step: 1 s}\n"
      "cluster: {devices: 4, device: {name: x, memory: 8 GB}, link: 1 GB/s}\nschedule: 1f1b\n"
      "pipeline: {stages: 2, width: 2, microbatches: 4}\n";
  const Scenario plain = read(job);
  const Scenario slow = read(
      job +
      "stack: {iteration_overhead: 1 s, link_latency: 1 ms, speed_spread: 1%, reserved: 2 GB}\n");
  EXPECT_EQ(slow.costs[1].step_s, plain.costs[1].step_s + 1);
  EXPECT_EQ(slow.cluster.link->latency_s, 1e-3);
  EXPECT_EQ(slow.cluster.device.reserved_bytes, 2'000'000'000);
  const double pace = slowest_pace({3, 1.5}, {2, 2}, 0.01);
  EXPECT_GT(pace, 1);
  EXPECT_DOUBLE_EQ(slow.costs[0][OpKind::forward].seconds, pace);
  EXPECT_DOUBLE_EQ(slow.costs[1][OpKind::backward].seconds, pace);
  EXPECT_NE(
      refusal(job + "stack: {reserved: 8 GB}\n").find("leaves nothing of the device's memory"),
      std::string::npos);
}

}  // namespace
}  // namespace penstock::stack_key_test
