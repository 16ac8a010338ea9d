// SPDX-License-Identifier: Apache-2.0
#include "traces/memory.hpp"

#include "hand_made.hpp"

#include <gtest/gtest.h>

namespace penstock::memory_test {
namespace {

struct Sample {
  double at_s;
  MemoryUse use;
};

std::vector<Sample> samples_of(const HandMade& run, int device) {
  std::vector<Sample> samples;
  memory_over_time(run.memory(), device, [&](double at_s, const MemoryUse& use) {
    samples.push_back({at_s, use});
  });
  return samples;
}

/// Time, activations, buffers, workspace.
using Row = std::tuple<double, std::int64_t, std::int64_t, std::int64_t>;
std::vector<Row> rows_of(const HandMade& run, int device) {
  std::vector<Row> rows;
  for (const Sample& s : samples_of(run, device)) {
    rows.emplace_back(s.at_s, s.use[Owner::activations], s.use[Owner::buffers],
                      s.use[Owner::workspace]);
  }
  return rows;
}

StageCosts costs() {
  StageCosts c;
  c.activation_bytes = 100;
  c.output_bytes = 10;
  c.forward_workspace_bytes = 5;
  c.backward_workspace_bytes = 7;
  return c;
}

TEST(Memory, ActivationsLiveFromForwardToBackwardAndBuffersWhileMessagesDo) {
  HandMade run(two_stages());
  run.costs = {costs(), costs()};
  const std::vector<Row> first = {{0, 0, 0, 0},    {0, 100, 0, 5},  {1, 100, 10, 0}, {2, 100, 0, 0},
                                  {5, 100, 10, 0}, {6, 100, 10, 7}, {8, 0, 0, 0}};
  EXPECT_EQ(rows_of(run, 0), first);
  // F takes its buffer over when it starts; what B sends is a buffer until it has arrived.
  const std::vector<Row> last = {{0, 0, 0, 0},   {1, 0, 10, 0}, {2, 100, 0, 5},
                                 {3, 100, 0, 7}, {5, 0, 10, 0}, {6, 0, 0, 0}};
  EXPECT_EQ(rows_of(run, 1), last);
}

TEST(Memory, MessageOfAGradientHasTheSizeOfTheOutputItBelongsTo) {
  HandMade run(two_stages());
  run.costs[0].output_bytes = 10;
  run.costs[1].output_bytes = 77;  // the last stage sends nothing forward
  EXPECT_EQ(std::get<2>(rows_of(run, 1)[3]), 10);
}

TEST(Memory, StaticOwnersAreThereFromTheStartWithEveryHeldVersion) {
  HandMade run(two_stages());
  run.costs[0].weight_bytes = 1000;
  run.costs[0].version_bytes = 50;
  run.costs[0].gradient_bytes = 200;
  run.costs[0].optimizer_bytes = 300;
  run.more_versions[0] = 2;
  const MemoryPeak peak = memory_over_time(run.memory(), 0);
  EXPECT_EQ(peak.use[Owner::weights], 1000);
  EXPECT_EQ(peak.use[Owner::weight_versions], 100);
  EXPECT_EQ(peak.use[Owner::gradients], 200);
  EXPECT_EQ(peak.use[Owner::optimizer], 300);
  EXPECT_EQ(peak.use.total(), 1600);
  EXPECT_EQ(peak.op, kNoOp) << "nothing comes on top of what is always there";
}

TEST(Memory, ChunksOfOneDeviceEachCountOnce) {
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 1},
                 {OpKind::forward, 1, 0, 0, 1, 2},
                 {OpKind::forward, 0, 1, 0, 2, 3}}},
               2);
  run.costs[0].weight_bytes = 3;
  run.costs[1].weight_bytes = 5;
  EXPECT_EQ(memory_over_time(run.memory(), 0).use[Owner::weights], 8);
}

TEST(Memory, PeakNamesItsMomentAndTheOpThatMadeIt) {
  HandMade run(two_stages());
  run.costs = {costs(), costs()};
  const MemoryPeak peak = memory_over_time(run.memory(), 0);
  EXPECT_EQ(peak.use.total(), 117);
  EXPECT_DOUBLE_EQ(peak.at_s, 6);
  EXPECT_EQ(peak.op, 1u);
}

TEST(Memory, BackwardInputFreesAllButWhatTheWeightGradientNeeds) {
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 1},
                 {OpKind::backward_input, 0, 0, 0, 1, 3},
                 {OpKind::backward_weight, 0, 0, 0, 4, 5}}});
  run.costs[0] = costs();
  run.costs[0].activation_after_input_bytes = 40;
  const std::vector<Row> rows = {{0, 0, 0, 0},  {0, 100, 0, 5}, {1, 100, 0, 7},
                                 {3, 40, 0, 0}, {4, 40, 0, 7},  {5, 0, 0, 0}};
  EXPECT_EQ(rows_of(run, 0), rows);
}

TEST(Memory, StoredMicrobatchesKeepAndUseWhatIsStatedForThem) {
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 1},
                 {OpKind::forward, 0, 1, Op::stored, 1, 2},
                 {OpKind::backward, 0, 1, Op::stored, 2, 4},
                 {OpKind::backward, 0, 0, 0, 4, 6}}});
  run.costs[0] = costs();
  run.costs[0].stored = run.costs[0].pass(false);
  run.costs[0].stored->activation_bytes = 1000;
  run.costs[0].stored->backward_workspace_bytes = 3;
  const std::vector<Row> rows = {{0, 0, 0, 0},    {0, 100, 0, 5}, {1, 1100, 0, 5},
                                 {2, 1100, 0, 3}, {4, 100, 0, 7}, {6, 0, 0, 0}};
  EXPECT_EQ(rows_of(run, 0), rows);
}

TEST(Memory, WhatEndsIsFreedBeforeWhatStartsAtTheSameInstant) {
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 1}, {OpKind::forward, 0, 1, 0, 1, 2}}});
  run.costs[0].forward_workspace_bytes = 5;
  EXPECT_EQ(memory_over_time(run.memory(), 0).use.total(), 5);
}

TEST(Memory, OpsWithoutLengthHoldWhatTheyHoldOneAfterTheOther) {
  HandMade run({{{OpKind::forward, 0, 0, 0, 0, 0},
                 {OpKind::forward, 0, 1, 0, 0, 0},
                 {OpKind::backward, 0, 0, 0, 0, 0},
                 {OpKind::backward, 0, 1, 0, 0, 0}}});
  run.costs = {costs()};
  const MemoryPeak peak = memory_over_time(run.memory(), 0);
  EXPECT_EQ(peak.use[Owner::activations], 200);
  EXPECT_EQ(peak.use[Owner::workspace], 7);
}

TEST(Memory, ReductionsAndStepsHoldNothing) {
  HandMade run({{{OpKind::reduce_grad, 0, 0, 0, 0, 1}, {OpKind::step, 0, 0, 0, 1, 2}}});
  run.costs[0] = costs();
  EXPECT_EQ(memory_over_time(run.memory(), 0).use.total(), 0);
}

}  // namespace
}  // namespace penstock::memory_test
