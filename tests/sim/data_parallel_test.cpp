// SPDX-License-Identifier: Apache-2.0
// Data parallelism with wait-free backpropagation, against times computed by hand. Two replicas,
// F = 1 s, B = 2 s, links of 1 GB/s without latency: x GB take x seconds to reduce.
#include "models/gradient_buckets.hpp"
#include "tests/rig.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::data_parallel_test {
namespace {

struct Shape {
  std::uint32_t microbatches = 1, batches = 1;
};

/// The layers take equal shares of the backward and have these gradients, the first layer first.
RigSpec bsp(const std::vector<double>& gigabytes, Shape shape = {}, double step_s = 0) {
  std::vector<LayerGradient> layers;
  for (const double x : gigabytes) layers.push_back({x * 1e9, 1});
  StageCosts c = unit_costs(1, 2);
  c.step_s = step_s;
  c.reduced_bytes = std::llround(1e9 * std::accumulate(gigabytes.begin(), gigabytes.end(), 0.0));
  RigSpec spec{.schedule = "data-parallel",
               .shape = {1, shape.microbatches, shape.batches},
               .width = 2,
               .costs = {c}};
  spec.link = {.latency_s = 0, .bytes_per_s = 1e9};
  spec.reduction = {.buckets = {gradient_buckets(layers, 0)}};
  return spec;
}

/// Both engines, simgrid with timers and with every part as flows.
void expect_makespan(const RigSpec& spec, double seconds) {
  const Rig rig(spec);
  EXPECT_TRUE(check(rig.program, rig.table).empty());
  EXPECT_NEAR(simulate_exact(rig.input()).makespan_s, seconds, 1e-9 * seconds);
  for (const bool flows : {false, true}) {
    const auto simgrid = run_simgrid(rig, {.every_message_a_flow = flows});
    ASSERT_FALSE(simgrid.empty());
    EXPECT_NEAR(simgrid[0], seconds, 1e-9 * seconds) << flows;
  }
}

TEST(DataParallel, HidesWhatIsReducedBeforeTheBackwardEnds) {
  // F 0-1, B 1-3. The last layer's gradient is there at 2 and reduced at 3; 0.1 GB are left.
  expect_makespan(bsp({0.1, 1}), 3.1);
  // Ready at 1.5, 2, 2.5 and 3: reduced from 1.5 to 1.9, 2 to 2.5, 2.5 to 2.9 and 3 to 3.2.
  expect_makespan(bsp({0.2, 0.4, 0.5, 0.4}), 3.2);
}

TEST(DataParallel, HidesHalfOfALongReduction) {
  // From 2 to 4: half of it beside the backward; then the first layer's.
  expect_makespan(bsp({0.1, 2}), 4.1);
}

TEST(DataParallel, HidesNothingWithoutOverlapNorWhereTheFirstLayerHasEverything) {
  RigSpec spec = bsp({0.1, 2});
  spec.reduction.buckets = {};
  expect_makespan(spec, 3 + 2.1);
  expect_makespan(bsp({2.1, 0}), 3 + 2.1);
}

TEST(DataParallel, AccumulatesGradientsAndReducesThemDuringTheLastBackwardOnly) {
  // 4 F and 3 B take 10, the last backward is 10-12, its second half hides 1 GB.
  expect_makespan(bsp({0.1, 1}, {.microbatches = 4}), 12.1);
}

TEST(DataParallel, EveryUpdateWaitsForItsReductionAndStep) {
  // 3 s of compute, 0.1 s of reduction, 0.4 s of STEP, each time.
  expect_makespan(bsp({0.1, 1}, {.batches = 5}, 0.4), 5 * 3.5);
}

TEST(DataParallel, PaysTheLatencyOfEveryBucket) {
  // 2 (n-1) latencies each: the last bucket's and, where they queue, those before.
  RigSpec spec = bsp({0.1, 2});
  spec.link.latency_s = 0.01;
  expect_makespan(spec, 2 + 2.02 + 0.12);
}

TEST(DataParallel, OverlapsOnNoLinkToo) {
  RigSpec spec = bsp({0.1, 2});
  spec.reduction.priced = true;
  spec.costs[0].reduce_grad_s = 2.1;
  expect_makespan(spec, 4.1);
}

TEST(DataParallel, ReducesInAPipelineOfReplicatedStagesByLayerToo) {
  // Two stages of 1f1b, each reduced while its own last backward goes on.
  RigSpec spec = bsp({0.1, 1});
  spec.schedule = "1f1b";
  spec.shape = {2, 1, 1};
  spec.costs.push_back(spec.costs[0]);
  spec.transfers = Transfers::free;
  spec.reduction.buckets.push_back(spec.reduction.buckets[0]);
  // F 0-1, 1-2; B of stage 1 2-4, of stage 0 4-6.
  expect_makespan(spec, 6.1);
}

}  // namespace
}  // namespace penstock::data_parallel_test
