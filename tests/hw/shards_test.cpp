// SPDX-License-Identifier: Apache-2.0
// Replicas that divide weights, gradients and states, on the host: they end with the weights of a
// sequential run, exchange what is predicted, and hold their part and no more.
#include "hw/reference.hpp"
#include "models/stage_costs.hpp"
#include "tests/hw/wrong_stage.hpp"

#include <gtest/gtest.h>

namespace penstock::shards_test {
namespace {

constexpr Sharding sharding(Sharded what, Gathering gathering, int replicas) {
  return {what, replicas, replicas, gathering};
}
const std::vector<std::pair<Sharded, Gathering>> kAll{
    {Sharded::optimizer, Gathering::first_forward}, {Sharded::gradients, Gathering::after_step},
    {Sharded::gradients, Gathering::first_forward}, {Sharded::weights, Gathering::first_forward},
    {Sharded::weights, Gathering::forward},         {Sharded::weights, Gathering::each_pass}};

/// A plan whose replicas divide what they have alike.
RunPlan divided(const char* name, std::uint32_t stages, int replicas, const Sharding& sharding,
                std::uint32_t m = 2, std::uint32_t batches = 3) {
  RigSpec spec{name, shape_of(name, stages, m, batches)};
  spec.shape.replicas = replicas;
  RunPlan plan = plan_of(spec);
  if (sharding.gathers_in_first_forward()) {
    const OpLists order = compute_order(plan.program);
    plan.program.gathers = true;
    plan.program.ops = {};
    plan.program = lower(std::move(plan.program), order);
  }
  plan.sharding = sharding;
  return plan;
}

TEST(DividedStages, EndWithTheWeightsOfASequentialRun) {
  std::size_t number = 0;
  for (const char* name : {"data-parallel", "1f1b", "gpipe", "zb-h1"}) {
    for (const auto& [what, gathering] : kAll) {
      for (const int replicas : {2, 3, 4}) {
        if (is_left_out(number++, 3)) continue;
        RunPlan plan = divided(name, 2, replicas, sharding(what, gathering, replicas));
        make_transformer(plan, Recompute::full, 2);
        ASSERT_EQ(why_not_executable(plan), std::vector<std::string>());
        const RecordedRun run = run_alone(plan, unpaced());
        ASSERT_TRUE(run.complete) << run.stopped_because;
        EXPECT_EQ(run.weights_equal, true)
            << name << " " << replicas << kShardedNames[static_cast<std::size_t>(what)]
            << static_cast<int>(gathering);
        EXPECT_EQ(run.weights_moved, true);
      }
    }
  }
}

TEST(DividedStages, OfEveryOptimizerEndWithTheWeightsOfASequentialRun) {
  for (const auto kind :
       {OptimizerSpec::Kind::sgd, OptimizerSpec::Kind::momentum, OptimizerSpec::Kind::nesterov,
        OptimizerSpec::Kind::adam, OptimizerSpec::Kind::nadamw}) {
    RunPlan plan =
        divided("data-parallel", 1, 3, sharding(Sharded::weights, Gathering::each_pass, 3));
    make_transformer(plan, Recompute::none, 3);
    plan.optimizer.kind = kind;
    EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true);
  }
}

/// Where rings go over nodes, or nodes reduce first, a replica owns several ranges of a unit.
TEST(DividedStages, OfSeveralNodesReduceByEveryAlgorithm) {
  std::size_t number = 0;
  for (const auto algorithm :
       {ReductionAlgorithm::ring, ReductionAlgorithm::hierarchical, ReductionAlgorithm::tree,
        ReductionAlgorithm::server, ReductionAlgorithm::all_to_all}) {
    for (const auto& [what, gathering] : kAll) {
      if (is_left_out(number++)) continue;
      RunPlan plan = divided("data-parallel", 1, 4, sharding(what, gathering, 4));
      make_transformer(plan, Recompute::none, 2);
      plan.reduction.algorithm = algorithm;
      plan.reduction.nodes = {0, 0, 1, 1};
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << static_cast<int>(algorithm);
      divide_reduction(plan, 3);
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << "in buckets";
    }
  }
}

TEST(DividedStages, ThatLoseAGradientAreNoticed) {
  for (const auto& [what, gathering] : kAll) {
    const RunPlan plan = divided("1f1b", 2, 2, sharding(what, gathering, 2));
    RunOptions options = unpaced();
    options.make_stage = wrong_at(1, losing([](std::uint32_t k) { return k == 3; }));
    EXPECT_EQ(run_alone(plan, options).weights_equal, false);
  }
}

/// Ops last as long as their recipes say, whatever is exchanged inside of them and for how long.
TEST(DividedStages, OnAVirtualClockTakeTheTimesThatAreStated) {
  for (const char* name : {"data-parallel", "1f1b", "zb-h1"}) {
    RigSpec spec{name, shape_of(name, 2, 3, 2)};
    spec.shape.replicas = 2;
    spec.link = {.latency_s = 0.17, .bytes_per_s = 3000};
    spec.costs.assign(spec.shape.depth, unit_costs());
    RigSpec longer = spec;
    RunPlan plan = plan_of(spec);
    plan.sharding = sharding(Sharded::weights, Gathering::each_pass, 2);
    for (StageCosts& c : longer.costs) {
      c[OpKind::forward].seconds += 0.25;
      c[OpKind::backward].seconds += 0.5;
      c[OpKind::backward_input].seconds += 0.125;
      c[OpKind::backward_weight].seconds += 0.375;
    }
    for (int d = 0; d < plan.program.placement.devices(); ++d)
      plan.exchange_s.push_back({.device = d,
                                 .stage = plan.program.placement.position_of(d),
                                 .forward = 0.25,
                                 .backward = 0.5,
                                 .backward_input = 0.125,
                                 .backward_weight = 0.375});
    const Rig rig(longer);
    const Timeline simulated = simulate_exact(rig.input());
    const RecordedRun run = run_alone(plan, virtual_clock());
    EXPECT_EQ(run.weights_equal, true);
    const RecordedTimeline executed = to_timeline(rig.program.ops, rig.table, run);
    ASSERT_TRUE(executed.missing.empty());
    for (std::uint32_t g = 0; g < rig.program.ops.size(); ++g) {
      EXPECT_EQ(executed.timeline.op(g).start_s, simulated.op(g).start_s) << name;
      EXPECT_EQ(executed.timeline.op(g).end_s, simulated.op(g).end_s) << name;
    }
  }
}

/// Elements that are exchanged in an op of the first replica.
std::int64_t exchanged(const RecordedRun& run, const Op& op, Collective what) {
  std::int64_t bytes = 0;
  for (const RecordedOp& r : run.ops) {
    if (r.op.kind != op.kind || r.op.stage != op.stage || r.op.microbatch != op.microbatch)
      continue;
    for (const RecordedExchange& x : r.exchanges) bytes += x.what == what ? x.bytes : 0;
  }
  return bytes / 4;
}

TEST(DividedStages, ExchangeWhatIsPredicted) {
  constexpr std::int64_t h = 16, f = 32, v = 40, s = 8, layers = 3;
  constexpr std::int64_t embedding = (v + s) * h, head = v * h + 2 * h,
                         layer = 4 * h * h + 2 * h * f + 9 * h + f;
  constexpr std::int64_t all = embedding + head + layers * layer;
  for (const auto& [what, gathering] : kAll) {
    RunPlan plan = divided("data-parallel", 1, 4, sharding(what, gathering, 4));
    make_transformer(plan, Recompute::none, layers);
    const RecordedRun run = run_alone(plan, unpaced());
    const auto gathered = [&](std::uint32_t k, OpKind kind) {
      return exchanged(run, {.microbatch = k, .kind = kind}, Collective::all_gather);
    };
    // The second microbatch of a replica of four is number 4.
    EXPECT_EQ(gathered(0, OpKind::forward), all);
    EXPECT_EQ(gathered(4, OpKind::forward), gathering >= Gathering::forward ? all : 0);
    EXPECT_EQ(gathered(4, OpKind::backward), gathering == Gathering::each_pass ? all - head : 0);
    EXPECT_EQ(
        exchanged(run, {.microbatch = 4, .kind = OpKind::backward}, Collective::reduce_scatter),
        plan.sharding.reduces_each_backward() ? all : 0);
  }
}

TEST(DividedStages, HoldTheirPartAndNoMore) {
  const auto peak = [](Sharded what, Gathering gathering, Owner owner) {
    RunPlan plan = divided("data-parallel", 1, 4, sharding(what, gathering, 4));
    make_transformer(plan, Recompute::none, 4);
    const auto use = run_alone(plan, virtual_clock()).devices.at(0).peak.bytes;
    return use[static_cast<std::size_t>(owner)];
  };
  const auto whole = [&](Owner owner) { return peak(Sharded::none, Gathering::after_step, owner); };
  const auto weights = [&](Owner owner) {
    return peak(Sharded::weights, Gathering::each_pass, owner);
  };
  for (const Owner owner : {Owner::weights, Owner::gradients, Owner::optimizer}) {
    EXPECT_EQ(weights(owner), whole(owner) / 4);
    const bool divided = owner == Owner::gradients || owner == Owner::optimizer;
    EXPECT_EQ(peak(Sharded::gradients, Gathering::after_step, owner),
              whole(owner) / (divided ? 4 : 1));
    EXPECT_EQ(peak(Sharded::optimizer, Gathering::first_forward, owner),
              whole(owner) / (owner == Owner::optimizer ? 4 : 1));
  }
  // Two layers of weights, and two of gradients, are whole in a backward.
  constexpr std::int64_t layer = 4 * 16 * 16 + 2 * 16 * 32 + 9 * 16 + 32;
  EXPECT_EQ(weights(Owner::workspace), whole(Owner::workspace) + 4 * (2 * layer + 2 * layer));
}

}  // namespace
}  // namespace penstock::shards_test
