// SPDX-License-Identifier: Apache-2.0
#include "random_spec.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::simgrid_test {
namespace {

void expect_close(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - b[i]), 1e-12 * std::max(std::abs(a[i]), std::abs(b[i])))
        << "value " << i << " of " << a.size();
  }
}

TEST(Engines, AgreeOn500RandomUncontendedScenarios) {
  std::mt19937_64 random(20240611);
  int compared = 0;
  while (compared < fewer(500)) {
    const RigSpec spec = random_spec(random);
    const Rig rig(spec);
    if (!check(rig.program, rig.table).empty()) continue;  // a deadlock under `coupled`
    SCOPED_TRACE(spec.schedule + " " + std::string(to_string(spec.transfers)) + " run " +
                 std::to_string(compared));
    ASSERT_EQ(why_not_exact(rig.input()), "");
    // Half of them with every message as a SimGrid flow, half on timers.
    const bool flows = compared % 2 == 0;
    expect_close(flatten(simulate_exact(rig.input())),
                 run_simgrid(rig, {.every_message_a_flow = flows}));
    if (HasFatalFailure()) return;
    ++compared;
  }
}

std::vector<StageCosts> with_output(std::uint32_t p, std::int64_t bytes, double forward = 1,
                                    double backward = 2) {
  std::vector<StageCosts> costs(p, unit_costs(forward, backward));
  for (StageCosts& c : costs) c.output_bytes = bytes;
  return costs;
}

/// w pipelines of two stages whose activations leave one node through one NIC at the same time.
Rig incast(int width, bool fifo) {
  Rig rig({.schedule = "gpipe",
           .shape = {2, 1, 1},
           .width = width,
           .costs = with_output(2, 1'000'000'000)});
  rig.cluster.link.reset();
  rig.cluster.nodes = 2;
  rig.cluster.devices_per_node = width;
  rig.cluster.inter = {.latency_s = 0.25, .bytes_per_s = 1e9, .fifo = fifo};
  std::vector<int> gpus;
  for (int r = 0; r < width; ++r) {
    gpus.push_back(r);          // stage 0 of every replica in node 0
    gpus.push_back(width + r);  // stage 1 in node 1
  }
  rig.traffic = std::make_unique<Traffic>(rig.program, rig.cluster, one_gpu_each(gpus));
  return rig;
}

std::vector<double> arrivals(const Rig& rig, const std::vector<double>& flat, int width) {
  std::vector<double> at;
  for (int r = 0; r < width; ++r)
    at.push_back(flat.at(4 + 4 * rig.table.forward(1, static_cast<std::uint32_t>(r))));
  return at;
}

TEST(Simgrid, FlowsShareALinkFairlyWhateverItsLatency) {
  for (int width = 2; width <= 8; ++width) {
    const Rig rig = incast(width, false);
    EXPECT_NE(why_not_exact(rig.input()), "");
    for (const double at : arrivals(rig, run_simgrid(rig), width))
      EXPECT_NEAR(at, 1 + width + 0.25, 1e-9 * width);
  }
}

TEST(Simgrid, AFifoLinkServesOneMessageAfterTheOther) {
  const Rig rig = incast(3, true);
  const auto at = arrivals(rig, run_simgrid(rig), 3);
  EXPECT_NEAR(at[0], 2.25, 1e-9);
  EXPECT_NEAR(at[1], 3.25, 1e-9);
  EXPECT_NEAR(at[2], 4.25, 1e-9);
}

TEST(Simgrid, AFifoLinkServesMessagesInTheOrderTheyWereReady) {
  // Stages 0 and 2 on node 0, 1 and 3 on node 1: channels 0->1 and 2->3 leave through one NIC. Its
  // line: F0 (ready at 1), F1 (2), F2 (3) of stage 0, 4 s each, then F0 of stage 2 (ready at 8).
  std::vector<StageCosts> costs(4, unit_costs());
  costs[0].output_bytes = costs[2].output_bytes = 4;
  costs[1].output_bytes = 1;
  Rig rig({.schedule = "gpipe-fifo", .shape = {4, 3, 1}, .costs = costs});
  rig.cluster.link.reset();
  rig.cluster.nodes = 2;
  rig.cluster.devices_per_node = 2;
  rig.cluster.inter = {.bytes_per_s = 1, .fifo = true};
  rig.traffic = std::make_unique<Traffic>(rig.program, rig.cluster,
                                          one_gpu_each(std::vector<int>{0, 2, 1, 3}));
  const auto flat = run_simgrid(rig);
  const auto arrival = [&](std::uint32_t stage, std::uint32_t k) {
    return flat.at(4 + 4 * rig.table.forward(stage, k));
  };
  EXPECT_DOUBLE_EQ(arrival(1, 0), 5);
  EXPECT_DOUBLE_EQ(arrival(1, 1), 9);
  EXPECT_DOUBLE_EQ(arrival(1, 2), 13);
  EXPECT_DOUBLE_EQ(arrival(3, 0), 17);
}

/// `flows` pipelines of two stages; all first stages on switch a, the second ones on b, one trunk
/// of 1 GB/s; device 0's own link has `own` bytes/s. Every stage 0 sends 1 GB at time 1.
Rig over_a_trunk(int flows, double own) {
  Rig rig({.schedule = "gpipe",
           .shape = {2, 1, 1},
           .width = flows,
           .costs = with_output(2, 1'000'000'000)});
  const int devices = 2 * flows;
  NetworkGraph graph{{"a", "b"},
                     {{devices, devices + 1, {.latency_s = 0.25, .bytes_per_s = 1e9}, 1e9}}};
  std::vector<int> gpus;
  for (int r = 0; r < flows; ++r) {
    const double rate = r == 0 ? own : 1e12;
    graph.edges.push_back({r, devices, {.latency_s = 0.125, .bytes_per_s = rate}, rate});
    graph.edges.push_back({flows + r, devices + 1, {.bytes_per_s = 1e12}, 1e12});
    gpus.push_back(r);
    gpus.push_back(flows + r);
  }
  rig.cluster.link.reset();
  rig.cluster.network = std::move(graph);
  rig.traffic = std::make_unique<Traffic>(rig.program, rig.cluster, one_gpu_each(gpus));
  return rig;
}

TEST(Simgrid, FlowsOverOneEdgeOfAGraphShareItFairly) {
  for (const int flows : {2, 3}) {
    const Rig rig = over_a_trunk(flows, 1e12);
    EXPECT_NE(why_not_exact(rig.input()).find("share the link 'a->b' (fair)"), std::string::npos);
    // n GB over 1 GB/s from time 1, and both latencies of the route.
    for (const double at : arrivals(rig, run_simgrid(rig), flows))
      EXPECT_NEAR(at, 1 + flows + 0.375, 1e-9);
  }
}

TEST(Simgrid, WhatASlowFlowLeavesOfAnEdgeTheOthersShare) {
  // Max-min: flow 0 is held to 0.2 GB/s by its own link, so the others have 0.8 of the trunk.
  const Rig two = over_a_trunk(2, 0.2e9);
  const auto at2 = arrivals(two, run_simgrid(two), 2);
  EXPECT_NEAR(at2[0], 1 + 1 / 0.2 + 0.375, 1e-9);
  EXPECT_NEAR(at2[1], 1 + 1 / 0.8 + 0.375, 1e-9);
  const Rig three = over_a_trunk(3, 0.2e9);
  const auto at3 = arrivals(three, run_simgrid(three), 3);
  EXPECT_NEAR(at3[0], 1 + 1 / 0.2 + 0.375, 1e-9);
  EXPECT_NEAR(at3[1], 1 + 1 / 0.4 + 0.375, 1e-9);
  EXPECT_NEAR(at3[2], 1 + 1 / 0.4 + 0.375, 1e-9);
}

TEST(Simgrid, GPipeAnd1F1BTakeTheirClosedForm) {
  for (const std::uint32_t p : {1U, 2U, 5U, 16U}) {
    for (const std::uint32_t m : {1U, 7U, 16U, 64U}) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const Rig rig({.schedule = name, .shape = {p, m, 1}});
        EXPECT_DOUBLE_EQ(run_simgrid(rig).at(0), (m + p - 1) * 3.0) << name << p << " " << m;
      }
      const double groups = (m - 1 + p - 1) / p;
      const double expected = 3.0 * m + (p - 1) * 4.0 + (p > 1 ? (m - 1) - groups : 0);
      EXPECT_DOUBLE_EQ(run_simgrid(Rig({.shape = {p, m, 1}, .link = {.latency_s = 0.5}})).at(0),
                       expected)
          << p << " " << m;
    }
  }
}

TEST(Simgrid, HalfDuplexHalvesOppositeMessagesThatOverlap) {
  // 1F1B, p = m = 2, F = B = 1, messages of 5 s. F0's message 1-6, F1's from 6; B0 of device 1 ends
  // at 8 and its gradient crosses the rest of F1's. Full duplex: 8-13, then B1's 13-18. Half: both
  // at half speed from 8, F1's arrives at 14, the gradient (2 left) at 16, B1's 16-21.
  for (const bool full : {true, false}) {
    const Rig rig({.schedule = "1f1b",
                   .shape = {2, 2, 1},
                   .costs = with_output(2, 5, 1, 1),
                   .link = {.bytes_per_s = 1, .full_duplex = full}});
    EXPECT_DOUBLE_EQ(run_simgrid(rig).at(0), full ? 19 : 22);
  }
}

TEST(Simgrid, HalfDuplexCostsNothingWhenMessagesNeverCross) {
  // One device pair, model parallel: never two messages at once, so half duplex costs nothing.
  for (const bool full : {true, false}) {
    Rig rig({.schedule = "model-parallel",
             .shape = {2, 3, 1},
             .costs = with_output(2, 5),
             .link = {.bytes_per_s = 1, .full_duplex = full}});
    EXPECT_DOUBLE_EQ(run_simgrid(rig).at(0), 3 * (1 + 5 + 1 + 2 + 5 + 2));
  }
}

}  // namespace
}  // namespace penstock::simgrid_test
