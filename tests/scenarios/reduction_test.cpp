// SPDX-License-Identifier: Apache-2.0
// Which parts of a gradient are reduced together, from a scenario's keys.
#include "scenarios/scenario.hpp"

#include <gtest/gtest.h>

namespace penstock::reduction_test {
namespace {

const std::string kGpt355m = "model: gpt-355m\nstack: none\ncluster: p3.16xlarge\n";
const std::string kCosts = "model: {forward: 1 s, backward: 2 s, gradients: [100 MiB, 50 MiB]}\n";

Scenario scenario(const std::string& text) { return parse_scenario(text, "test.yaml"); }

std::vector<GradientBucket> buckets(const std::string& text, std::size_t stage = 0) {
  return scenario(text).reduction.buckets.at(stage);
}

TEST(DataParallelDefaults, AreTheWholeClusterAndARing) {
  const Scenario s = scenario(kGpt355m + "schedule: data-parallel\n");
  EXPECT_EQ(s.shape.depth, 1U);
  EXPECT_EQ(s.mesh.most(), 8);
  EXPECT_EQ(s.layers, std::vector<int>{24});
  EXPECT_EQ(s.reduction.algorithm, ReductionAlgorithm::ring);
  EXPECT_FALSE(s.reduction.priced);
  EXPECT_TRUE(s.reduction.buckets.at(0).empty());
}

TEST(DataParallelDefaults, LeaveGpusToTensorParallelism) {
  const Scenario s = scenario(kGpt355m + "schedule: data-parallel\npipeline: {tensor: 2}\n");
  EXPECT_EQ(s.mesh.most(), 4);
  EXPECT_EQ(s.mesh.size(Axis::tensor), 2);
}

TEST(DataParallelDefaults, DoNotTouchPipelines) {
  const Scenario s = scenario(kGpt355m + "schedule: 1f1b\npipeline: {width: 2}\n");
  EXPECT_EQ(s.shape.depth, 4U);
  EXPECT_TRUE(s.reduction.buckets.at(0).empty());
}

TEST(TheStack, DecidesWhatOverlapsInEverySchedule) {
  const std::string job = "model: llama-3.2-1b\ncluster: {base: dgx-h100, nodes: 1}\n";
  const std::string rest = "\npipeline: {stages: 1, width: 8, microbatches: 2}\n";
  for (const auto& [stack, overlaps] : {std::pair{"deepspeed", false}, std::pair{"megatron", true},
                                        std::pair{"nanotron", true}, std::pair{"none", false}})
    for (const std::string schedule : {"data-parallel", "1f1b", "gpipe"})
      EXPECT_EQ(
          overlaps_reduction(scenario(job + "stack: " + stack + "\nschedule: " + schedule + rest)),
          overlaps)
          << stack << ", " << schedule;
  EXPECT_TRUE(overlaps_reduction(
      scenario(job + "stack: deepspeed\nschedule: data-parallel\npipeline: {stages: 1, width: 8, "
                     "microbatches: 2, reduction: {overlap: backward}}\n")));
}

TEST(AsynchronousDefaults, AreParameterServersAndNoOverlap) {
  const Scenario s = scenario(kGpt355m + "schedule: asp\n");
  EXPECT_EQ(s.mesh.most(), 8);
  EXPECT_EQ(s.reduction.algorithm, ReductionAlgorithm::server);
  EXPECT_EQ(s.reduction.servers, 1);
  EXPECT_TRUE(s.reduction.buckets.at(0).empty());
  const std::string servers = "schedule: asp\npipeline: {reduction: {servers: 4}}\n";
  EXPECT_EQ(scenario(kGpt355m + servers).reduction.servers, 4);
}

TEST(Buckets, OfATransformerAreItsLayers) {
  // h = 1024: a layer has 12 h^2 + 13 h parameters, 48 MiB of fp32 gradients: over 25 MiB. The
  // final norm goes with the last layer, the embedding (50304 + 512) h by itself.
  const auto parts =
      buckets(kGpt355m + "schedule: data-parallel\npipeline: {reduction: {overlap: backward}}\n");
  ASSERT_EQ(parts.size(), 25U);
  const double h = 1024, layer = 12 * h * h + 13 * h, embedding = (50304 + 512) * h;
  const double all = 24 * layer + embedding + 2 * h;
  EXPECT_NEAR(parts[0].share, (layer + 2 * h) / all, 1e-12);
  EXPECT_NEAR(parts[23].share, layer / all, 1e-12);
  EXPECT_NEAR(parts[24].share, embedding / all, 1e-12);
  // FLOPs of a backward, in units of s h: layers 2 (24 h + 4 s), the head 4 V.
  const double layer_flops = 48 * h + 8 * 512, head_flops = 4 * 50304;
  const double flops = 24 * layer_flops + head_flops;
  EXPECT_NEAR(parts[0].ready, (head_flops + layer_flops) / flops, 1e-9);
  EXPECT_NEAR(parts[1].ready, (head_flops + 2 * layer_flops) / flops, 1e-9);
  EXPECT_NEAR(parts[23].ready, 1, 1e-12);
  EXPECT_EQ(parts[24].ready, 1);
}

TEST(Buckets, AreThoseOfEveryStage) {
  const std::string text = kGpt355m + "schedule: 1f1b\npipeline: {stages: 4, width: 2, reduction: ";
  const Scenario s = scenario(text + "{overlap: backward}}\n");
  ASSERT_EQ(s.reduction.buckets.size(), 4U);
  EXPECT_EQ(s.reduction.buckets[0].size(), 7U);  // six layers and the embedding
  EXPECT_EQ(s.reduction.buckets[1].size(), 6U);
  EXPECT_NEAR(s.reduction.buckets[1][0].ready, 1.0 / 6, 1e-12);
  EXPECT_EQ(s.reduction.buckets[3].size(), 7U);  // the head's copy is larger than 25 MiB
  // Two layers have 96 MiB and 104 KiB; the third pair of a stage is full, too.
  const Scenario pairs = scenario(text + "{overlap: backward, bucket_size: 96 MiB}}\n");
  EXPECT_EQ(pairs.reduction.buckets[1].size(), 3U);
  EXPECT_EQ(pairs.reduction.buckets[0].size(), 4U);
}

TEST(Buckets, CanBeEqualInstead) {
  const auto parts =
      buckets(kGpt355m +
              "schedule: data-parallel\npipeline: {reduction: {overlap: backward, buckets: 4}}\n");
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[1].share, 0.25);
  EXPECT_EQ(parts[1].ready, 0.5);
}

TEST(Buckets, OfAModelByCostsAreEqual) {
  const std::string text = kCosts + "schedule: 1f1b\npipeline: {stages: 2, width: 2, reduction: ";
  EXPECT_EQ(buckets(text + "{overlap: backward}}\n").size(), 10U);
  EXPECT_EQ(buckets(text + "{overlap: backward, buckets: 3}}\n").size(), 3U);
  const std::string sized = text + "{overlap: backward, bucket_size: 40 MiB}}\n";
  EXPECT_EQ(buckets(sized, 0).size(), 2U);  // 100 MiB
  EXPECT_EQ(buckets(sized, 1).size(), 1U);  // 50 MiB
  EXPECT_EQ(buckets(text + "{overlap: backward, bucket_size: 0 B}}\n").size(), 10'000U);
  EXPECT_TRUE(buckets(text + "{overlap: none}}\n").empty());
}

}  // namespace
}  // namespace penstock::reduction_test
