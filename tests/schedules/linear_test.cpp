// SPDX-License-Identifier: Apache-2.0
// Schedules of one stage per device: recorded orders of 1F1B, and closed forms of the times of
// 1F1B, eager 1F1B and GPipe for any times and transfers.
#include "schedules/evaluate.hpp"
#include "tests/schedules/recorded.hpp"

#include <random>

namespace penstock::linear_test {
namespace {

OpLists generated(std::string_view schedule, const ScheduleShape& shape) {
  OpLists order;
  find_schedule(schedule)->generate(shape, order);
  return order;
}

ScheduleShape linear(std::uint32_t p, std::uint32_t m, const StageTimes& t, double transfer) {
  ScheduleShape shape{.depth = p, .microbatches_per_update = m};
  shape.times.assign(p, t);
  shape.transfer = transfer;
  return shape;
}

double makespan(std::string_view schedule, const ScheduleShape& shape) {
  const Evaluation found = evaluate(generated(schedule, shape),
                                    loop_placement(std::vector<int>(shape.depth, 1), 1), shape);
  EXPECT_TRUE(found.stuck.empty());
  return found.makespan;
}

/// Calls `visit(shape, F + B, c)` for p <= 8, m <= 24 and several times and transfers.
template <class Visit>
void for_each_case(const Visit& visit) {
  std::mt19937 random(20);
  std::uniform_int_distribution<int> any(1, 40);
  const auto time = [&] { return 0.25 * any(random); };  // sums are exact
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t m = 1; m <= 24; ++m) {
      for (const double scale : {0.0, 0.125, 0.5, 2.0}) {
        const StageTimes t{time(), time(), time()};
        const double c = scale * time();
        visit(linear(p, m, t, c), t.forward + t.backward(), c);
      }
    }
  }
}

double lone_round_trips(double p, double m, double fb, double c) {
  return m * fb + (p - 1) * (fb + 2 * c);
}

// Each microbatch of the steady state waits for a message there and back, but for one in p.
TEST(OneFOneBTime, IsTheClosedFormForAnyTransfer) {
  for_each_case([](const ScheduleShape& shape, double fb, double c) {
    const double p = shape.depth, m = shape.microbatches_per_update;
    const double expected =
        lone_round_trips(p, m, fb, c) + (p > 1 ? 2 * c * (m - 1 - std::ceil((m - 1) / p)) : 0);
    EXPECT_DOUBLE_EQ(makespan("1f1b", shape), expected) << p << " " << m << " " << fb << " " << c;
  });
}

TEST(EagerOneFOneBTime, HidesEveryTransferUpToHalfOfForwardAndBackward) {
  int hidden = 0, seen = 0;
  for_each_case([&](const ScheduleShape& shape, double fb, double c) {
    const double p = shape.depth, m = shape.microbatches_per_update;
    const double all_hidden = lone_round_trips(p, m, fb, c);
    const double found = makespan("eager-1f1b", shape);
    if (2 * c <= fb) {
      ++hidden;
      EXPECT_DOUBLE_EQ(found, all_hidden) << p << " " << m << " " << fb << " " << c;
    } else if (p > 1 && m > 2 * p) {
      ++seen;
      EXPECT_GT(found, all_hidden) << p << " " << m << " " << fb << " " << c;
    }
  });
  EXPECT_GT(hidden, 300);
  EXPECT_GT(seen, 50);
}

TEST(GPipeTime, SeesEachTransferOnceThereAndOnceBack) {
  for_each_case([](const ScheduleShape& shape, double fb, double c) {
    const double expected = lone_round_trips(shape.depth, shape.microbatches_per_update, fb, c);
    for (const std::string_view name : {"gpipe", "gpipe-fifo", "torchgpipe"})
      EXPECT_DOUBLE_EQ(makespan(name, shape), expected) << name;
  });
}

TEST(EagerOneFOneB, RunsTwiceAsFarAhead) {
  const OpLists order = generated("eager-1f1b", {.depth = 3, .microbatches_per_update = 6});
  EXPECT_EQ(tokens_of(order, 0), "0F0 0F1 0F2 0F3 0F4 0B0 0F5 0B1 0B2 0B3 0B4 0B5");
  EXPECT_EQ(tokens_of(order, 1), "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5");
  EXPECT_EQ(tokens_of(order, 2), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4 2F5 2B5");
}

/// Microbatches of device 0 that are not recomputed, in list order of their ops.
std::vector<std::string> stored(Checkpoint checkpoint) {
  ScheduleShape shape{.depth = 2, .microbatches_per_update = 3};
  shape.checkpoint = checkpoint;
  std::vector<std::string> found;
  const OpLists order = generated("torchgpipe", shape);
  for (const Op& op : order.of_device(0)) {
    if (op.has(Op::stored)) found.push_back(to_string(op));
  }
  return found;
}

TEST(TorchGpipe, RecomputesWhatTheCheckpointSays) {
  using Ops = std::vector<std::string>;
  EXPECT_EQ(stored(Checkpoint::always), Ops{});
  EXPECT_EQ(stored(Checkpoint::except_last), (Ops{"0F2", "0B2"}));
  EXPECT_EQ(stored(Checkpoint::never), (Ops{"0F0", "0F1", "0F2", "0B2", "0B1", "0B0"}));
}

TEST(TorchGpipe, RunsInTheOrderOfGpipe) {
  const ScheduleShape shape{.depth = 3, .microbatches_per_update = 5};
  const OpLists one = generated("torchgpipe", shape), other = generated("gpipe", shape);
  for (int d = 0; d < 3; ++d) EXPECT_EQ(tokens_of(one, d), tokens_of(other, d));
}

TEST(OneFOneBOrder, EqualsTheRecordedOnes) {
  SKIP_WITHOUT_RECORDED("sail_simple.jsonl.gz");
  int compared = 0;
  for (const RecordedCase& one : recorded_cases("sail_simple.jsonl.gz")) {
    if (one.schedule != "1f1b") continue;
    const OpLists order = generated("1f1b", one.shape(one.p));
    for (int d = 0; d < order.devices(); ++d)
      EXPECT_EQ(tokens_of(order, d), one.order[static_cast<std::size_t>(d)]) << one.name();
    ++compared;
  }
  EXPECT_EQ(compared, 75);
}

// PyTorch 2.14's own tables of Schedule1F1B skip microbatch 0 on the last device; ours run.
TEST(OneFOneBOrder, OfPyTorchIsADeadlock) {
  constexpr const char* kFile = "torch_pipelining_2.14.1.jsonl.gz";
  SKIP_WITHOUT_RECORDED(kFile);
  int deadlocks = 0;
  for (const RecordedCase& one : recorded_cases(kFile)) {
    if (one.schedule != "1F1B" || one.order.empty()) continue;
    const ScheduleShape shape = one.shape(one.p);
    const Placement where = loop_placement(std::vector<int>(one.p, 1), 1);
    const Evaluation theirs = evaluate(recorded_order(one), where, shape);
    ASSERT_FALSE(theirs.stuck.empty()) << one.name();
    EXPECT_EQ(to_string(theirs.stuck.back()), fmt::format("{}B0", one.p - 1)) << one.name();
    EXPECT_TRUE(evaluate(generated("1f1b", shape), where, shape).stuck.empty());
    ++deadlocks;
  }
  EXPECT_EQ(deadlocks, 15);
}

}  // namespace
}  // namespace penstock::linear_test
