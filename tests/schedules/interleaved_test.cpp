// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B (Megatron's and PyTorch's), interleaved zero-bubble and looped breadth-first:
// their orders equal the recorded ones.
#include "program/check.hpp"
#include "program/dependencies.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/lowering.hpp"
#include "tests/schedules/recorded.hpp"

#include <set>

namespace penstock::interleaved_test {
namespace {

OpLists generated(std::string_view schedule, const ScheduleShape& shape) {
  OpLists order;
  find_schedule(schedule)->generate(shape, order);
  return order;
}

ScheduleShape interleaved(std::uint32_t p, std::uint32_t m, std::uint32_t v,
                          std::uint32_t group = 0) {
  ScheduleShape shape{.depth = p, .microbatches_per_update = m};
  shape.chunks = v;
  shape.group = group;
  return shape;
}

Evaluation evaluated(std::string_view schedule, const ScheduleShape& shape) {
  return evaluate(generated(schedule, shape),
                  loop_placement(std::vector<int>(shape.depth, 1), static_cast<int>(shape.chunks)),
                  shape);
}

void expect_order(const OpLists& order, const RecordedCase& one) {
  ASSERT_EQ(order.devices(), static_cast<int>(one.p)) << one.name();
  for (int d = 0; d < order.devices(); ++d)
    EXPECT_EQ(tokens_of(order, d), one.order[static_cast<std::size_t>(d)])
        << one.name() << " device " << d;
}

constexpr const char* kMegatron = "megatron_interleaved.jsonl.gz";
constexpr const char* kTorch = "torch_pipelining_2.14.1.jsonl.gz";

ScheduleShape megatron_shape(const RecordedCase& one) {
  ScheduleShape shape = interleaved(one.p, one.m, one.v);
  if (one.all["N"].is_number()) shape.group = one.all["N"];
  shape.extra_warmup = one.all["overlap_moe"].get<bool>() ? 1 : 0;
  return shape;
}

// Also the orders that Megatron makes and then refuses to run.
TEST(InterleavedMegatron, OrdersEqualTheRecordedOnesForEveryGroup) {
  SKIP_WITHOUT_RECORDED(kMegatron);
  int compared = 0;
  for (const RecordedCase& one : recorded_cases(kMegatron)) {
    expect_order(generated("interleaved-1f1b", megatron_shape(one)), one);
    ++compared;
  }
  EXPECT_EQ(compared, 264);
}

TEST(InterleavedMegatron, RefusesWhatMegatronRefusesAndNothingElse) {
  SKIP_WITHOUT_RECORDED(kMegatron);
  int accepted = 0, refused = 0;
  for (const RecordedCase& one : recorded_cases(kMegatron)) {
    if (one.schedule != "interleaved_1f1b") continue;
    const bool accepts = one.all["megatron_accepts"];
    EXPECT_EQ(find_schedule("interleaved-1f1b")->refuse(megatron_shape(one)).empty(), accepts)
        << one.name();
    ++(accepts ? accepted : refused);
  }
  EXPECT_EQ(accepted, 90);
  EXPECT_EQ(refused, 153);
}

TEST(InterleavedMegatron, OrdersThatDeadlockAreRecordedAsDeadlocksAndRefused) {
  SKIP_WITHOUT_RECORDED(kMegatron);
  int deadlocks = 0;
  for (const RecordedCase& one : recorded_cases(kMegatron)) {
    const ScheduleShape shape = megatron_shape(one);
    const bool stuck = !evaluated("interleaved-1f1b", shape).stuck.empty();
    EXPECT_EQ(stuck, one.deadlocks()) << one.name();
    if (!stuck) continue;
    ++deadlocks;
    EXPECT_FALSE(find_schedule("interleaved-1f1b")->refuse(shape).empty()) << one.name();
  }
  EXPECT_EQ(deadlocks, 10);
}

// All groups, with and without the warm-up of overlapped MoE traffic.
TEST(InterleavedMegatron, NeverDeadlocksAndKeepsItsPromisesWithAnyGroupItAdmits) {
  const Schedule& schedule = *find_schedule("interleaved-1f1b");
  int admitted = 0;
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t m = p; m <= 24; ++m) {
      for (std::uint32_t group = p; group <= m; ++group) {
        for (const std::uint32_t extra : {0U, 1U}) {
          for (const std::uint32_t v : {2U, 3U}) {
            ScheduleShape shape = interleaved(p, m, v, group);
            shape.extra_warmup = extra;
            if (!schedule.refuse(shape).empty()) continue;
            ++admitted;
            const Evaluation found = evaluated(schedule.name, shape);
            ASSERT_TRUE(found.stuck.empty()) << p << " " << m << " " << group;
            EXPECT_EQ(found.makespan, 3.0 * (m * v + p - 1)) << p << " " << m << " " << group;
            for (std::uint32_t d = 0; d < p; ++d) {
              EXPECT_EQ(found.peaks[d],
                        std::min(m * v, (v - 1) * group + 2 * (p - 1 - d) + 1 + extra));
              EXPECT_EQ(found.peaks[d], schedule.peak(shape, d));
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(admitted, 2 * 2 * 1098);
}

TEST(InterleavedMegatron, IsOneFOneBWithOneChunk) {
  for (const std::uint32_t m : {1U, 3U, 9U}) {
    for (std::uint32_t p = 1; p <= 5; ++p) {
      const OpLists one = generated("interleaved-1f1b", interleaved(p, m, 1)),
                    other = generated("1f1b", interleaved(p, m, 1));
      for (int d = 0; d < one.devices(); ++d) EXPECT_EQ(tokens_of(one, d), tokens_of(other, d));
    }
  }
}

std::string refusal(std::string_view schedule, const ScheduleShape& shape) {
  return find_schedule(schedule)->refuse(shape).why;
}

TEST(InterleavedMegatron, RefusalsNameTheNearestMicrobatchesAndGroups) {
  EXPECT_NE(refusal("interleaved-1f1b", interleaved(4, 6, 2))
                .find("microbatches is 6, the nearest legal values are 4 and 8; or set group: 6"),
            std::string::npos);
  EXPECT_NE(refusal("interleaved-1f1b", interleaved(4, 3, 2))
                .find("microbatches is 3, the nearest legal value is 4;"),
            std::string::npos);
  EXPECT_NE(refusal("interleaved-1f1b", interleaved(4, 9, 2, 2))
                .find("group is 2, the nearest legal value is 5"),
            std::string::npos);
  EXPECT_NE(refusal("interleaved-1f1b", interleaved(4, 8, 2, 12))
                .find("microbatches is 8, the nearest legal value is 12; or set group: 8"),
            std::string::npos);
  EXPECT_EQ(refusal("interleaved-1f1b", interleaved(4, 9, 2, 5)), "");
  ScheduleShape uneven = interleaved(2, 2, 2);
  uneven.replicas = PerStage<int>(std::vector<int>{1, 2});
  EXPECT_EQ(find_schedule("interleaved-1f1b")->refuse(uneven).key, "width");
}

// What a refusal says can be done, for every group, too.
TEST(InterleavedMegatron, RefusedGroupsNameLegalOnes) {
  const Schedule& schedule = *find_schedule("interleaved-1f1b");
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t m = p; m <= 24; ++m) {
      for (std::uint32_t group = 1; group <= 30; ++group) {
        const Refusal no = schedule.refuse(interleaved(p, m, 2, group));
        if (no.empty()) continue;
        const std::string_view before = no.key == "group" ? "legal value is " : "set group: ";
        const std::size_t at = no.why.find(before);
        ASSERT_NE(at, std::string::npos) << no.why;
        const auto named =
            static_cast<std::uint32_t>(std::stoul(no.why.substr(at + before.size())));
        EXPECT_EQ(refusal(schedule.name, interleaved(p, m, 2, named)), "") << no.why;
      }
    }
  }
}

struct TorchClass {
  const char *recorded, *ours;
  int cases;
};

class TorchOrders : public testing::TestWithParam<TorchClass> {};

TEST_P(TorchOrders, EqualTheRecordedOnes) {
  SKIP_WITHOUT_RECORDED(kTorch);
  int compared = 0;
  for (const RecordedCase& one : recorded_cases(kTorch)) {
    if (one.schedule != GetParam().recorded) continue;
    ASSERT_FALSE(one.all.contains("error")) << one.name();
    const ScheduleShape shape = interleaved(one.p, one.m, one.v);
    EXPECT_EQ(refusal(GetParam().ours, shape), "");
    expect_order(generated(GetParam().ours, shape), one);
    ++compared;
  }
  EXPECT_EQ(compared, GetParam().cases);
}

INSTANTIATE_TEST_SUITE_P(Classes, TorchOrders,
                         testing::Values(TorchClass{"Interleaved1F1B", "interleaved-1f1b-torch",
                                                    57},
                                         TorchClass{"LoopedBFS", "looped-bfs", 59},
                                         TorchClass{"InterleavedZeroBubble", "interleaved-zb", 60},
                                         TorchClass{"GPipe", "gpipe-fifo", 19}),
                         [](const auto& tested) { return tested.param.recorded; });

TEST(InterleavedTorch, IsMegatronsOrderWhenTheStagesDivideTheMicrobatches) {
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t rounds = 1; rounds <= 3; ++rounds) {
      const ScheduleShape shape = interleaved(p, p * rounds, 3);
      const OpLists one = generated("interleaved-1f1b", shape),
                    other = generated("interleaved-1f1b-torch", shape);
      for (int d = 0; d < one.devices(); ++d) EXPECT_EQ(tokens_of(one, d), tokens_of(other, d));
    }
  }
}

TEST(InterleavedTorch, RefusesMicrobatchesThatDoNotDivideIntoRounds) {
  for (const std::string_view name : {"interleaved-1f1b-torch", "interleaved-zb"}) {
    EXPECT_NE(refusal(name, interleaved(4, 9, 2))
                  .find("microbatches is 9 and does not divide into 2 rounds, the nearest legal "
                        "values are 8 and 10"),
              std::string::npos);
    EXPECT_EQ(refusal(name, interleaved(4, 10, 2)), "");
    EXPECT_EQ(refusal(name, interleaved(4, 7, 2)), "");  // one round
  }
}

// Idle (p-1)(F+I-W) with W <= F; where W is dearer it is what I alone takes on the way back.
TEST(InterleavedZeroBubble, IdleTimeIsThatOfZbH1OnChunks) {
  const std::string_view name = "interleaved-zb";
  for (const StageTimes& t : {StageTimes{1, 1, 1}, StageTimes{5, 7, 2}, StageTimes{9, 2, 8}}) {
    for (std::uint32_t p = 1; p <= 6; ++p) {
      for (std::uint32_t m = p; m <= 12; ++m) {
        ScheduleShape shape = interleaved(p, m, 2);
        if (!refusal(name, shape).empty()) continue;
        shape.times.assign(shape.stages(), t);
        const double work = 2 * m * (t.forward + t.backward());
        EXPECT_NEAR(evaluated(name, shape).stage_time - work,
                    (p - 1) * (t.forward + t.backward_input - t.backward_weight), 1e-9)
            << p << " " << m;
      }
    }
  }
}

TEST(LoopedBfs, RunsAllMicrobatchesOnAChunkBeforeTheNext) {
  const OpLists order = generated("looped-bfs", interleaved(2, 2, 2));
  EXPECT_EQ(tokens_of(order, 0), "0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0");
  EXPECT_EQ(tokens_of(order, 1), "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0");
}

// Device 1 offers what chunk 2 needs while device 0 still sends it the microbatches of chunk 0.
TEST(LoopedBfs, NeedsSendersThatGoOn) {
  const Program program =
      lower(*find_schedule("looped-bfs"), interleaved(2, 4, 2), {Transfers::coupled});
  const DependencyTable table(program.ops, program.placement, program.microbatches());
  const auto problems = check(program, table);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_NE(problems[0].find("deadlock: device 0 is stuck before 0F3"), std::string::npos);
}

TEST(Chunks, AreAnyNumberWhereStagesLoop) {
  for (const std::string_view name :
       {"interleaved-1f1b", "interleaved-1f1b-torch", "looped-bfs", "interleaved-zb"}) {
    for (const std::uint32_t v : {1U, 2U, 7U}) EXPECT_EQ(refusal(name, interleaved(2, 4, v)), "");
    EXPECT_EQ(find_schedule(name)->chunks.usual, 2U);
  }
  EXPECT_NE(refusal("eager-1f1b", interleaved(2, 4, 2)).find("the nearest legal value is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::interleaved_test
