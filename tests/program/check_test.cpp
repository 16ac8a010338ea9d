// SPDX-License-Identifier: Apache-2.0
// Broken programs, each with the sentence the checker must say about it.
#include "program/check.hpp"

#include <gtest/gtest.h>

namespace penstock::check_test {
namespace {

using Lists = std::vector<std::vector<Op>>;

Op F(std::uint16_t s, std::uint32_t k) { return {k, s, OpKind::forward, 0}; }
Op B(std::uint16_t s, std::uint32_t k) { return {k, s, OpKind::backward, 0}; }
Op I(std::uint16_t s, std::uint32_t k) { return {k, s, OpKind::backward_input, 0}; }
Op W(std::uint16_t s, std::uint32_t k) { return {k, s, OpKind::backward_weight, 0}; }
Op step(std::uint16_t s, std::uint32_t u) { return {u, s, OpKind::step, 0}; }

/// A program of hand-written lists; the flags are set as lowering would.
Program program_of(const Lists& lists, std::uint32_t m, std::uint32_t batches = 1,
                   Transfers transfers = Transfers::overlapped) {
  Program p;
  p.placement = loop_placement(static_cast<int>(lists.size()), 1, 1);
  p.microbatches_per_update = m;
  p.batches = batches;
  p.transfers = transfers;
  const auto last = static_cast<std::uint16_t>(lists.size() - 1);
  for (const auto& list : lists) {
    for (Op op : list) {
      const bool forward = op.kind == OpKind::forward, backward = is_backward(op.kind);
      if ((forward && op.stage < last) || (backward && op.stage > 0)) op.flags |= Op::sends;
      if ((forward && op.stage > 0) || (backward && op.stage < last)) op.flags |= Op::receives;
      p.ops.add_op(op);
    }
    p.ops.end_device();
  }
  return p;
}

std::string first_finding(const Program& p) {
  const DependencyTable table(p.ops, p.placement, p.microbatches());
  const auto found = check(p, table);
  return found.empty() ? "" : found[0];
}

TEST(Check, AcceptsACorrectProgram) {
  EXPECT_EQ(first_finding(
                program_of({{F(0, 0), B(0, 0), step(0, 0)}, {F(1, 0), B(1, 0), step(1, 0)}}, 1)),
            "");
}
TEST(Check, FindsADuplicate) {
  EXPECT_EQ(first_finding(program_of({{F(0, 0), F(0, 0), B(0, 0), step(0, 0)}}, 1)),
            "0F0 stands twice");
}
TEST(Check, FindsAMissingOp) {
  EXPECT_EQ(first_finding(program_of({{F(0, 0), step(0, 0)}}, 1)), "0B0 (or 0I0) is missing");
}
TEST(Check, FindsAMissingWeightGradient) {
  EXPECT_EQ(first_finding(program_of({{F(0, 0), I(0, 0), step(0, 0)}}, 1)), "0W0 is missing");
  EXPECT_EQ(first_finding(program_of({{F(0, 0), B(0, 0), W(0, 0), step(0, 0)}}, 1)),
            "0W0 stands beside a full backward");
}
TEST(Check, FindsAnOpOutsideOfTheSchedule) {
  EXPECT_EQ(first_finding(program_of({{F(0, 0), F(0, 7), B(0, 0), step(0, 0)}}, 1)),
            "0F7 is outside of the schedule's stages and microbatches");
}
TEST(Check, FindsAnOpOnTheWrongDevice) {
  EXPECT_EQ(first_finding(
                program_of({{F(0, 0), F(1, 0), B(0, 0), step(0, 0)}, {B(1, 0), step(1, 0)}}, 1)),
            "1F0 stands on device 0, but its stage lives on device 1");
}
TEST(Check, FindsABackwardBeforeItsForward) {
  EXPECT_EQ(first_finding(program_of({{B(0, 0), F(0, 0), step(0, 0)}}, 1)),
            "0B0 waits for 0F0, which stands after it on device 0");
}
TEST(Check, FindsAWeightGradientBeforeItsInputGradient) {
  EXPECT_EQ(first_finding(program_of({{F(0, 0), W(0, 0), I(0, 0), step(0, 0)}}, 1)),
            "0W0 waits for 0I0, which stands after it on device 0");
}
TEST(Check, FindsAMissingUpdate) {
  EXPECT_EQ(first_finding(program_of({{F(0, 0), B(0, 0)}}, 1)),
            "device 0 makes 0 updates instead of 1");
}
TEST(Check, FindsAVersionThatIsNotMadeYet) {
  // The forward of the second batch before the first batch's update.
  EXPECT_EQ(first_finding(
                program_of({{F(0, 0), F(0, 1), B(0, 0), step(0, 0), B(0, 1), step(0, 1)}}, 1, 2)),
            "0F1 on device 0 needs weight version 1, but only 0 updates were made before it");
}
TEST(Check, FindsAVersionThatIsNoLongerHeld) {
  Program p = program_of({{F(0, 0), step(0, 0), B(0, 0)}}, 1);
  EXPECT_EQ(first_finding(p),
            "0B0 on device 0 needs weight version 0, no longer held after update 1 (1 held)");
}
TEST(Check, NamesTheCycleOfADeadlock) {
  // Device 0 wants B0 before it has sent F1; device 1 wants F1 before it runs B0.
  const Program p = program_of({{F(0, 0), B(0, 0), F(0, 1), B(0, 1), step(0, 0)},
                                {F(1, 0), F(1, 1), B(1, 0), B(1, 1), step(1, 0)}},
                               2);
  const DependencyTable table(p.ops, p.placement, p.microbatches());
  const auto found = check(p, table);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(
      found[0],
      "deadlock: device 0 is stuck before 0B0: it waits for the message of 1B0 from device 1");
  EXPECT_EQ(
      found[1],
      "deadlock: device 1 is stuck before 1F1: it waits for the message of 0F1 from device 0");
}
TEST(Check, FindsADeadlockOfRendezvousThatEagerTransfersDoNotHave) {
  // Both devices send first and receive later than the other needs.
  const Lists lists = {{F(0, 0), F(0, 1), B(0, 1), B(0, 0), step(0, 0)},
                       {F(1, 0), B(1, 0), F(1, 1), B(1, 1), step(1, 0)}};
  EXPECT_EQ(first_finding(program_of(lists, 2)), "");
  const std::string found = first_finding(program_of(lists, 2, 1, Transfers::coupled));
  EXPECT_EQ(
      found,
      "deadlock: device 0 is stuck before 0B1: it waits for the message of 1B1 from device 1");
}

}  // namespace
}  // namespace penstock::check_test
