// SPDX-License-Identifier: Apache-2.0
#include "measured.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock::causes_test {
namespace {

constexpr double kClose = 1e-9;

RigSpec linked(Transfers transfers = Transfers::overlapped) {
  RigSpec spec{.shape = {4, 8, 6}, .transfers = transfers, .link = {.latency_s = 0.5}};
  spec.costs.assign(4, unit_costs());
  return spec;
}

/// A prediction with the costs of `predicted`, measured on what has those of `actual`.
Measured measured_on(const RigSpec& predicted, const RigSpec& actual) {
  Measured m(predicted);
  const Rig truth(actual);
  m.add_run(run_of(truth, simulate_exact(truth.input())));
  return m;
}

Causes causes_of(const Measured& m) {
  const Validation v = m.result();
  EXPECT_NEAR(v.causes->sum_s(), *v.iteration.predicted_s - *v.iteration.measured_s, kClose);
  return *v.causes;
}

TEST(Causes, OfAPerfectPredictionAreNothing) {
  for (const auto transfers :
       {Transfers::free, Transfers::overlapped, Transfers::coupled, Transfers::blocking}) {
    const Causes c = causes_of(measured_on(linked(transfers), linked(transfers)));
    for (const double part :
         {c.op_time_s, c.transfer_time_s, c.wait_s, c.launch_overhead_s, c.rest_s})
      EXPECT_NEAR(part, 0, kClose) << to_string(transfers);
  }
}

TEST(Causes, WhatRanksExchangeInsideOfOpsIsACauseOfItsOwn) {
  RigSpec slow = linked();
  slow.costs.assign(4, unit_costs(1.5, 2));
  const Rig truth(slow);
  RecordedRun run = run_of(truth, simulate_exact(truth.input()));
  for (RecordedOp& op : run.ops) {
    if (op.op.kind != OpKind::forward) continue;
    for (const double at_s : {0.25, 1.0})
      op.exchanges.push_back({"attention",
                              Collective::all_reduce,
                              64,
                              {op.span.start_s + at_s, op.span.start_s + at_s + 0.25}});
  }
  Measured m(linked());
  m.add_run(run);
  const Causes c = causes_of(m);
  EXPECT_LT(c.exchange_s, -1);
  EXPECT_NEAR(c.exchange_s, c.sum_s(), kClose);
  EXPECT_NEAR(*m.result().own_ops_error, 0, kClose);
}

TEST(Causes, SlowerOpsAreOpTime) {
  RigSpec slow = linked();
  slow.costs.assign(4, unit_costs(1.25, 2));
  // Without latency on the way: 11 (F + B) per iteration.
  RigSpec fast = linked();
  fast.link = slow.link = {};
  const Causes c = causes_of(measured_on(fast, slow));
  EXPECT_NEAR(c.op_time_s, -11 * 0.25, kClose);
  EXPECT_NEAR(c.transfer_time_s, 0, kClose);
  EXPECT_NEAR(c.wait_s, 0, kClose);
  EXPECT_NEAR(c.launch_overhead_s, 0, kClose);
  EXPECT_NEAR(c.rest_s, 0, kClose);
}

TEST(Causes, SlowerMessagesAreTransferTime) {
  for (const auto transfers : {Transfers::overlapped, Transfers::coupled, Transfers::blocking}) {
    RigSpec slow = linked(transfers);
    slow.link.latency_s = 0.75;
    const Measured m = measured_on(linked(transfers), slow);
    const Causes c = causes_of(m);
    EXPECT_LT(c.transfer_time_s, -1) << to_string(transfers);
    EXPECT_NEAR(c.transfer_time_s, c.sum_s(), kClose) << to_string(transfers);
    EXPECT_NEAR(c.op_time_s, 0, kClose);
  }
}

TEST(Causes, MessagesThatWerePredictedToBeFreeAreTransferTime) {
  RigSpec slow = linked();
  const Measured m = measured_on(linked(Transfers::free), slow);
  const Causes c = causes_of(m);
  EXPECT_LT(c.transfer_time_s, -1);
  EXPECT_NEAR(c.transfer_time_s, c.sum_s(), kClose);
}

/// A run of the Program in which each op starts `gap` later than it could, and each message leaves
/// `delay` later: ops last that much longer, then the recording takes it off again.
RecordedRun late_run(const RigSpec& spec, double gap, double delay) {
  RigSpec late = spec;
  for (StageCosts& c : late.costs) {
    c[OpKind::forward].seconds += gap;
    c[OpKind::backward].seconds += gap;
  }
  late.link.latency_s += delay;
  const Rig rig(late);
  RecordedRun run = run_of(rig, simulate_exact(rig.input()));
  for (RecordedOp& op : run.ops) {
    if (is_compute(op.op.kind)) op.span.start_s += gap;
    if (op.message) op.message->start_s += delay;
  }
  return run;
}

TEST(Causes, LateStartsAreLaunchOverhead) {
  RigSpec spec = linked();
  spec.link = {};
  Measured m(spec);
  m.add_run(late_run(spec, 0.125, 0));
  const Causes c = causes_of(m);
  EXPECT_NEAR(c.launch_overhead_s, -11 * 2 * 0.125, kClose);
  EXPECT_NEAR(c.launch_overhead_s, c.sum_s(), kClose);
}

TEST(Causes, LateDeparturesAreWait) {
  Measured m(linked());
  m.add_run(late_run(linked(), 0, 0.25));
  const Causes c = causes_of(m);
  EXPECT_LT(c.wait_s, -1);
  EXPECT_NEAR(c.wait_s, c.sum_s(), kClose);
  EXPECT_NEAR(c.transfer_time_s, 0, kClose);
}

TEST(Causes, AddUpWhateverHappened) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> stretch(1.0, 1.4);
  Measured m(linked());
  for (int r = 0; r < 3; ++r) {
    RecordedRun run = run_of(m.rig, m.predicted);
    for (RecordedOp& op : run.ops) {
      const double factor = stretch(random);
      op.span.start_s *= factor;
      op.span.end_s *= factor;
      if (op.message) op.message->end_s += factor;
    }
    m.add_run(run);
  }
  EXPECT_NE(causes_of(m).rest_s, 0);
}

TEST(Causes, WithoutMessagesAreOpTimeAndTheRest) {
  Measured m(linked());
  RecordedRun run = run_of(m.rig, m.predicted, 1.5);
  for (RecordedOp& op : run.ops) op.message.reset();
  m.add_run(run);
  const Causes c = causes_of(m);
  EXPECT_LT(c.op_time_s, 0);
  EXPECT_EQ(c.transfer_time_s, 0);
  EXPECT_EQ(c.wait_s, 0);
}

}  // namespace
}  // namespace penstock::causes_test
