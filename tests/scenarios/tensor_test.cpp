// SPDX-License-Identifier: Apache-2.0
// Stages shared by several GPUs, in a scenario: which GPUs, what their exchange adds to the times,
// what the keys mean to the costs, and what a user is told.
#include "scenarios/scenario.hpp"
#include "sim/durations.hpp"

#include "tests/ring.hpp"
#include "tests/scenarios/first_gpus.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::tensor_test {
namespace {

Scenario gpt3(const std::string& pipeline, int nodes = 4) {
  return parse_scenario(
      "model: gpt3-175b\nstack: none\ncluster: {base: dgx-a100, nodes: " + std::to_string(nodes) +
          "}\nschedule: 1f1b\npipeline: {" + pipeline + "}\n",
      "test.yaml");
}

/// Seconds that a stage's GPUs exchange during an op of this kind, alone on their links.
double exchange_s(const Scenario& s, std::size_t stage, OpKind kind) {
  const Traffic traffic(lower(*s.schedule, s.shape, s.lowering), s.cluster, s.mesh, s.reduction,
                        collectives_of(s.costs));
  double seconds = 0;
  for (const Segment& segment : s.costs[stage][kind].recipe.segments) {
    if (segment.lane != Lane::exchange) continue;
    const std::uint32_t ring = traffic.collective_of(static_cast<int>(stage), segment);
    seconds += traffic[ring].price().seconds(segment);
  }
  return seconds;
}

bool told(const Scenario& s, const std::string& words) {
  return std::ranges::any_of(
      s.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

TEST(TensorScenario, GroupsAreNeighboursThenReplicasThenStages) {
  const Scenario s = gpt3("stages: 2, width: 2, tensor: 8");
  EXPECT_EQ(s.devices(), 4);
  EXPECT_EQ(first_gpus(s), (std::vector<int>{0, 16, 8, 24}));
  EXPECT_EQ(s.gpus_of(2), (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  const Scenario first = gpt3("stages: 2, width: 2, tensor: 4, rank_order: pipeline-first");
  EXPECT_EQ(first_gpus(first), (std::vector<int>{0, 4, 8, 12}));
}

TEST(TensorScenario, WithoutItADeviceIsOneGpu) {
  const Scenario s = gpt3("stages: 32");
  EXPECT_EQ(s.mesh.size(Axis::tensor), 1);
  EXPECT_TRUE(collectives_of(s.costs).empty());
  EXPECT_EQ(s.gpus_of(5), std::vector<int>{5});
}

TEST(TensorScenario, StagesAreWhatTheClusterHoldsByDefault) {
  EXPECT_EQ(gpt3("width: 2, tensor: 4").shape.depth, 4U);
}

TEST(TensorScenario, MegatronsNamesMeanTheSame) {
  const Scenario s = gpt3(
      "stages: 2, tensor_model_parallel_size: 8, width: 2, sequence_parallel: true, "
      "use_distributed_optimizer: true");
  EXPECT_EQ(s.mesh.size(Axis::tensor), 8);
  EXPECT_TRUE(s.sequence_parallel);
  EXPECT_TRUE(s.sharding.sharded());
}

TEST(TensorScenario, GroupsExchangeByRings) {
  const Scenario s = gpt3("stages: 4, tensor: 8");
  const double x = 2.0 * 2048 * 12288;  // bytes of s b h elements
  const double one_s = ring_s(2, 8, x, s.cluster.intra.latency_s, s.cluster.intra.bytes_per_s);
  const auto expect = [](double got, double wanted) { EXPECT_NEAR(got, wanted, 1e-9 * wanted); };
  expect(exchange_s(s, 1, OpKind::forward), 48 * one_s);  // 24 layers, 2 each
  expect(exchange_s(s, 1, OpKind::backward), 48 * one_s);
  expect(exchange_s(s, 0, OpKind::forward), 49 * one_s);  // the embedding
  expect(exchange_s(s, 1, OpKind::backward_input), 48 * one_s);
  EXPECT_EQ(exchange_s(s, 1, OpKind::backward_weight), 0);
}

TEST(TensorScenario, GroupsAcrossNodesUseTheNetworkAndAreTold) {
  const Scenario inside = gpt3("stages: 2, tensor: 8"), across = gpt3("stages: 2, tensor: 16");
  // Eight rings over two nodes of eight: every NIC carries one, with an eighth of the bytes.
  const double x = 2.0 * 2048 * 12288 / 8;
  const double one_s =
      ring_s(2, 16, x, across.cluster.inter.latency_s, across.cluster.inter.bytes_per_s);
  const double forward_s = exchange_s(across, 0, OpKind::forward);
  EXPECT_NEAR(forward_s, 97 * one_s, 1e-9 * forward_s);  // 48 layers, 2 each, the embedding
  EXPECT_GT(forward_s, exchange_s(inside, 0, OpKind::forward));
  EXPECT_TRUE(told(across, "span nodes of 8"));
  EXPECT_FALSE(told(inside, "span nodes"));
}

TEST(TensorScenario, SequenceParallelismShrinksMessagesAndActivations) {
  const Scenario plain = gpt3("stages: 4, tensor: 8");
  const Scenario sequence = gpt3("stages: 4, tensor: 8, sequence_parallel: true");
  EXPECT_EQ(plain.costs[0].output_bytes, 8 * sequence.costs[0].output_bytes);
  EXPECT_LT(sequence.costs[0].activation_bytes, plain.costs[0].activation_bytes);
  EXPECT_EQ(sequence.costs[0].weight_bytes, plain.costs[0].weight_bytes);
  EXPECT_GT(exchange_s(sequence, 1, OpKind::backward_weight), 0) << "W gathers its inputs";
}

TEST(TensorScenario, DistributedOptimizerSavesMemoryAndTraffic) {
  const Scenario plain = gpt3("stages: 2, tensor: 8, width: 2");
  const Scenario shared = gpt3("stages: 2, tensor: 8, width: 2, distributed_optimizer: true");
  EXPECT_EQ(plain.costs[0].optimizer_bytes, 2 * shared.costs[0].optimizer_bytes);
  EXPECT_EQ(3 * plain.costs[0].reduced_bytes, 4 * shared.costs[0].reduced_bytes);
  EXPECT_LT(shared.costs[0].reduce_grad_s, plain.costs[0].reduce_grad_s);
}

TEST(TensorScenario, APaddedVocabularyIsTold) {
  EXPECT_FALSE(told(gpt3("stages: 4, tensor: 8"), "padded")) << "51200 is a multiple of 1024";
  const Scenario s = parse_scenario(
      "model: {base: gpt3-175b, vocab_size: 50257}\nstack: none\ncluster: dgx-a100\nschedule: "
      "1f1b\n"
      "pipeline: {stages: 1, tensor: 8}\n",
      "test.yaml");
  EXPECT_TRUE(told(s, "the vocabulary of 50257 is padded to 51200"));
}

}  // namespace
}  // namespace penstock::tensor_test
