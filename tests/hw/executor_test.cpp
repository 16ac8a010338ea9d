// SPDX-License-Identifier: Apache-2.0
// The executor on the host: it computes what its schedule promises, bit for bit, and on a virtual
// clock its times are the simulator's.
#include "tests/hw/plan_rig.hpp"
#include "tests/hw/wrong_stage.hpp"

#include "hw/accounting.hpp"
#include "hw/math.hpp"
#include "hw/parameter_server.hpp"
#include "hw/stages.hpp"
#include "tests/parameter_name.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <random>
#include <thread>

namespace penstock::executor_test {
namespace {

// --- the same weights as a sequential run
// ---------------------------------------------------------

class EverySchedule : public testing::TestWithParam<std::string> {};
class FlushingSchedule : public EverySchedule {};

TEST_P(EverySchedule, StandInWeightsEqualTheSequentialRunFromOneToEightStages) {
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (const std::uint32_t m : {p, p + 3}) {
      const ScheduleShape shape = shape_of(GetParam(), p, m, 3);
      const RecordedRun run = run_alone(plan_of({GetParam(), shape}), unpaced());
      ASSERT_TRUE(run.complete) << run.stopped_because;
      EXPECT_TRUE(run.weights_equal.value_or(false)) << "p " << p << " m " << m;
    }
  }
}

TEST_P(EverySchedule, TransformerWeightsEqualTheSequentialRunWithAndWithoutRecomputation) {
  for (const std::uint32_t p : {1U, 2U, 4U, 8U}) {
    RunPlan plan = plan_of({GetParam(), shape_of(GetParam(), p, p, 3)});
    const PerStage<Recomputation> all =
        in_turn(plan, {Recompute::full, Recompute::none, Recompute::selective});
    for (const auto& [recompute, flash] :
         std::initializer_list<std::pair<PerStage<Recomputation>, bool>>{
             {Recompute::none, false}, {Recompute::full, false}, {all, false}, {all, true}}) {
      make_transformer(plan, recompute);
      plan.model.flash_attention = flash;
      const RecordedRun run = run_alone(plan, unpaced());
      ASSERT_TRUE(run.complete) << run.stopped_because;
      EXPECT_TRUE(run.weights_equal.value_or(false))
          << "p " << p << " " << recompute_text(recompute) << (flash ? ", flash attention" : "");
    }
  }
}

TEST_P(EverySchedule, TransferSemanticsDoNotChangeTheWeights) {
  for (const Transfers transfers : {Transfers::free, Transfers::coupled, Transfers::blocking}) {
    RigSpec spec{GetParam(), shape_of(GetParam(), 4, 6, 3)};
    spec.transfers = transfers;
    if (!coupled_fits(spec)) continue;
    const RecordedRun run = run_alone(plan_of(spec), unpaced());
    ASSERT_TRUE(run.complete) << run.stopped_because;
    EXPECT_TRUE(run.weights_equal.value_or(false)) << to_string(transfers);
  }
}

// --- the check can fail
// ---------------------------------------------------------------------------

TEST(WeightCheck, NoticesALostGradient) {
  const RunPlan plan = plan_of({"1f1b", {3, 4, 3, false, 0}});
  RunOptions options = unpaced();
  options.make_stage = wrong_at(1, losing([](std::uint32_t k) { return k == 5; }));
  EXPECT_EQ(run_alone(plan, options).weights_equal, false);
}

/// Swaps microbatches 1 and 2 where a stage makes its input or its targets from their number.
class SwappingStage : public WrongStage {
 public:
  explicit SwappingStage(std::unique_ptr<Stage> right)
      : WrongStage(std::move(right),
                   [](Stage&, Math&, const StageBuffers&, std::uint32_t) { return false; }) {}
  void forward(Math& m, const StageBuffers& b, std::uint32_t k) const override {
    WrongStage::forward(m, b, k == 1 ? 2 : k == 2 ? 1 : k);
  }
};

TEST(WeightCheck, NoticesSwappedMicrobatches) {
  const RunPlan plan = plan_of({"1f1b", {3, 4, 3, false, 0}});
  RunOptions options = unpaced();
  options.make_stage =
      wrong_at(0, [](auto right) { return std::make_unique<SwappingStage>(std::move(right)); });
  EXPECT_EQ(run_alone(plan, options).weights_equal, false);
}

TEST(WeightCheck, NoticesAWrongWeightVersion) {
  // A flush that uses 2BW's versions: each one update too old.
  const RunPlan right = plan_of({"1f1b", {3, 4, 4, false, 0}});
  RunPlan wrong = right;
  wrong.program.versions.kind = VersionRule::Kind::double_buffer;
  RunOptions options = unpaced();
  options.reference = &right;
  EXPECT_EQ(run_alone(right, options).weights_equal, true);
  EXPECT_EQ(run_alone(wrong, options).weights_equal, false);
}

TEST(WeightCheck, SaysWhetherTheWeightsMoved) {
  RunPlan plan = plan_of({"1f1b", {3, 4, 2}});
  EXPECT_EQ(run_alone(plan, unpaced()).weights_moved, true);
  for (const auto kind : {OptimizerSpec::Kind::sgd, OptimizerSpec::Kind::momentum,
                          OptimizerSpec::Kind::adam, OptimizerSpec::Kind::adamw}) {
    plan.optimizer.kind = kind;
    plan.optimizer.learning_rate = 1e-12;
    EXPECT_EQ(run_alone(plan, unpaced()).weights_moved, false);
  }
}

// --- forward and backward on different weights
// ----------------------------------------------------

RigSpec pipemare(bool corrected, std::uint32_t p, std::uint32_t m, std::uint32_t batches) {
  RigSpec spec{"pipemare", {p, m, batches}};
  spec.shape.correction = corrected;
  return spec;
}

TEST(PipeMare, WeightsEqualTheSequentialRunWithAndWithoutCorrection) {
  for (const std::uint32_t p : {1U, 2U, 5U, 8U}) {
    for (const std::uint32_t m : {1U, 3U}) {
      for (const bool corrected : {false, true}) {
        RunPlan plan = plan_of(pipemare(corrected, p, m, 8));
        EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << p << " " << m;
        make_transformer(plan, Recompute::full);
        EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << p << " " << m;
      }
    }
  }
}

TEST(PipeMare, CorrectionChangesTheWeights) {
  const RunPlan plain = plan_of(pipemare(false, 4, 2, 8));
  RunOptions options = unpaced();
  options.reference = &plain;
  EXPECT_EQ(run_alone(plan_of(pipemare(true, 4, 2, 8)), options).weights_equal, false);
}

TEST(Timeprest, EachOfTheFamilyEndsWithItsOwnWeights) {
  const std::string names[] = {"timeprest", "v-timeprest", "i-timeprest"};
  for (const std::string& name : names) {
    for (const std::string& other : names) {
      const RunPlan reference = plan_of({other, {4, 3, 6}});
      RunOptions options = unpaced();
      options.reference = &reference;
      EXPECT_EQ(run_alone(plan_of({name, {4, 3, 6}}), options).weights_equal, name == other)
          << name << " " << other;
    }
  }
}

TEST(Timeprest, ALostGradientInTheMiddleOfAMinibatchIsNoticed) {
  RunOptions options = unpaced();
  options.make_stage = wrong_at(1, losing([](std::uint32_t k) { return k == 4; }));
  EXPECT_EQ(run_alone(plan_of({"timeprest", {3, 3, 3}}), options).weights_equal, false);
}

// --- the virtual clock
// ----------------------------------------------------------------------------

/// Costs without two alike, so that every order of sums matters.
std::vector<StageCosts> ragged_costs(std::uint32_t stages, std::uint32_t seed) {
  std::mt19937 random(seed), more(seed + 1);
  std::uniform_real_distribution<double> time(0.5, 2);
  std::vector<StageCosts> costs;
  for (std::uint32_t s = 0; s < stages; ++s) {
    StageCosts c = unit_costs(time(random), 2 * time(random));
    c.step_s = 0.3 * time(random);
    c.reduce_grad_s = 0.4 * time(more);
    c.overlap_saving_s = 0.2 * time(more);
    const double again_s = 0.1 * time(more);
    c.output_bytes = 1000 + static_cast<std::int64_t>(1000 * time(random));
    c.activation_bytes = 5000 + 10 * s;
    c.activation_after_input_bytes = 2000;
    c.weight_bytes = c.version_bytes = 700;
    c.gradient_bytes = 350;
    c.optimizer_bytes = 1400;
    c.forward_workspace_bytes = 111;
    c.backward_workspace_bytes = 222;
    PassCosts stored = c;
    for (const OpKind kind : {OpKind::backward, OpKind::backward_input})
      stored[kind].seconds -= again_s;
    stored.activation_bytes = 9000 + 10 * s;
    stored.backward_workspace_bytes = 33;
    c.stored = stored;
    costs.push_back(c);
  }
  return costs;
}

bool is_update(OpKind kind) { return kind == OpKind::step || kind == OpKind::reduce_grad; }

void expect_simulated_times(const RigSpec& spec) {
  const Rig rig(spec);
  const Timeline simulated = simulate_exact(rig.input());
  const RecordedRun run = run_alone(plan_of(spec), virtual_clock());
  ASSERT_TRUE(run.complete) << run.stopped_because;
  const RecordedTimeline executed = to_timeline(rig.program.ops, rig.table, run);
  ASSERT_TRUE(executed.missing.empty());
  EXPECT_EQ(executed.timeline.makespan_s, simulated.makespan_s);
  int different = 0;
  for (std::uint32_t g = 0; g < rig.program.ops.size(); ++g) {
    different += executed.timeline.op(g).start_s != simulated.op(g).start_s;
    different += executed.timeline.op(g).end_s != simulated.op(g).end_s;
    const Op& op = rig.program.ops[g];
    if (!op.has(Op::receives) && !is_update(op.kind)) continue;
    different += executed.timeline.message(g).start_s != simulated.message(g).start_s;
    different += executed.timeline.message(g).end_s != simulated.message(g).end_s;
  }
  EXPECT_EQ(different, 0) << spec.schedule << " p " << spec.shape.depth << " m "
                          << spec.shape.microbatches_per_update << " " << to_string(spec.transfers);
}

TEST_P(EverySchedule, OnAVirtualClockEveryTimeIsTheSimulatorsUpToSixteenStages) {
  for (const std::uint32_t p : {1U, 2U, 3U, 5U, 8U, 16U}) {
    if (kBrief && p > 5) break;  // threads of a small pipeline race as those of a large one do
    for (const std::uint32_t m : {p, 2 * p + 1, 40U}) {
      RigSpec spec{GetParam(), shape_of(GetParam(), p, m, m == 40 ? 1 : 2)};
      spec.costs = ragged_costs(spec.shape.stages(), p * 100 + m);
      spec.link = {.latency_s = 0.17, .bytes_per_s = 3000};
      expect_simulated_times(spec);
    }
  }
}

TEST_P(FlushingSchedule, OnAVirtualClockPartialNormsTravelAsInTheSimulator) {
  for (const Transfers transfers :
       {Transfers::overlapped, Transfers::free, Transfers::coupled, Transfers::blocking}) {
    const std::uint32_t p = transfers == Transfers::overlapped ? 6 : 4;
    RigSpec spec{GetParam(), shape_of(GetParam(), p, p + 3, 2)};
    spec.transfers = transfers;
    spec.step_sync = StepSync::post_validation;
    if (!coupled_fits(spec)) continue;
    spec.costs = ragged_costs(spec.shape.stages(), p);
    spec.link = {.latency_s = 0.17, .bytes_per_s = 900};
    expect_simulated_times(spec);
  }
}

TEST_P(FlushingSchedule, PartialNormsChangeNoWeights) {
  RigSpec spec{GetParam(), shape_of(GetParam(), 4, 8, 3)};
  spec.step_sync = StepSync::post_validation;
  EXPECT_EQ(run_alone(plan_of(spec), unpaced()).weights_equal, true);
}

TEST_P(EverySchedule, OnAVirtualClockEveryTransferSemanticsIsTheSimulators) {
  for (const Transfers transfers : {Transfers::free, Transfers::coupled, Transfers::blocking}) {
    for (const std::uint32_t p : {2U, 4U, 7U}) {
      RigSpec spec{GetParam(), shape_of(GetParam(), p, p + 3, 2)};
      spec.transfers = transfers;
      if (!coupled_fits(spec)) continue;
      spec.costs = ragged_costs(spec.shape.stages(), p);
      spec.link = {.latency_s = 0.17, .bytes_per_s = 900};
      expect_simulated_times(spec);
    }
  }
}

/// Reductions of every kind: whole, in parts beside the last backward, beside the next batch.
TEST(Replicas, OnAVirtualClockEveryTimeIsTheSimulators) {
  std::size_t jobs = 0;
  for (const std::string& name : executed_schedules()) {
    const Schedule& schedule = *find_schedule(name);
    if (schedule.asynchronous) continue;
    for (const Transfers transfers :
         {Transfers::overlapped, Transfers::free, Transfers::coupled, Transfers::blocking}) {
      for (const std::vector<int>& widths : {std::vector<int>{2}, {3}, {2, 1, 1}, {1, 3, 2}}) {
        for (const bool parts : {false, true}) {
          RigSpec spec{name, shape_of(name, 3, 4, 3)};
          // Devices with several stages have as many replicas each.
          const bool several = spec.shape.chunks > 1 || schedule.layout == Layout::mirrored;
          if (several && widths.size() > 1) continue;
          spec.transfers = transfers;
          if (widths.size() == 1)
            spec.shape.replicas = widths[0];
          else if (spec.shape.depth == widths.size())
            spec.shape.replicas = PerStage<int>(widths);
          if (!schedule.refuse(spec.shape).empty() || !coupled_fits(spec)) continue;
          if (is_left_out(jobs++, 7)) continue;
          spec.costs = ragged_costs(spec.shape.stages(), 7);
          spec.link = {.latency_s = 0.17, .bytes_per_s = 3000};
          if (parts) divide_reduction(spec);
          expect_simulated_times(spec);
          if (parts || schedule.update != UpdateRule::double_buffer) continue;
          spec.detached = true;
          expect_simulated_times(spec);
        }
      }
    }
  }
}

void expect_simulated_peaks(RigSpec spec) {
  const std::uint32_t depth = spec.shape.depth;
  spec.costs = ragged_costs(spec.shape.stages(), 9);
  spec.link = {.latency_s = 0.17, .bytes_per_s = 3000};
  const Rig rig(spec);
  const Timeline simulated = simulate_exact(rig.input());
  std::vector<std::uint32_t> more;
  const VersionRule& rule = rig.program.versions;
  for (std::uint32_t s = 0; s < spec.shape.stages(); ++s)
    more.push_back(rule.held(s) - 1 + rule.extra_copies);
  const RecordedRun run = run_alone(plan_of(spec), virtual_clock());
  ASSERT_EQ(run.devices.size(), depth) << run.stopped_because;
  for (int d = 0; d < static_cast<int>(depth); ++d) {
    const MemoryPeak peak =
        memory_over_time({rig.program.ops, rig.table, simulated, rig.costs, more}, d);
    EXPECT_EQ(run.devices[static_cast<std::size_t>(d)].peak.bytes, peak.use.bytes)
        << "device " << d << " of " << depth << ", " << spec.schedule;
  }
}

TEST_P(EverySchedule, OnAVirtualClockThePeaksOfMemoryAreTheSimulators) {
  expect_simulated_peaks({GetParam(), shape_of(GetParam(), 4, 8, 3)});
}

TEST(RecomputeByStage, EveryStageHoldsWhatItDoesWhereAllRecomputeLikeIt) {
  RunPlan plan = plan_of({"1f1b", {.depth = 4, .microbatches_per_update = 6, .batches = 2}});
  const auto peaks_with = [&](const PerStage<Recomputation>& recompute) {
    make_transformer(plan, recompute, 2);
    const RecordedRun run = run_alone(plan, virtual_clock());
    EXPECT_EQ(run.weights_equal, true) << recompute_text(recompute);
    return run.devices;
  };
  const auto mixed = in_turn(plan, {Recompute::full, Recompute::none, Recompute::selective});
  const auto devices = peaks_with(mixed);
  ASSERT_EQ(devices.size(), 4U);
  std::vector<std::int64_t> none;
  for (const auto& device : peaks_with(Recompute::none))
    none.push_back(device.peak[Owner::activations]);
  for (std::size_t s = 0; s < 4; ++s) {
    const auto alike = peaks_with(mixed.at(s));
    EXPECT_EQ(devices[s].peak.bytes, alike[s].peak.bytes) << s;
    EXPECT_EQ(devices[s].peak[Owner::activations] < none[s], s != 1) << s;
  }
}

TEST(RecomputeByLayer, TheLedgerHoldsLessWithEveryLayerThatIsMadeAgain) {
  RunPlan plan = plan_of({"zb-h1", {.depth = 2, .microbatches_per_update = 6, .batches = 2}});
  const auto activations = [&](const Recomputation& recompute) {
    make_transformer(plan, recompute, 4);
    const RecordedRun run = run_alone(plan, virtual_clock());
    EXPECT_EQ(run.weights_equal, true) << to_string(recompute);
    return run.devices[0].peak[Owner::activations];
  };
  std::vector<std::int64_t> held;
  for (int n = 0; n <= 4; ++n) held.push_back(activations(Recomputation::block(n)));
  EXPECT_EQ(held.front(), activations(Recompute::none));
  EXPECT_EQ(held.back(), activations(Recompute::full));
  EXPECT_TRUE(std::ranges::is_sorted(held, std::greater<>()));
  for (std::size_t n = 1; n < held.size(); ++n) EXPECT_LT(held[n], held[n - 1]) << n;
  EXPECT_EQ(activations(Recomputation::block(9)), held.back());
  EXPECT_LT(activations(Recomputation::uniform(2)), held.back());
}

/// What the ledger writes for each stage, as costs to predict from.
std::vector<StageCosts> accounted_costs(const RunPlan& plan, bool splits_backward) {
  std::vector<StageCosts> costs = plan.costs;
  for (std::uint32_t s = 0; s < costs.size(); ++s) {
    const auto stage = make_stage(plan, s, 4);
    const StageHoldings a = accounted_bytes(plan, s, stage->sizes(), 4);
    StageCosts& c = costs[s];
    c.weight_bytes = c.version_bytes = a.weights;
    c.gradient_bytes = a.gradients;
    c.optimizer_bytes = a.optimizer;
    const auto kept = [&](OpKind from, OpPoint at, OpKind until) {
      return a.between(Owner::activations, {from, at}, {until, OpPoint::end});
    };
    const auto works = [&](OpKind kind) {
      return a.between(Owner::workspace, {kind, OpPoint::start}, {kind, OpPoint::end});
    };
    const std::int64_t until_weight =
        kept(OpKind::forward, OpPoint::start, OpKind::backward_weight);
    c.activation_bytes =
        kept(OpKind::forward, OpPoint::start, OpKind::backward_input) + until_weight;
    c.activation_after_input_bytes =
        until_weight + kept(OpKind::backward_input, OpPoint::end, OpKind::backward_weight);
    c.forward_workspace_bytes = works(OpKind::forward);
    c.backward_workspace_bytes = works(splits_backward ? OpKind::backward_input : OpKind::backward);
    c.output_bytes = a.between(Owner::buffers, {OpKind::forward, OpPoint::end},
                               {OpKind::forward, OpPoint::arrival});
  }
  return costs;
}

TEST(RecomputeByStage, PeaksOfMemoryOfARealModelAreThoseOfTheSimulator) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    RigSpec spec{schedule, {.depth = 4, .microbatches_per_update = 6, .batches = 2}};
    spec.link = {.latency_s = 0.17, .bytes_per_s = 3e6};
    RunPlan plan = plan_of(spec);
    make_transformer(plan, in_turn(plan, {Recompute::full, Recompute::none, Recompute::selective}),
                     2);
    spec.costs = plan.costs = accounted_costs(plan, find_schedule(schedule)->splits_backward);
    const Rig rig(spec);
    const Timeline simulated = simulate_exact(rig.input());
    const RecordedRun run = run_alone(plan, virtual_clock());
    EXPECT_EQ(run.weights_equal, true);
    EXPECT_EQ(to_timeline(rig.program.ops, rig.table, run).timeline.makespan_s,
              simulated.makespan_s);
    ASSERT_EQ(run.devices.size(), 4U) << run.stopped_because;
    for (int d = 0; d < 4; ++d) {
      const MemoryPeak peak = memory_over_time(
          {rig.program.ops, rig.table, simulated, rig.costs, std::vector<std::uint32_t>(4, 0)}, d);
      EXPECT_EQ(run.devices[static_cast<std::size_t>(d)].peak.bytes, peak.use.bytes)
          << schedule << " " << d;
    }
  }
}

TEST(Torchgpipe, EveryCheckpointModeEndsWithTheSameWeights) {
  std::vector<std::int64_t> peaks;
  for (const Checkpoint mode : {Checkpoint::always, Checkpoint::except_last, Checkpoint::never}) {
    RigSpec spec{"torchgpipe", {3, 4, 2}};
    spec.shape.checkpoint = mode;
    RunPlan plan = plan_of(spec);
    make_transformer(plan, Recompute::full);
    const RecordedRun run = run_alone(plan, virtual_clock());
    EXPECT_EQ(run.weights_equal, true);
    ASSERT_EQ(run.devices.size(), 3U);
    peaks.push_back(run.devices[0].peak[Owner::activations]);
  }
  // Between them the peak is at another moment, after the last microbatch's backward.
  EXPECT_LT(peaks[0], peaks[2]);
}

TEST(Torchgpipe, OnAVirtualClockEveryCheckpointModeIsTheSimulators) {
  for (const Checkpoint mode : {Checkpoint::always, Checkpoint::except_last, Checkpoint::never}) {
    RigSpec spec{"torchgpipe", {4, 6, 2}};
    spec.shape.checkpoint = mode;
    spec.costs = ragged_costs(4, 5);
    expect_simulated_times(spec);
    expect_simulated_peaks(spec);
  }
}

TEST(PipeMare, CorrectionTakesTheTimesAndTheMemoryThatAreSimulated) {
  RigSpec spec = pipemare(true, 4, 2, 6);
  spec.costs = ragged_costs(4, 3);
  expect_simulated_times(spec);
  expect_simulated_peaks(spec);
}

TEST(Timeprest, HoldsTheVersionsThatItsOrderSaysWhateverTheShape) {
  std::size_t number = 0;
  for (const char* name : {"timeprest", "v-timeprest", "i-timeprest"}) {
    for (const std::uint32_t p : {1U, 2U, 3U, 6U, 8U}) {
      for (const std::uint32_t n : {1U, 2U, 3U, 5U, 9U}) {
        if (is_left_out(number++)) continue;
        RigSpec spec{name, {p, n, 9}};
        spec.costs.assign(p, unit_costs());
        for (StageCosts& c : spec.costs) c.version_bytes = 1;
        const RunPlan plan = plan_of(spec);
        const RecordedRun run = run_alone(plan, virtual_clock());
        ASSERT_EQ(run.devices.size(), p) << run.stopped_because;
        const VersionRule& rule = plan.program.versions;
        for (std::uint32_t s = 0; s < p; ++s) {
          EXPECT_EQ(run.devices[s].peak[Owner::weight_versions],
                    rule.held(s) - 1 + rule.extra_copies)
              << name << " p " << p << " n " << n << " stage " << s;
        }
      }
    }
  }
}

std::vector<std::string> flushing_names() {
  std::vector<std::string> names = executed_schedules();
  std::erase_if(names, [](const std::string& name) { return !find_schedule(name)->flushes(); });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Host, EverySchedule, testing::ValuesIn(executed_schedules()), ByName());
INSTANTIATE_TEST_SUITE_P(Host, FlushingSchedule, testing::ValuesIn(flushing_names()), ByName());

}  // namespace
}  // namespace penstock::executor_test
