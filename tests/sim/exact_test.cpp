// SPDX-License-Identifier: Apache-2.0
#include "tests/rig.hpp"

#include <gtest/gtest.h>

namespace penstock::exact_test {
namespace {

double makespan(const RigSpec& spec) { return simulate_exact(Rig(spec).input()).makespan_s; }

TEST(Exact, GPipeAnd1F1BTakeTheirClosedFormForEveryShape) {
  for (std::uint32_t p = 1; p <= 16; ++p) {
    for (std::uint32_t m = 1; m <= 64; ++m) {
      for (const char* name : {"gpipe", "gpipe-fifo", "1f1b"}) {
        EXPECT_DOUBLE_EQ(makespan({.schedule = name, .shape = {p, m, 1}}), (m + p - 1) * 3.0)
            << name << p << " " << m;
      }
      EXPECT_DOUBLE_EQ(makespan({.schedule = "model-parallel", .shape = {p, m, 1}}), 3.0 * p * m);
    }
  }
}

TEST(Exact, OneFOneBWithLatencyTakesItsClosedForm) {
  // m(F+B) + (p-1)(F+B+2c) + 2c[(m-1) - ceil((m-1)/p)]: Qi et al., ICLR'24, table 5.
  for (std::uint32_t p = 2; p <= 16; ++p) {
    for (std::uint32_t m = 1; m <= 64; ++m) {
      for (const double c : {0.25, 0.5, 1.0, 3.0}) {
        const double groups = static_cast<double>((m - 1 + p - 1) / p);
        const double expected = 3.0 * m + (p - 1) * (3.0 + 2 * c) + 2 * c * ((m - 1) - groups);
        EXPECT_DOUBLE_EQ(makespan({.shape = {p, m, 1}, .link = {.latency_s = c}}), expected)
            << p << " " << m << " " << c;
      }
    }
  }
}

TEST(Exact, GPipeWithLatencyPaysItTwicePerStage) {
  EXPECT_DOUBLE_EQ(makespan({.schedule = "gpipe", .shape = {4, 8, 1}, .link = {.latency_s = 0.5}}),
                   36);
}

std::vector<StageCosts> with_output(std::uint32_t p, std::int64_t bytes) {
  std::vector<StageCosts> costs(p, unit_costs());
  for (StageCosts& c : costs) c.output_bytes = bytes;
  return costs;
}

TEST(Exact, AChannelIsAFifoAndLatencyDoesNotOccupyIt) {
  // Two stages, F = 1, messages of 3 s on the link and 10 s latency: the second waits for the
  // first.
  const Rig rig({.schedule = "gpipe",
                 .shape = {2, 2, 1},
                 .costs = with_output(2, 3),
                 .link = {.latency_s = 10, .bytes_per_s = 1}});
  const Timeline t = simulate_exact(rig.input());
  const Span first = t.message(rig.table.forward(1, 0)),
             second = t.message(rig.table.forward(1, 1));
  EXPECT_DOUBLE_EQ(first.start_s, 1);
  EXPECT_DOUBLE_EQ(first.end_s, 14);
  EXPECT_DOUBLE_EQ(second.start_s, 4);
  EXPECT_DOUBLE_EQ(second.end_s, 17);
}

TEST(Exact, BlockingHoldsTheSenderUntilItsMessageHasArrived) {
  const Rig rig({.schedule = "gpipe",
                 .shape = {2, 2, 1},
                 .transfers = Transfers::blocking,
                 .costs = with_output(2, 3),
                 .link = {.latency_s = 1, .bytes_per_s = 1}});
  const Timeline t = simulate_exact(rig.input());
  EXPECT_DOUBLE_EQ(t.op(rig.table.forward(0, 1)).start_s, 5);  // F 1 s, held 4 s
  EXPECT_DOUBLE_EQ(t.op(rig.table.forward(1, 0)).start_s, 5);
  EXPECT_DOUBLE_EQ(t.op(rig.table.forward(1, 1)).start_s, 10);
}

TEST(Exact, CoupledBatchesWaitForBothTheirMessages) {
  // 1F1B, two stages, two microbatches, messages of 1 s. Device 0: F0 | send F0 | F1 | send F1 +
  // receive B0 | B0 ... The send of F1 meets its receiver only after B0 of device 1.
  const Rig rig({.shape = {2, 2, 1}, .transfers = Transfers::coupled, .link = {.latency_s = 1}});
  const Timeline t = simulate_exact(rig.input());
  const auto start = [&](std::uint32_t g) { return t.op(g).start_s; };
  EXPECT_DOUBLE_EQ(start(rig.table.forward(1, 0)), 2);
  EXPECT_DOUBLE_EQ(start(rig.table.forward(0, 1)), 2);   // held by the send of F0
  EXPECT_DOUBLE_EQ(start(rig.table.backward(1, 0)), 3);  // last stage: F0, B0
  EXPECT_DOUBLE_EQ(start(rig.table.forward(1, 1)), 6);   // B0 ends at 5, F1 takes 1 s from there
  EXPECT_DOUBLE_EQ(start(rig.table.backward(0, 0)), 6);
  EXPECT_DOUBLE_EQ(start(rig.table.backward(1, 1)), 7);
  EXPECT_DOUBLE_EQ(start(rig.table.backward(0, 1)), 10);
}

TEST(Exact, FreeTransfersCostNothingWhateverTheLink) {
  EXPECT_DOUBLE_EQ(makespan({.shape = {4, 8, 1},
                             .transfers = Transfers::free,
                             .costs = with_output(4, 1000),
                             .link = {.latency_s = 7, .bytes_per_s = 1}}),
                   33);
}

TEST(Exact, TheReductionIsABarrierOfTheReplicas) {
  std::vector<StageCosts> costs(2, unit_costs());
  costs[0].reduce_grad_s = 4;
  costs[0].step_s = costs[1].step_s = 1;
  const Rig rig({.shape = {2, 1, 1}, .width = 2, .costs = costs});
  const Timeline t = simulate_exact(rig.input());
  EXPECT_DOUBLE_EQ(t.makespan_s, 1 + 1 + 2 + 2 + 4 + 1);
}

TEST(Exact, AGlobalStepWaitsForEveryDevice) {
  const Rig device({.shape = {4, 4, 2}});
  const Rig global({.shape = {4, 4, 2}, .step_sync = StepSync::global});
  EXPECT_DOUBLE_EQ(simulate_exact(device.input()).makespan_s, 42);
  const Timeline t = simulate_exact(global.input());
  EXPECT_DOUBLE_EQ(t.makespan_s, 42);
  EXPECT_DOUBLE_EQ(t.op(global.table.forward(3, 4)).start_s, 24);
}

TEST(Exact, RefusesLinksThatChannelsShare) {
  Rig rig({.schedule = "1f1b",
           .shape = {3, 4, 1},
           .costs = with_output(3, 10),
           .link = {.bytes_per_s = 1, .full_duplex = false}});
  EXPECT_NE(why_not_exact(rig.input())
                .find("channel 0->1 F and channel 1->0 B share the link '0--1' (fair)"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::exact_test
