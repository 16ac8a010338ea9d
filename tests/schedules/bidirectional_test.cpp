// SPDX-License-Identifier: Apache-2.0
// DualPipe, DualPipeV, Chimera and Hanayo: recorded orders, every admitted shape of up to eight
// devices, and the formulas of their papers.
#include "program/check.hpp"
#include "program/dependencies.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/lowering.hpp"
#include "tests/schedules/recorded.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace penstock::bidirectional_test {
namespace {

struct Generated {
  OpLists order;
  Placement where;
  Evaluation found;
};

ScheduleShape shape_of(std::uint32_t p, std::uint32_t m, std::uint32_t chunks,
                       StageTimes times = {}) {
  ScheduleShape shape{.depth = p, .microbatches_per_update = m};
  shape.chunks = chunks;
  shape.times.assign(shape.stages(), times);
  return shape;
}

Generated generate(const Schedule& schedule, const ScheduleShape& shape) {
  Generated made;
  schedule.generate(shape, made.order);
  made.where = layout(schedule.layout, std::vector<int>(shape.depth, 1), shape.chunks,
                      shape.microbatches_per_update);
  made.found = evaluate(made.order, made.where, shape);
  return made;
}

/// Calls visit(schedule, shape) for every shape that one of the four admits: p <= 8, m <= 24, and
/// all of up to 6 chunks.
template <class Visit>
void for_each_admitted(std::string_view name, StageTimes times, const Visit& visit) {
  const Schedule& schedule = *find_schedule(name);
  int admitted = 0;
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t m = 1; m <= 24; ++m) {
      for (std::uint32_t v = 1; v <= 6; ++v) {
        const ScheduleShape shape = shape_of(p, m, v, times);
        if (!schedule.refuse(shape).empty()) continue;
        SCOPED_TRACE(fmt::format("{} p={} m={} v={}", name, p, m, v));
        visit(schedule, shape);
        ++admitted;
      }
    }
  }
  EXPECT_GT(admitted, 30);
}

class Bidirectional : public testing::TestWithParam<const char*> {};

TEST_P(Bidirectional, RunsEveryOpOnceOnTheDeviceOfItsStage) {
  for_each_admitted(GetParam(), {}, [](const Schedule& schedule, const ScheduleShape& shape) {
    const Generated made = generate(schedule, shape);
    const std::uint32_t m = shape.microbatches_per_update;
    // By stage and microbatch: F counts 1, B 10, I 100 and W 1000.
    std::vector<int> seen(static_cast<std::size_t>(made.where.stages()) * m, 0);
    const int worth[] = {1, 10, 100, 1000};
    for (int d = 0; d < made.order.devices(); ++d) {
      for (const Op& op : made.order.of_device(d)) {
        ASSERT_LT(op.microbatch, m);
        ASSERT_LT(op.stage, made.where.stages());
        EXPECT_EQ(made.where.device_of(op.stage, op.microbatch), d) << to_string(op);
        seen[op.stage * m + op.microbatch] += worth[static_cast<int>(op.kind)];
      }
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int s) { return s == 11 || s == 1101; }));
  });
}

TEST_P(Bidirectional, NeverDeadlocksWhateverTheTimes) {
  for (const StageTimes times :
       {StageTimes{1, 1, 1, 1, 1}, StageTimes{5, 1, 2, 1, 1}, StageTimes{1, 4, 2, 1, 1}}) {
    for_each_admitted(GetParam(), times, [](const Schedule& schedule, const ScheduleShape& shape) {
      EXPECT_TRUE(generate(schedule, shape).found.stuck.empty());
    });
  }
}

TEST_P(Bidirectional, HoldsAsManyActivationsAsItsFormulaSays) {
  for_each_admitted(GetParam(), {}, [](const Schedule& schedule, const ScheduleShape& shape) {
    const Generated made = generate(schedule, shape);
    for (std::uint32_t d = 0; d < shape.depth; ++d)
      EXPECT_EQ(made.found.peaks[d], schedule.peak(shape, d)) << "device " << d;
  });
}

double work_of(std::span<const Op> ops, const ScheduleShape& shape) {
  double work = 0;
  for (const Op& op : ops) {
    const StageTimes t = shape.time(op.stage);
    work += op.kind == OpKind::forward          ? t.forward
            : op.kind == OpKind::backward       ? t.backward()
            : op.kind == OpKind::backward_input ? t.backward_input
                                                : t.backward_weight;
  }
  return work;
}

TEST_P(Bidirectional, IdlesAsLongAsItsFormulaSaysWhereItSaysSo) {
  int claimed = 0;
  for (const StageTimes times :
       {StageTimes{2, 1, 1, 1, 1}, StageTimes{1, 1, 1, 1, 1}, StageTimes{2, 2, 1, 1, 1},
        StageTimes{1, 1, 2, 1, 1}, StageTimes{3, 1, 1, 1, 1}, StageTimes{2, 3, 1, 1, 1}}) {
    for_each_admitted(GetParam(), times, [&](const Schedule& schedule, const ScheduleShape& shape) {
      const double claim = schedule.ideal_bubble(shape);
      if (std::isnan(claim)) return;
      ++claimed;
      const Generated made = generate(schedule, shape);
      for (int d = 0; d < made.order.devices(); ++d) {
        const double work = work_of(made.order.of_device(d), shape);
        EXPECT_NEAR(1 - work / made.found.makespan, claim, 1e-12) << "device " << d;
      }
    });
  }
  EXPECT_GT(claimed, 30);
}

/// What a device sends to another, and what that one needs from it, both in list order.
using Channel = std::pair<std::vector<std::string>, std::vector<std::string>>;

std::map<std::tuple<int, int, OpKind>, Channel> channels(const Generated& made) {
  std::map<std::tuple<int, int, OpKind>, Channel> all;
  const std::uint32_t last = static_cast<std::uint32_t>(made.where.stages()) - 1;
  for (int d = 0; d < made.order.devices(); ++d) {
    for (const Op& op : made.order.of_device(d)) {
      if (op.kind == OpKind::backward_weight) continue;
      const bool forward = op.kind == OpKind::forward;
      const OpKind kind = forward ? OpKind::forward : OpKind::backward;
      // A message is named by the stage that needs it.
      const std::uint32_t next = forward ? op.stage + 1U : op.stage - 1U;
      if (op.stage != (forward ? last : 0)) {
        const int to = made.where.device_of(next, op.microbatch);
        if (to != d)
          all[{d, to, kind}].first.push_back(to_string(make_op(kind, next, op.microbatch)));
      }
      if (op.stage != (forward ? 0 : last)) {
        const std::uint32_t before = forward ? op.stage - 1U : op.stage + 1U;
        const int from = made.where.device_of(before, op.microbatch);
        if (from != d)
          all[{from, d, kind}].second.push_back(to_string(make_op(kind, op.stage, op.microbatch)));
      }
    }
  }
  return all;
}

TEST_P(Bidirectional, NeedsTheMessagesOfAChannelInTheOrderTheyAreSent) {
  for_each_admitted(GetParam(), {}, [](const Schedule& schedule, const ScheduleShape& shape) {
    for (const auto& [ends, channel] : channels(generate(schedule, shape)))
      EXPECT_EQ(channel.first, channel.second);
  });
}

void expect_checked(const char* name, Transfers transfers) {
  for_each_admitted(name, {}, [&](const Schedule& schedule, const ScheduleShape& shape) {
    ScheduleShape two_batches = shape;
    two_batches.batches = 2;
    const Program program = lower(schedule, two_batches, {transfers});
    const DependencyTable table(program.ops, program.placement, program.microbatches());
    EXPECT_EQ(fmt::format("{}", fmt::join(check(program, table), "\n")), "");
  });
}

TEST_P(Bidirectional, LowersToAProgramThatTheCheckerPasses) {
  expect_checked(GetParam(), Transfers::overlapped);
}

TEST(Chimera, NeverDeadlocksWhenASendWaitsForItsReceiver) {
  expect_checked("chimera", Transfers::coupled);
}

TEST(Hanayo, NeverDeadlocksWhenASendWaitsForItsReceiver) {
  expect_checked("hanayo", Transfers::coupled);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Bidirectional,
                         testing::Values("dualpipe", "dualpipev", "chimera", "hanayo"),
                         [](const auto& one) { return std::string(one.param); });

class RecordedDualPipe : public testing::TestWithParam<const char*> {};

TEST_P(RecordedDualPipe, HasTheSameOrderOrIsRefused) {
  SKIP_WITHOUT_RECORDED(GetParam());
  int equal = 0;
  for (const RecordedCase& one : recorded_cases(GetParam())) {
    const Schedule* schedule = find_schedule(one.schedule);
    if (schedule == nullptr || !schedule->name.starts_with("dualpipe")) continue;
    SCOPED_TRACE(one.name());
    const ScheduleShape shape = shape_of(one.p, one.m, schedule->chunks.usual);
    EXPECT_EQ(schedule->refuse(shape).empty(), !one.all.contains("error"));
    if (one.all.contains("error")) continue;
    const Generated made = generate(*schedule, shape);
    ASSERT_EQ(one.order.size(), one.p);
    for (std::uint32_t d = 0; d < one.p; ++d)
      EXPECT_EQ(tokens_of(made.order, static_cast<int>(d)), one.order[d]);
    ++equal;
  }
  EXPECT_GE(equal, 8);
}

INSTANTIATE_TEST_SUITE_P(Files, RecordedDualPipe,
                         testing::Values("deepseek_dualpipe.jsonl.gz",
                                         "torch_pipelining_2.14.1.jsonl.gz"));

double idle(const char* name, std::uint32_t p, std::uint32_t m, std::uint32_t chunks,
            StageTimes times) {
  const Generated made = generate(*find_schedule(name), shape_of(p, m, chunks, times));
  return made.found.makespan - m * chunks * (times.forward + times.backward());
}

constexpr StageTimes kBackwardAsLong{2, 1, 1, 1, 1};
constexpr StageTimes kBackwardTwiceAsLong{1, 1, 1, 1, 1};

TEST(Chimera, IdlesTwelveAndEighteenForwardsOnEightDevices) {
  EXPECT_EQ(idle("chimera", 8, 8, 1, kBackwardTwiceAsLong), 12);
  EXPECT_EQ(idle("chimera", 8, 16, 1, kBackwardTwiceAsLong), 18);
}

TEST(Chimera, HalvesTheBubbleOf1F1BWhenForwardsAreAsLongAsBackwards) {
  // The paper's bubble ratio (D-2)/(2N+D-2) and 1F1B's (D-1)/(N+D-1), in slots.
  for (const std::uint32_t d : {2U, 4U, 6U, 8U}) {
    EXPECT_EQ(idle("chimera", d, d, 1, kBackwardAsLong), 2 * (d - 2.0));
    EXPECT_EQ(idle("1f1b", d, d, 1, kBackwardAsLong), 4 * (d - 1.0));
  }
}

TEST(Chimera, MergesTwoPipelinesOfFourDevicesAsInThePaper) {
  const Generated made = generate(*find_schedule("chimera"), shape_of(4, 4, 1));
  EXPECT_EQ(tokens_of(made.order, 0), "0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1");
  EXPECT_EQ(tokens_of(made.order, 1), "1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1");
  EXPECT_EQ(tokens_of(made.order, 2), "1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3");
  EXPECT_EQ(tokens_of(made.order, 3), "0F2 0F3 3F0 3B0 3F1 3B1 0B2 0B3");
}

TEST(Chimera, StartsTheNextUnitInTheGapsOfTheOneBefore) {
  const Generated made = generate(*find_schedule("chimera"), shape_of(4, 8, 1));
  EXPECT_EQ(tokens_of(made.order, 0),
            "0F0 0F1 3F4 3B4 3F5 3B5 0B0 0F2 0B1 0F3 3F6 3B6 3F7 3B7 0B2 0B3");
}

TEST(Chimera, DividesFewMicrobatchesAsEvenlyAsPossible) {
  const Generated made = generate(*find_schedule("chimera"), shape_of(4, 3, 1));
  EXPECT_EQ(tokens_of(made.order, 0), "0F0 0F1 3F2 3B2 0B0 0B1");
  EXPECT_EQ(tokens_of(generate(*find_schedule("chimera"), shape_of(4, 1, 1)).order, 3), "3F0 3B0");
}

TEST(Hanayo, FollowsOneMicrobatchPerSlotThereAndBack) {
  const Generated made = generate(*find_schedule("hanayo"), shape_of(2, 2, 2));
  EXPECT_EQ(tokens_of(made.order, 0), "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1");
  EXPECT_EQ(tokens_of(made.order, 1), "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1");
}

TEST(Hanayo, MoreWavesMakeASmallerBubble) {
  // Of a device's work, with m = p: (2P-2)/(3PW) when B = 2F.
  for (const std::uint32_t p : {2U, 4U, 8U}) {
    for (const std::uint32_t waves : {1U, 2U, 3U}) {
      const double work = 6.0 * p * waves;
      EXPECT_NEAR(idle("hanayo", p, p, 2 * waves, kBackwardTwiceAsLong) / work,
                  (2.0 * p - 2) / (3.0 * p * waves), 1e-12);
    }
  }
}

TEST(Hanayo, IsNeverWorseThanThePapersEstimate) {
  for (std::uint32_t p = 2; p <= 8; ++p) {
    for (std::uint32_t waves = 1; waves <= 3; ++waves) {
      const double estimate = (2.0 * p - 2) / (3.0 * p * waves + p - 1);
      const ScheduleShape shape = shape_of(p, p, 2 * waves, kBackwardTwiceAsLong);
      EXPECT_LE(find_schedule("hanayo")->ideal_bubble(shape), estimate);
    }
  }
}

TEST(Hanayo, OneWaveIsChimeraOfTwiceTheDevicesFolded) {
  // Device d of the wave does what device d of Chimera does early and device 2p-1-d does late.
  const std::uint32_t p = 4, m = 2 * p;
  const Generated wave = generate(*find_schedule("hanayo"), shape_of(p, m, 2));
  const Generated bidirectional = generate(*find_schedule("chimera"), shape_of(2 * p, 2 * m, 1));
  for (int d = 0; d < static_cast<int>(p); ++d) {
    OpLists folded;
    for (Op op : bidirectional.order.of_device(d)) {
      op.microbatch %= m;
      folded.add_op(op);
    }
    folded.end_device();
    EXPECT_EQ(tokens_of(wave.order, d), tokens_of(folded, 0));
  }
}

std::string refusal(const char* name, std::uint32_t p, std::uint32_t m, std::uint32_t chunks) {
  const Refusal why = find_schedule(name)->refuse(shape_of(p, m, chunks));
  return fmt::format("{}: {}", why.key, why.why);
}

TEST(BidirectionalRefusals, NameTheNearestLegalValues) {
  const auto ends = [](const std::string& text, const char* end) {
    EXPECT_TRUE(text.ends_with(end)) << text;
  };
  ends(refusal("dualpipe", 3, 8, 1), "stages is 3, the nearest legal value is 2 or 4");
  ends(refusal("dualpipe", 1, 8, 1), "stages is 1, the nearest legal value is 2");
  ends(refusal("dualpipe", 4, 6, 1),
       "must be even and at least 2p = 8, not 6; the nearest legal value is 8");
  ends(refusal("dualpipe", 4, 9, 1), "the nearest legal value is 8 or 10");
  ends(refusal("dualpipe", 4, 8, 3), "chunks is 3, the nearest legal value is 2");
  ends(refusal("dualpipev", 4, 7, 2), "microbatches is 7, the nearest legal value is 2p = 8");
  ends(refusal("dualpipev", 4, 8, 1), "chunks is 1, the nearest legal value is 2");
  ends(refusal("chimera", 5, 4, 1), "stages is 5, the nearest legal value is 4 or 6");
  ends(refusal("hanayo", 4, 4, 3), "chunks is 3, the nearest legal value is 2 or 4");
}

TEST(BidirectionalRefusals, AskForEvenWidths) {
  for (const char* name : {"dualpipe", "dualpipev", "chimera", "hanayo"}) {
    ScheduleShape shape = shape_of(4, 8, find_schedule(name)->chunks.usual);
    shape.replicas = PerStage<int>(std::vector<int>{2, 1, 1, 1});
    EXPECT_EQ(find_schedule(name)->refuse(shape).key, "width") << name;
  }
}

TEST(Mirrored, TakesOneOrTwoChunksAsTheSameThing) {
  for (const char* name : {"dualpipe", "chimera"}) {
    const Generated one = generate(*find_schedule(name), shape_of(4, 8, 1));
    const Generated two = generate(*find_schedule(name), shape_of(4, 8, 2));
    for (int d = 0; d < 4; ++d) EXPECT_EQ(tokens_of(one.order, d), tokens_of(two.order, d));
  }
}

}  // namespace
}  // namespace penstock::bidirectional_test
