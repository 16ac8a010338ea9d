// The critical path of real runs: from 0 to the end of the run without a wait that nothing
// explains.
#include "tests/rig.hpp"
#include "traces/metrics.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock {
namespace {

std::vector<PathSegment> path_of(const Rig& rig, const Timeline& timeline) {
  return critical_path({rig.program.ops, rig.table, timeline, rig.program.transfers});
}

TEST(CriticalPath, OfEveryPredictedRunIsAChainOfDependencies) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
  };
  for (int run = 0; run < 400; ++run) {
    RigSpec spec;
    const Schedule& schedule =
        schedules()[pick(0, static_cast<std::uint32_t>(schedules().size() - 1))];
    spec.schedule = schedule.name;
    spec.shape.depth = schedule.whole_model ? 1 : pick(1, 6);
    spec.shape.batches = pick(1, 4);
    spec.shape.microbatches_per_update =
        schedule.update == UpdateRule::stash ? 1 : pick(spec.shape.depth, 9);
    spec.width = static_cast<int>(pick(1, 3));
    spec.transfers = static_cast<Transfers>(pick(0, 3));
    spec.global_step = schedule.flushes() && pick(0, 1) == 0;
    for (std::uint32_t s = 0; s < spec.shape.depth; ++s) {
      StageCosts c = unit_costs(pick(1, 5), pick(1, 9));
      c.step_s = pick(0, 4);
      c.reduce_grad_s = pick(0, 4);
      c.output_bytes = pick(0, 6);
      spec.costs.push_back(c);
    }
    spec.link = {.latency_s = static_cast<double>(pick(0, 2)), .bytes_per_s = 2};
    const Rig rig(spec);
    SCOPED_TRACE(spec.schedule + " " + std::string(to_string(spec.transfers)) + " run " +
                 std::to_string(run));
    const Timeline timeline = simulate_exact(rig.input());
    const auto path = path_of(rig, timeline);
    ASSERT_FALSE(path.empty());
    EXPECT_EQ(path.front().start_s, 0);
    EXPECT_EQ(path.back().end_s, timeline.makespan_s);
    for (std::size_t i = 0; i < path.size(); ++i) {
      ASSERT_NE(path[i].kind, PathSegment::Kind::wait);
      if (i > 0) {
        ASSERT_EQ(path[i - 1].end_s, path[i].start_s);
      }
    }
  }
}

TEST(CriticalPath, GoesThroughTheLastMemberOfABarrier) {
  // A global step, steps of 1, 1 and 5 s: device 0's last backward holds up all of them.
  std::vector<StageCosts> costs(3, unit_costs());
  costs[0].step_s = costs[1].step_s = 1;
  costs[2].step_s = 5;
  const Rig rig({.shape = {3, 3, 1}, .global_step = true, .costs = costs});
  const Timeline timeline = simulate_exact(rig.input());
  const auto path = path_of(rig, timeline);
  ASSERT_GE(path.size(), 2U);
  EXPECT_EQ(path.back().device, 2);
  EXPECT_EQ(path[path.size() - 2].device, 0);
  EXPECT_EQ(path[path.size() - 2].end_s, path.back().start_s);
}

TEST(CriticalPath, NamesTheReductionByItself) {
  std::vector<StageCosts> costs(2, unit_costs());
  costs[0].reduce_grad_s = costs[1].reduce_grad_s = 4;
  const Rig rig({.shape = {2, 1, 1}, .width = 2, .costs = costs});
  const auto path = path_of(rig, simulate_exact(rig.input()));
  double reduction = 0;
  for (const PathSegment& p : path)
    reduction += p.kind == PathSegment::Kind::reduction ? p.end_s - p.start_s : 0;
  EXPECT_EQ(reduction, 4);
}

}  // namespace
}  // namespace penstock
