// SPDX-License-Identifier: Apache-2.0
#include "program/check.hpp"
#include "program/dependencies.hpp"
#include "program/order_facts.hpp"
#include "schedules/lowering.hpp"
#include "tests/shared.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace penstock::schedules_test {
namespace {

Program make(const std::string& name, std::uint32_t p, std::uint32_t m, std::uint32_t batches = 1,
             int width = 1, Transfers transfers = Transfers::overlapped) {
  ScheduleShape shape{p, m, batches};
  shape.replicas = width;
  return lower(*find_schedule(name), shape, {transfers});
}

/// The tokens of one device, steps left out, 1-based microbatches: "F1 F2 B1".
std::string order(const Program& program, int device) {
  std::string text;
  for (const Op& op : program.ops.of_device(device)) {
    if (!is_compute(op.kind)) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", token(op.kind), op.microbatch + 1);
  }
  return text;
}

TEST(ModelParallel, RunsOneMicrobatchAtATime) {
  EXPECT_EQ(order(make("model-parallel", 3, 2), 0), "F1 B1 F2 B2");
  EXPECT_EQ(order(make("model-parallel", 3, 2), 2), "F1 B1 F2 B2");
}

TEST(GPipe, RunsBackwardsInReverse) {
  EXPECT_EQ(order(make("gpipe", 2, 3), 0), "F1 F2 F3 B3 B2 B1");
}

TEST(GPipe, FifoRunsBackwardsInOrder) {
  EXPECT_EQ(order(make("gpipe-fifo", 2, 3), 0), "F1 F2 F3 B1 B2 B3");
}

TEST(OneFOneB, WarmupDepthIsDistanceToLastStage) {
  const Program program = make("1f1b", 4, 6);
  EXPECT_EQ(order(program, 0), "F1 F2 F3 F4 B1 F5 B2 F6 B3 B4 B5 B6");
  EXPECT_EQ(order(program, 3), "F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6");
}

TEST(OneFOneB, WarmupIsClampedToTheWorkThereIs) {
  EXPECT_EQ(order(make("1f1b", 8, 2), 0), "F1 F2 B1 B2");
}

TEST(AccumulationSteps, FillAndDrainOneAfterTheOther) {
  ScheduleShape shape{2, 6};
  shape.accumulation_steps = 2;
  const Program program = lower(*find_schedule("1f1b"), shape, {});
  EXPECT_EQ(order(program, 0), "F1 F2 B1 F3 B2 B3 F4 F5 B4 F6 B5 B6");
  const auto steps = std::ranges::count(program.ops.of_device(0), OpKind::step, &Op::kind);
  EXPECT_EQ(steps, 1);  // one update
  EXPECT_EQ(find_schedule("1f1b")->claimed_bubble(shape), 1.0 / 4);
}

TEST(AccumulationSteps, EveryScheduleRunsThemOrSaysWhyNot) {
  for (const Schedule& schedule : schedules()) {
    ScheduleShape shape{4, 16, 1};
    shape.chunks = schedule.chunks.usual;
    shape.memory_limit = schedule.usual_limit;
    if (schedule.whole_model) shape.depth = 1;
    ScheduleShape one = shape;
    one.microbatches_per_update = 8;
    shape.accumulation_steps = 2;
    const Refusal refused = schedule.refuse(shape);
    if (schedule.flushes() && refused.key != "accumulation_steps") {
      ASSERT_TRUE(refused.empty() || !schedule.refuse(one).empty()) << schedule.name;
    }
    if (!refused.empty()) continue;
    EXPECT_EQ(schedule.order(shape).size(), 2 * schedule.order(one).size()) << schedule.name;
  }
  ScheduleShape odd{4, 6};
  odd.accumulation_steps = 4;
  EXPECT_EQ(find_schedule("1f1b")->refuse(odd).why,
            "6 microbatches per update are no 4 equal steps of gradient accumulation; the nearest "
            "numbers that divide them: 3 and 6");
}

TEST(DapplePb, WarmsUpTwiceAsDeep) {
  const Program program = make("dapple-pb", 4, 8);
  EXPECT_EQ(order(program, 3).substr(0, 11), "F1 B1 F2 B2");
  EXPECT_EQ(order(program, 2).substr(0, 17), "F1 F2 F3 B1 F4 B2");
}

TEST(PipeDream, UsesTheVersionThatWasThereWhenTheForwardRan) {
  const Program program = make("pipedream", 4, 1, 10);
  for (std::uint32_t s = 0; s < 4; ++s) {
    for (std::uint32_t k = 0; k < 10; ++k) {
      const std::uint32_t w = 3 - s;
      EXPECT_EQ(program.version({.microbatch = k, .stage = static_cast<std::uint16_t>(s)}),
                k > w ? k - w : 0);
    }
  }
}

TEST(PipeDream, VerticalSyncUsesTheVersionOfTheFirstStageEverywhere) {
  ScheduleShape shape{4, 1, 10};
  shape.vertical_sync = true;
  const Program program = lower(*find_schedule("pipedream"), shape, {});
  const DependencyTable table(program.ops, program.placement, program.microbatches());
  EXPECT_TRUE(check(program, table).empty());
  for (int d = 0; d < 4; ++d) {
    EXPECT_EQ(order_facts(program, d).weight_versions_peak, 4U);
    EXPECT_EQ(order_facts(program, d).staleness_max, 3U);
  }
  EXPECT_EQ(program.version({.microbatch = 7, .stage = 3}), 4U);
}

TEST(TwoBw, FirstTwoBatchesUseVersionZero) {
  const Program program = make("pipedream-2bw", 4, 4, 4);
  const std::uint32_t expected[] = {0, 0, 1, 2};
  for (std::uint32_t k = 0; k < 16; ++k)
    EXPECT_EQ(program.version({.microbatch = k, .stage = 1}), expected[k / 4]);
}

TEST(DataParallel, EveryReplicaRunsItsShareAndReducesAtTheEnd) {
  const Program program = make("data-parallel", 1, 2, 2, 3);
  EXPECT_EQ(program.ops.devices(), 3);
  EXPECT_EQ(order(program, 1), "F2 B2 F5 B5 F8 B8 F11 B11");
  const auto ops = program.ops.of_device(1);
  ASSERT_EQ(ops.size(), 12U);
  EXPECT_EQ(ops[4].kind, OpKind::reduce_grad);
  EXPECT_EQ(ops[5].kind, OpKind::step);
  EXPECT_EQ(ops[10].kind, OpKind::reduce_grad);
  EXPECT_EQ(order_facts(program, 1).weight_versions_peak, 1U);
  EXPECT_EQ(order_facts(program, 1).staleness_max, 0U);
}

TEST(Asynchronous, EveryReplicaReducesByItselfAndGoesOn) {
  const Program program = make("asp", 1, 2, 2, 3);
  EXPECT_TRUE(program.asynchronous);
  EXPECT_FALSE(program.flushes);
  EXPECT_EQ(order(program, 1), "F2 B2 F5 B5 F8 B8 F11 B11");
  EXPECT_EQ(program.ops.of_device(1)[4].kind, OpKind::reduce_grad);
  EXPECT_EQ(program.version({.microbatch = 7, .stage = 0}), 1U);  // its replica's third one
}

TEST(DataParallel, IsNoPipeline) {
  EXPECT_NE(find_schedule("data-parallel")->refuse({4, 2, 1}).why.find("stages must be 1, not 4"),
            std::string::npos);
  EXPECT_EQ(find_schedule("ddp")->refuse({1, 2, 1}).why, "");
}

TEST(Schedules, NamesAndAliasesAreFoundWhateverTheirCase) {
  EXPECT_EQ(find_schedule("PipeDream_Flush"), find_schedule("1f1b"));
  EXPECT_EQ(find_schedule("Schedule1F1B"), find_schedule("dapple"));
  EXPECT_EQ(find_schedule("2bw"), find_schedule("pipedream-2bw"));
  EXPECT_EQ(find_schedule("nothing"), nullptr);
}

TEST(Schedules, RefuseShapesTheyDoNotAdmit) {
  EXPECT_NE(find_schedule("pipedream")->refuse({4, 2, 1}).why, "");
  EXPECT_NE(find_schedule("2bw")->refuse({4, 3, 1}).why.find("nearest legal value is 4"),
            std::string::npos);
  EXPECT_EQ(find_schedule("2bw")->refuse({4, 4, 1}).why, "");
}

TEST(Lowering, ReplicasTakeMicrobatchesInTurn) {
  const Program program = make("1f1b", 2, 2, 1, 3);
  EXPECT_EQ(program.ops.devices(), 6);
  EXPECT_EQ(order(program, 2), "F2 F5 B2 B5");  // replica 1, stage 0
  const auto ops = program.ops.of_device(2);
  EXPECT_EQ(ops[ops.size() - 2].kind, OpKind::reduce_grad);
  EXPECT_EQ(ops[ops.size() - 1].kind, OpKind::step);
}

TEST(OrderFacts, MatchTheClosedFormsUpTo16StagesAnd64Microbatches) {
  for (std::uint32_t p = 1; p <= 16; ++p) {
    for (std::uint32_t m = 1; m <= 64; ++m) {
      const Program gpipe = make("gpipe", p, m), f1b1 = make("1f1b", p, m),
                    pb = make("dapple-pb", p, m);
      const Program stash = make("pipedream", p, 1, m + p);
      for (std::uint32_t s = 0; s < p; ++s) {
        const int d = static_cast<int>(s);
        EXPECT_EQ(order_facts(gpipe, d).stash_peak, m);
        EXPECT_EQ(order_facts(f1b1, d).stash_peak, std::min(p - s, m));
        EXPECT_EQ(order_facts(pb, d).stash_peak, std::min(2 * (p - s) - 1, m));
        for (const Program* flush : {&gpipe, &f1b1, &pb}) {
          EXPECT_EQ(order_facts(*flush, d).weight_versions_peak, 1U);
          EXPECT_EQ(order_facts(*flush, d).staleness_max, 0U);
        }
        EXPECT_EQ(order_facts(stash, d).stash_peak, p - s);
        EXPECT_EQ(order_facts(stash, d).weight_versions_peak, p - s);
        EXPECT_EQ(order_facts(stash, d).staleness_max, p - 1 - s);
      }
      if (m < p) continue;
      const Program two = make("2bw", p, m, 3);
      for (std::uint32_t s = 0; s < p; ++s) {
        EXPECT_EQ(order_facts(two, static_cast<int>(s)).weight_versions_peak, 2U);
        EXPECT_EQ(order_facts(two, static_cast<int>(s)).staleness_max, 1U);
        EXPECT_EQ(order_facts(two, static_cast<int>(s)).stash_peak, p - s);
      }
    }
  }
}

// The executed order of the released 2BW, flush and GPipe schedules, op by op with versions.
class ExecutedOrder : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(ExecutedOrder, EqualsTheReleasedCode) {
  const auto [file, schedule] = GetParam();
  const auto path = shared_folder() / "oracles" / "pipedream_2bw_order" / file;
  SKIP_WITHOUT_SHARED(path);
  std::ifstream in(path);
  const Program program = make(schedule, 4, 4, 4);
  int stage = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#') || line.empty()) continue;
    std::string expected = line.substr(line.find(':') + 2);
    std::string got;
    std::uint32_t updates = 0;
    for (const Op& op : program.ops.of_device(stage)) {
      if (op.kind == OpKind::step) got += fmt::format("AR U->{} ", ++updates);
      if (is_compute(op.kind))
        got += fmt::format("{}{}@{} ", token(op.kind), op.microbatch + 1, program.version(op));
    }
    got.pop_back();
    EXPECT_EQ(got, expected) << "stage " << stage;
    ++stage;
  }
  EXPECT_EQ(stage, 4);
}

INSTANTIATE_TEST_SUITE_P(Released, ExecutedOrder,
                         testing::Values(std::pair{"2bw_p4_m4_iters4.txt", "2bw"},
                                         std::pair{"flush_p4_m4_iters4.txt", "1f1b"},
                                         std::pair{"gpipe_p4_m4_iters4.txt", "gpipe-fifo"}));

}  // namespace
}  // namespace penstock::schedules_test
