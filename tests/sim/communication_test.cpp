// SPDX-License-Identifier: Apache-2.0
// Total and exposed communication, against sums by hand and as a property of random runs.
#include "sim/communication.hpp"

#include "random_spec.hpp"
#include "sim/path_contention.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>

namespace penstock::communication_test {
namespace {

CommunicationByDimension of(const Rig& rig, const Timeline& timeline) {
  return communication(rig.input(), timeline);
}

/// Total, exposed and bytes of the pipeline, then of the data dimension.
std::vector<double> numbers(const CommunicationByDimension& c) {
  return {c.pipeline.total_s, c.pipeline.exposed_s, c.pipeline.bytes,
          c.data.total_s,     c.data.exposed_s,     c.data.bytes};
}

void expect_numbers(const std::vector<double>& found, const std::vector<double>& expected,
                    double tolerance = 1e-9) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::max(1.0, expected[i])) << "number " << i;
}

/// Both engines, simgrid with every message as a flow.
void expect_of_both(const RigSpec& spec, const std::vector<double>& expected) {
  const Rig rig(spec);
  expect_numbers(numbers(of(rig, simulate_exact(rig.input()))), expected);
  expect_numbers(numbers(of(rig, simulate_simgrid(rig.input(), {.every_message_a_flow = true}))),
                 expected);
}

/// F = 1 s, B = 2 s, messages of 1 GB at 1 GB/s.
RigSpec two_stages(std::uint32_t microbatches, double latency_s) {
  RigSpec spec{.schedule = "gpipe", .shape = {2, microbatches, 1}};
  spec.costs.assign(2, unit_costs(1, 2));
  for (StageCosts& c : spec.costs) c.output_bytes = 1'000'000'000;
  spec.link = {.latency_s = latency_s, .bytes_per_s = 1e9};
  return spec;
}

/// One stage of n replicas: F = 1 s, B = 2 s, then an all-reduce of `bytes`.
RigSpec replicas(int n, std::int64_t bytes, std::uint32_t batches = 1) {
  RigSpec spec{.schedule = "1f1b", .shape = {1, 1, batches}, .width = n};
  spec.costs.assign(1, unit_costs(1, 2));
  spec.costs[0].reduced_bytes = bytes;
  spec.link = {.bytes_per_s = 1e9};
  spec.reduction.priced = false;
  return spec;
}

TEST(CommunicationOfPipelines, IsExposedWhileTheReceiverHasNothingElseToDo) {
  // F 0-1, message 1-2.5, F 2.5-3.5, B 3.5-5.5, message 5.5-7, B 7-9.
  expect_of_both(two_stages(1, 0.5), {3, 3, 2e9, 0, 0, 0});
}

TEST(CommunicationOfPipelines, IsHiddenBehindTheOpsOfOtherMicrobatches) {
  // Messages 1-2, 2-3, 6-7, 8-9; stage 1 computes F 0 from 2 to 3, stage 0 B 1 from 7 to 9.
  expect_of_both(two_stages(2, 0), {4, 2, 4e9, 0, 0, 0});
}

TEST(CommunicationOfPipelines, CountsAtBothEndsThatItHolds) {
  // As the first; the senders are held as well, in front of B 0 and of the last stage's STEP.
  RigSpec spec = two_stages(1, 0.5);
  spec.transfers = Transfers::blocking;
  expect_of_both(spec, {6, 6, 2e9, 0, 0, 0});
  spec.transfers = Transfers::free;
  expect_of_both(spec, {0, 0, 2e9, 0, 0, 0});
}

TEST(CommunicationOfReplicas, IsExposedAfterTheLastBackward) {
  // 2 (n-1) / n of 3 GB on each of n.
  expect_of_both(replicas(3, 3'000'000'000), {0, 0, 0, 3 * 4, 3 * 4, 12e9});
}

TEST(CommunicationOfReplicas, IsHiddenBehindTheBackwardInBuckets) {
  // Parts of 1 s, there at 2 and at 3.
  RigSpec spec = replicas(2, 2'000'000'000);
  spec.reduction.buckets = {{{0.5, 0.5}, {1, 0.5}}};
  expect_of_both(spec, {0, 0, 0, 2 * 2, 2 * 1, 4e9});
}

TEST(CommunicationOfReplicas, IsHiddenBehindTheNextBatchWhereItIsDetached) {
  RigSpec spec = replicas(2, 2'000'000'000, 6);
  spec.schedule = "pipedream-2bw";
  expect_of_both(spec, {0, 0, 0, 6 * 4, 6 * 4, 6 * 4e9});
  spec.detached = true;  // but the last one
  expect_of_both(spec, {0, 0, 0, 6 * 4, 4, 6 * 4e9});
}

TEST(CommunicationOfReplicas, CountsThePricedRingToo) {
  RigSpec spec = replicas(4, 1'000'000'000);
  spec.reduction.priced = true;
  spec.costs[0].reduce_grad_s = 1.5;
  expect_of_both(spec, {0, 0, 0, 4 * 1.5, 4 * 1.5, 6e9});
}

TEST(CommunicationOfTensorRanks, IsAllExposed) {
  // Two stages of four GPUs; a ring of four: 1 MB in 4 calls, 1.5 times that at 1 MB/s.
  RigSpec spec = two_stages(3, 0);
  spec.costs[1].ops[0].recipe = all_reduces(1'000'000, 4);
  Rig rig(spec);
  rig.cluster.devices_per_node = 8;
  rig.cluster.link.reset();
  rig.cluster.attachment = Attachment::pairs;
  rig.cluster.intra = {.latency_s = 0, .bytes_per_s = 1e6};
  Mesh mesh;
  mesh.size(Axis::tensor) = 4;
  mesh.gpus = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  rig.traffic = std::make_unique<Traffic>(rig.program, rig.cluster, mesh, rig.reduction,
                                          collectives_of(spec.costs));
  const auto c = of(rig, simulate_exact(rig.input()));
  EXPECT_NEAR(c.inner[0].total_s, 3 * 1.5, 1e-12);
  EXPECT_EQ(c.inner[0].exposed_s, c.inner[0].total_s);
  EXPECT_DOUBLE_EQ(c.inner[0].bytes, 3 * 2 * 3 * 1e6);  // 2 (t - 1) of the bytes, three times
  EXPECT_DOUBLE_EQ(c.pipeline.bytes, 4 * 6e9);          // of four GPUs
}

/// What always holds: 0 <= exposed <= total, and idle time has room for what is exposed.
void expect_sane(const Rig& rig, const Timeline& timeline) {
  const auto c = of(rig, timeline);
  for (const Communication& part : {c.pipeline, c.data, c.inner[0]}) {
    EXPECT_GE(part.exposed_s, 0);
    EXPECT_LE(part.exposed_s, part.total_s * (1 + 1e-12));
    EXPECT_GE(part.bytes, 0);
  }
  std::array<double, kCauses> idle_s{};
  double busy_s = 0;
  for (int d = 0; d < rig.program.ops.devices(); ++d) {
    const DeviceMetrics m = device_metrics({rig.program, rig.table, timeline}, d);
    busy_s += m.busy_s;
    for (std::size_t i = 0; i < kCauses; ++i) idle_s[i] += m.idle_s[i];
  }
  const auto idle_of = [&](Cause cause) { return idle_s[static_cast<std::size_t>(cause)]; };
  const double area_s = timeline.makespan_s * rig.program.ops.devices();
  EXPECT_NEAR(busy_s + std::accumulate(idle_s.begin(), idle_s.end(), 0.0), area_s, 1e-9 * area_s);
  EXPECT_LE(c.pipeline.exposed_s,
            idle_of(Cause::transfer_wait) + idle_of(Cause::warmup) + 1e-12 * area_s);
  EXPECT_LE(c.data.exposed_s, idle_of(Cause::gradient_reduction) + 1e-12 * area_s);
}

TEST(Communication, IsExposedForNoMoreThanItTakesInRandomRuns) {
  std::mt19937_64 random(4711);
  int engines_compared = 0;
  for (int run = 0; run < fewer(1500); ++run) {
    const RigSpec spec = random_spec(random);
    const Rig rig(spec);
    if (!check(rig.program, rig.table).empty()) continue;  // a deadlock under `coupled`
    SCOPED_TRACE(spec.schedule + " " + std::string(to_string(spec.transfers)) + " run " +
                 std::to_string(run));
    const Timeline timeline = simulate_exact(rig.input());
    expect_sane(rig, timeline);
    if (run % 30 == 0) {
      ++engines_compared;
      expect_numbers(numbers(of(rig, simulate_simgrid(rig.input()))), numbers(of(rig, timeline)));
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(engines_compared, fewer(30) - 1);
}

/// The same scenario on nodes of two with one slow NIC each, where nearly everything is shared.
Rig on_shared_nics(const RigSpec& spec, bool fifo) {
  Rig rig(spec);
  rig.cluster.link.reset();
  rig.cluster.nodes = (rig.program.placement.devices() + 1) / 2;
  rig.cluster.devices_per_node = 2;
  rig.cluster.intra = spec.link;
  rig.cluster.inter = {.latency_s = 1e-5, .bytes_per_s = 1e9, .fifo = fifo};
  rig.connect();
  return rig;
}

TEST(Communication, IsExposedForNoMoreThanItTakesOnSharedLinks) {
  std::mt19937_64 random(1147);
  int contended = 0;
  for (int run = 0; run < 60; ++run) {
    RigSpec spec = random_spec(random);
    spec.shape.batches = std::min(spec.shape.batches, 3U);
    const Rig rig = on_shared_nics(spec, run % 3 == 0);
    if (!check(rig.program, rig.table).empty() || why_not_exact(rig.input()).empty()) continue;
    SCOPED_TRACE(spec.schedule + " " + std::string(to_string(spec.transfers)) + " run " +
                 std::to_string(run));
    const auto flat = run_simgrid(rig);
    Timeline timeline(rig.program.ops.size());
    ASSERT_EQ(flat.size(), 1 + 4 * std::size_t{timeline.size()});
    timeline.makespan_s = flat[0];
    for (std::uint32_t g = 0; g < timeline.size(); ++g) {
      const double* at = &flat[1 + 4 * std::size_t{g}];
      timeline.op(g) = {at[0], at[1]};
      timeline.message(g) = {at[2], at[3]};
    }
    ++contended;
    expect_sane(rig, timeline);
    double end_s = 0;
    for (const PathSegment& p : contended_path(rig.input(), timeline)) {
      EXPECT_NE(p.kind, PathSegment::Kind::wait);
      EXPECT_EQ(p.start_s, end_s);
      end_s = p.end_s;
      EXPECT_GE(p.contended_s, 0);
      EXPECT_LE(p.contended_s, p.end_s - p.start_s);
      if (p.contended_s > 0) {
        EXPECT_GE(p.link, 0);
      }
    }
    EXPECT_EQ(end_s, timeline.makespan_s);
    if (HasFailure()) return;
  }
  EXPECT_GT(contended, 30);
}

}  // namespace
}  // namespace penstock::communication_test
