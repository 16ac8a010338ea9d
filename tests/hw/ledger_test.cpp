// SPDX-License-Identifier: Apache-2.0
// The ledger: who holds how much and when, from allocations whose times are known only later.
#include "hw/ledger.hpp"

#include <gtest/gtest.h>

namespace penstock::ledger_test {
namespace {

struct FixedEvent : EventState {
  FixedEvent(double time, bool has_fired) : time_(time), fired_(has_fired) {}
  double time_s() override { return time_; }
  bool fired() override { return fired_; }

  double time_;
  bool fired_;
};
Event at(double time_s) { return std::make_shared<FixedEvent>(time_s, true); }
Event never() { return std::make_shared<FixedEvent>(0, false); }

TEST(Ledger, IsEmptyWithoutEntries) {
  const MemoryPeak peak = Ledger().peak();
  EXPECT_EQ(peak.use.total(), 0);
  EXPECT_EQ(peak.op, kNoOp);
}

TEST(Ledger, FindsThePeakOverEntriesInAnyOrder) {
  Ledger ledger;
  ledger.at_op(7);
  ledger.add_bytes(Owner::activations, 100, at(2));
  ledger.at_op(3);
  ledger.add_bytes(Owner::activations, 50, at(1));
  ledger.add_bytes(Owner::activations, -50, at(3));
  ledger.at_op(9);
  ledger.add_bytes(Owner::buffers, 20, at(4));
  const MemoryPeak peak = ledger.peak();
  EXPECT_EQ(peak.use.total(), 150);
  EXPECT_EQ(peak.use[Owner::activations], 150);
  EXPECT_EQ(peak.use[Owner::buffers], 0);
  EXPECT_EQ(peak.at_s, 2);
  EXPECT_EQ(peak.op, 7U);
}

TEST(Ledger, FreesBeforeItAllocatesAtOneInstant) {
  Ledger ledger;
  ledger.add_bytes(Owner::workspace, 80, at(1));
  ledger.add_bytes(Owner::activations, 100, at(2));  // written down before what ends there
  ledger.add_bytes(Owner::workspace, -80, at(2));
  EXPECT_EQ(ledger.peak().use.total(), 100);
}

TEST(Ledger, CountsWhatIsThereFromTheStartAndIsNoOps) {
  Ledger ledger;
  ledger.at_op(5);
  ledger.add_bytes(Owner::activations, 1, at(1));
  Ledger fixed;
  fixed.add_bytes(Owner::weights, 1000, nullptr);
  EXPECT_EQ(fixed.peak().op, kNoOp);
  EXPECT_EQ(fixed.peak().use[Owner::weights], 1000);
  EXPECT_EQ(ledger.peak().op, 5U);
}

TEST(Ledger, LeavesOutWhatDidNotHappenBeforeTheRunWasStopped) {
  Ledger ledger;
  ledger.add_bytes(Owner::activations, 10, at(1));
  ledger.add_bytes(Owner::activations, 1000, never());
  EXPECT_EQ(ledger.peak().use.total(), 10);
}

TEST(Ledger, MovesBytesFromOneOwnerToAnotherWithoutAPeak) {
  Ledger ledger;
  ledger.add_bytes(Owner::buffers, 30, at(1));
  ledger.move(Owner::buffers, Owner::activations, 30, at(2));
  ledger.add_bytes(Owner::workspace, 1, at(3));
  const MemoryPeak peak = ledger.peak();
  EXPECT_EQ(peak.use.total(), 31);
  EXPECT_EQ(peak.use[Owner::buffers], 0);
  EXPECT_EQ(peak.use[Owner::activations], 30);
}

}  // namespace
}  // namespace penstock::ledger_test
