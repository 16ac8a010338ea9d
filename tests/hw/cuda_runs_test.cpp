// SPDX-License-Identifier: Apache-2.0
// Whole runs on a GPU, which end with the weights of a sequential run.
#include "hw/stages.hpp"
#include "tests/hw/cuda_rig.hpp"

#include <fmt/format.h>

namespace penstock::cuda_test {
namespace {

RunOptions on_gpu(const char* link = "d2d") {
  RunOptions options = unpaced();
  options.backend = "cuda";
  options.settings.link = link;
  return options;
}

/// Runs the plan: every op of every device is there, and the weights are those of its reference.
void expect_right(const RunPlan& plan, const RunOptions& options) {
  const RecordedRun run = run_alone(plan, options);
  ASSERT_TRUE(run.complete) << run.stopped_because;
  EXPECT_EQ(run.weights_equal, true);
  const DependencyTable table(plan.program.ops, plan.program.placement,
                              plan.program.microbatches());
  EXPECT_TRUE(to_timeline(plan.program.ops, table, run).missing.empty());
}

/// All of these; with a sanitizer some, that differ most.
std::vector<std::string> schedules_to_run() {
  if (!kBrief) return executed_schedules();
  return {"gpipe", "pipedream", "pipedream-2bw", "interleaved-zb", "dualpipe", "chimera"};
}

TEST_F(Gpu, EveryScheduleEndsWithTheWeightsOfASequentialRun) {
  for (const std::string& name : schedules_to_run()) {
    SCOPED_TRACE(name);
    expect_right(plan_of({name, shape_of(name, 4, 7, 2)}), on_gpu());
  }
}

TEST_F(Gpu, NoLinkAndNoTransferSemanticsChangesTheWeights) {
  std::size_t number = 0;
  for (const char* name : {"1f1b", "dualpipe", "pipedream-2bw", "interleaved-1f1b", "zb-h1"}) {
    if (kBrief && name == std::string("pipedream-2bw")) break;
    for (const char* link : {"d2d", "pinned", "paced"}) {
      for (const Transfers transfers :
           {Transfers::overlapped, Transfers::free, Transfers::coupled, Transfers::blocking}) {
        RigSpec spec{name, shape_of(name, 4, 8, 2)};
        spec.transfers = transfers;
        spec.link = {.latency_s = 1e-5, .bytes_per_s = 1e9};
        if (!coupled_fits(spec) || is_left_out(number++)) continue;
        SCOPED_TRACE(std::string(name) + " " + link + " " + std::string(to_string(transfers)));
        expect_right(plan_of(spec), on_gpu(link));
      }
    }
  }
}

TEST_F(Gpu, TransformersEndWithTheWeightsOfASequentialRunInBothPrecisions) {
  std::size_t number = 0;
  for (const std::string& name : schedules_to_run()) {
    if (is_left_out(number++)) continue;
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const bool flash : {false, true}) {
        SCOPED_TRACE(name + (precision == Precision::bf16 ? " in bf16" : "") +
                     (flash ? " with flash attention" : ""));
        RunPlan plan = plan_of({name, shape_of(name, 2, 3, 2)});
        make_transformer(plan, in_turn(plan, {Recompute::full, Recompute::none}));
        plan.model.flash_attention = flash;
        RunOptions options = on_gpu();
        options.settings.precision = precision;
        expect_right(plan, options);
      }
    }
  }
}

TEST_F(Gpu, OptimizersOfMatricesEndWithTheWeightsOfASequentialRunInBothPrecisions) {
  for (const auto kind : {OptimizerSpec::Kind::muon, OptimizerSpec::Kind::basis_rotation}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      SCOPED_TRACE(fmt::format("{}{}", kOptimizerNames[static_cast<int>(kind)],
                               precision == Precision::bf16 ? " in bf16" : ""));
      RunPlan plan = plan_of({"pipedream-2bw", shape_of("pipedream-2bw", 2, 2, 12)});
      make_transformer(plan, Recompute::none);
      plan.optimizer.kind = kind;
      RunOptions options = on_gpu();
      options.settings.precision = precision;
      expect_right(plan, options);
    }
  }
}

TEST_F(Gpu, MoreStreamsThanHardwareQueuesDoNotHoldEachOtherUp) {
  std::size_t number = 0;
  for (const char* name : {"1f1b", "chimera", "dualpipe", "interleaved-1f1b"}) {
    if (is_left_out(number++)) continue;
    SCOPED_TRACE(name);
    expect_right(plan_of({name, shape_of(name, 8, 16, 2)}), on_gpu("pinned"));
  }
}

TEST_F(Gpu, AWrongWeightVersionIsNoticedThere) {
  const RunPlan plan = plan_of({"1f1b", {3, 4, 3, false, 0}});
  RunPlan wrong = plan;
  wrong.program.versions.kind = VersionRule::Kind::double_buffer;
  RunOptions options = on_gpu();
  options.reference = &plan;
  EXPECT_EQ(run_alone(wrong, options).weights_equal, false);
}

TEST_F(Gpu, APacedRunTakesAtLeastItsPredictedTime) {
  RigSpec spec{"1f1b", {4, 8, 2}};
  spec.costs.assign(4, unit_costs(1e-3, 2e-3));
  spec.link = {.latency_s = 1e-4, .bytes_per_s = 1e12};
  RunOptions options = on_gpu("paced");
  options.settings.pace = true;
  const Rig rig(spec);
  const RecordedRun run = run_alone(plan_of(spec), options);
  ASSERT_TRUE(run.complete) << run.stopped_because;
  const auto timeline = to_timeline(rig.program.ops, rig.table, run).timeline;
  EXPECT_GE(timeline.makespan_s, simulate_exact(rig.input()).makespan_s - 1e-4);
}

}  // namespace
}  // namespace penstock::cuda_test
