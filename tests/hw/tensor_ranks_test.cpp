// SPDX-License-Identifier: Apache-2.0
// Tensor ranks on the host: all of them together are the model that one rank computes alone, they
// end with the weights of a sequential run, and they exchange what is predicted.
#include "hw/reference.hpp"
#include "hw/transformer_layout.hpp"
#include "models/stage_costs.hpp"
#include "tests/hw/wrong_stage.hpp"
#include "tests/parameter_name.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace penstock::tensor_ranks_test {
namespace {

struct Ranks {
  int tensor;
  bool sequence;
};
constexpr Ranks kRanks[] = {{2, false}, {2, true}, {4, false}, {4, true}};

/// A model whose vocabulary no degree divides.
void divide(RunPlan& plan, const Ranks& ranks, const PerStage<Recomputation>& recompute,
            int layers = 1) {
  make_transformer(plan, recompute, layers);
  plan.model.num_attention_heads = plan.model.num_query_groups = 4;
  plan.model.vocab_size = 41;
  plan.division = {ranks.tensor, ranks.sequence};
}

/// All that are executed but those whose replicas wait for no other, which are refused.
std::vector<std::string> synchronous_schedules() {
  std::vector<std::string> names = executed_schedules();
  std::erase_if(names, [](const std::string& name) { return find_schedule(name)->asynchronous; });
  return names;
}

class EveryTensorRank : public testing::TestWithParam<std::string> {};

TEST_P(EveryTensorRank, EndWithTheWeightsOfASequentialRun) {
  for (const Ranks& ranks : kRanks) {
    if (kBrief && ranks.tensor == 4) continue;
    for (const bool flash : {false, true}) {
      RunPlan plan = plan_of({GetParam(), shape_of(GetParam(), 3, 3, 2)});
      divide(plan, ranks, in_turn(plan, {Recompute::none, Recompute::full, Recompute::selective}));
      ASSERT_EQ(why_not_executable(plan), std::vector<std::string>());
      plan.model.flash_attention = flash;
      const RecordedRun run = run_alone(plan, unpaced());
      ASSERT_TRUE(run.complete) << run.stopped_because;
      EXPECT_EQ(run.weights_equal, true) << ranks.tensor << (ranks.sequence ? "s" : "");
      EXPECT_EQ(run.weights_moved, true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, EveryTensorRank, testing::ValuesIn(synchronous_schedules()),
                         ByName());

/// The weights after two updates, ranks put together: per stage, of each whole parameter in turn.
std::vector<std::vector<float>> trained(const RunPlan& plan) {
  SingleProcess alone;
  RunControl control(0);
  RunPlan bare = plan;
  bare.channels.clear();
  const auto backend = open_host_backend({bare, {}, control, alone, {0}});
  SequentialRun run(plan, backend->device(0), make_stage);
  for (std::uint32_t u = 0; u < run.updates(); ++u) run.run_update(u);
  const std::vector<std::string> parts = run.weights();
  std::vector<std::vector<float>> whole;
  const int ranks = plan.division.tensor;
  for (std::size_t s = 0; s < plan.layers.size(); ++s) {
    auto& stage = whole.emplace_back();
    for (int r = 0; r < ranks; ++r) {
      const TransformerPart part{static_cast<int>(s) * plan.layers[0],
                                 plan.layers[s],
                                 s == 0,
                                 s + 1 == plan.layers.size(),
                                 {ranks, r, plan.division.sequence}};
      const TransformerLayout layout(plan.model, part, plan.microbatch_size, Recompute::none, 4);
      const std::string& bytes =
          parts[s * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(r)];
      std::int64_t before = 0;
      for (const Parameter& p : layout.parameters) {
        const std::int64_t all = p.cut.rows * p.cut.cols;
        stage.resize(
            static_cast<std::size_t>(std::max<std::int64_t>(std::ssize(stage), before + all)));
        for (std::int64_t i = 0; i < p.elements; ++i) {
          float& at = stage[static_cast<std::size_t>(before + p.cut.whole(i))];
          float own = 0;
          std::memcpy(&own, bytes.data() + (p.offset + i) * 4, 4);
          // What several ranks have must be the same on each.
          if (r > 0 && p.elements == all) {
            EXPECT_EQ(at, own) << p.name;
          }
          at = own;
        }
        before += all;
      }
    }
  }
  return whole;
}

/// A plan whose devices are so many replicas that split every microbatch, by position.
RunPlan split(const char* name, const std::vector<int>& replicas, int tensor, std::uint32_t m = 3) {
  RigSpec spec{name, shape_of(name, static_cast<std::uint32_t>(replicas.size()), m, 2)};
  spec.reduces_within = true;
  RunPlan plan = plan_of(spec);
  divide(plan, {tensor, false}, Recompute::none);
  plan.microbatch_size = 4;
  plan.division.replicas = replicas;
  return plan;
}

TEST(SplitReplicas, EndWithTheWeightsOfASequentialRun) {
  const std::vector<std::vector<int>> all{{2, 2}, {2, 1}, {1, 4}, {4, 2, 1}, {1, 2, 4}};
  std::size_t number = 0;
  for (const char* name : {"1f1b", "dapple-pb", "gpipe", "pipedream-2bw", "zb-h1"}) {
    for (const std::vector<int>& replicas : all) {
      for (const int tensor : {1, 2}) {
        if (is_left_out(number++, 3)) continue;
        RunPlan plan = split(name, replicas, tensor);
        ASSERT_TRUE(why_not_executable(plan).empty());
        const RecordedRun run = run_alone(plan, unpaced());
        ASSERT_TRUE(run.complete) << run.stopped_because;
        EXPECT_EQ(run.weights_equal, true) << name << " " << replicas[0] << replicas[1] << tensor;
        if (tensor == 2) continue;
        divide_reduction(plan, 3);
        EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name << ", in buckets";
      }
    }
  }
}

TEST(SplitReplicas, ComputeWhatOneReplicaDoes) {
  for (const std::vector<int>& replicas : {std::vector<int>{2, 2}, {4, 1}, {1, 2}}) {
    RunPlan plan = split("1f1b", replicas, 1);
    plan.optimizer.kind = OptimizerSpec::Kind::sgd;
    plan.optimizer.learning_rate = 0.1;
    const RecordedRun parts = run_alone(plan, unpaced());
    plan.division.replicas.clear();
    const RecordedRun whole = run_alone(plan, unpaced());
    ASSERT_EQ(parts.losses.size(), whole.losses.size());
    for (std::size_t k = 0; k < whole.losses.size(); ++k)
      EXPECT_NEAR(parts.losses[k].loss, whole.losses[k].loss, 1e-5);
    EXPECT_GT(std::abs(whole.losses.back().loss - whole.losses.front().loss), 1e-3);
  }
}

TEST(SplitReplicas, ThatLoseAGradientAreNoticed) {
  const RunPlan plan = split("1f1b", {2, 2}, 1, 4);
  RunOptions options = unpaced();
  const auto lose = wrong_at(1, losing([](std::uint32_t k) { return k == 5; }));
  options.make_stage = [&](const RunPlan& p, std::uint32_t stage, int bytes, bool stored,
                           int place) {
    return place == 1 ? lose(p, stage, bytes, stored, place)
                      : make_stage(p, stage, bytes, stored, place);
  };
  EXPECT_EQ(run_alone(plan, options).weights_equal, false);
}

TEST(SplitReplicas, OnAVirtualClockTakeTheTimesOfTheSimulator) {
  for (const Transfers transfers :
       {Transfers::overlapped, Transfers::free, Transfers::coupled, Transfers::blocking}) {
    RigSpec spec{"1f1b", {3, 4, 2}};
    spec.reduces_within = true;
    spec.transfers = transfers;
    spec.costs.assign(3, unit_costs());
    for (StageCosts& c : spec.costs) c.reduce_grad_s = 0.75;
    spec.link = {.latency_s = 0.17, .bytes_per_s = 3000};
    const Rig rig(spec);
    const Timeline simulated = simulate_exact(rig.input());
    RunPlan plan = plan_of(spec);
    divide(plan, {1, false}, Recompute::none);
    plan.microbatch_size = 4;
    plan.division.replicas = {4, 2, 1};
    const RecordedRun run = run_alone(plan, virtual_clock());
    EXPECT_EQ(run.weights_equal, true);
    const RecordedTimeline executed = to_timeline(rig.program.ops, rig.table, run);
    ASSERT_TRUE(executed.missing.empty());
    for (std::uint32_t g = 0; g < rig.program.ops.size(); ++g) {
      EXPECT_EQ(executed.timeline.op(g).start_s, simulated.op(g).start_s) << to_string(transfers);
      EXPECT_EQ(executed.timeline.op(g).end_s, simulated.op(g).end_s) << to_string(transfers);
    }
  }
}

/// Sums are added in another order, so weights differ in their last places: SGD's steps of a tenth
/// move them by 1e-3 and more, and an error of 1 % of that would be ten times the tolerance.
TEST(TensorRanks, TogetherAreTheModelOfOneRank) {
  constexpr float kTolerance = 1e-6F;
  RunPlan plan = plan_of({"1f1b", {2, 3, 2}});
  for (const PerStage<Recomputation>& recompute :
       {PerStage<Recomputation>(Recompute::none), PerStage<Recomputation>(Recompute::full)}) {
    divide(plan, {1, false}, recompute, 2);
    plan.optimizer.kind = OptimizerSpec::Kind::sgd;
    plan.optimizer.learning_rate = 0.1;
    const auto expected = trained(plan);
    RunPlan untrained = plan;
    untrained.optimizer.learning_rate = 0;
    const auto before = trained(untrained);
    for (const Ranks& ranks : kRanks) {
      divide(plan, ranks, recompute, 2);
      plan.optimizer.kind = OptimizerSpec::Kind::sgd;
      plan.optimizer.learning_rate = 0.1;
      const auto together = trained(plan);
      float moved = 0, worst = 0;
      for (std::size_t s = 0; s < expected.size(); ++s) {
        ASSERT_EQ(together[s].size(), expected[s].size());
        for (std::size_t i = 0; i < expected[s].size(); ++i) {
          worst = std::max(worst, std::abs(together[s][i] - expected[s][i]));
          moved = std::max(moved, std::abs(expected[s][i] - before[s][i]));
        }
      }
      EXPECT_LE(worst, kTolerance) << ranks.tensor << (ranks.sequence ? "s" : "");
      EXPECT_GT(moved, 1e-3F);
    }
  }
}

TEST(TensorRanks, ThatLoseAGradientAreNoticed) {
  for (const Ranks& ranks : {kRanks[0], kRanks[1]}) {
    RunPlan plan = plan_of({"1f1b", {3, 4, 2}});
    divide(plan, ranks, Recompute::none);
    RunOptions options = unpaced();
    const auto lose = wrong_at(1, losing([](std::uint32_t k) { return k == 5; }));
    options.make_stage = [&](const RunPlan& p, std::uint32_t stage, int bytes, bool stored,
                             int place) {
      // With sequence parallelism W exchanges, so all ranks leave it out; else one of them.
      const bool wrong = place == 0 || ranks.sequence;
      return wrong ? lose(p, stage, bytes, stored, place)
                   : make_stage(p, stage, bytes, stored, place);
    };
    EXPECT_EQ(run_alone(plan, options).weights_equal, false);
  }
}

TEST(TensorRanks, OfReplicasReduceTheirGradientsByEveryAlgorithm) {
  std::size_t number = 0;
  for (const auto algorithm : {ReductionAlgorithm::ring, ReductionAlgorithm::hierarchical,
                               ReductionAlgorithm::tree, ReductionAlgorithm::all_to_all}) {
    for (const Ranks& ranks : {kRanks[0], kRanks[1]}) {
      for (const char* name : {"1f1b", "pipedream-2bw", "data-parallel"}) {
        if (is_left_out(number++, 5)) continue;
        RigSpec spec{name, shape_of(name, 2, 2, 2)};
        spec.shape.replicas = 3;
        spec.reduction.algorithm = algorithm;
        RunPlan plan = plan_of(spec);
        divide(plan, ranks, Recompute::none);
        EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name;
        divide_reduction(plan, 3);
        EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name << ", in buckets";
      }
    }
  }
}

TEST(TensorRanks, OnAVirtualClockTakeTheTimesThatAreStated) {
  RigSpec spec{"zb-h1", shape_of("zb-h1", 3, 4, 2)};
  spec.costs.assign(3, unit_costs());
  spec.link = {.latency_s = 0.17, .bytes_per_s = 3000};
  RigSpec longer = spec;
  for (StageCosts& c : longer.costs)
    for (const OpKind kind : {OpKind::forward, OpKind::backward_input}) c[kind].seconds += 0.25;
  const Rig rig(longer);
  const Timeline simulated = simulate_exact(rig.input());
  RunPlan plan = plan_of(spec);
  divide(plan, {2, true}, Recompute::none);
  for (int d = 0; d < 3; ++d)
    plan.exchange_s.push_back({.device = d,
                               .stage = static_cast<std::uint32_t>(d),
                               .forward = 0.25,
                               .backward_input = 0.25});
  const RecordedRun run = run_alone(plan, virtual_clock());
  const RecordedTimeline executed = to_timeline(rig.program.ops, rig.table, run);
  ASSERT_TRUE(executed.missing.empty());
  for (std::uint32_t g = 0; g < rig.program.ops.size(); ++g) {
    EXPECT_EQ(executed.timeline.op(g).start_s, simulated.op(g).start_s);
    EXPECT_EQ(executed.timeline.op(g).end_s, simulated.op(g).end_s);
  }
}

/// Bytes that are exchanged in an op, by what is done.
ByCollective<std::int64_t> exchanged(const RecordedRun& run, const Op& op) {
  ByCollective<std::int64_t> bytes{};
  for (const RecordedOp& r : run.ops) {
    if (r.op.kind != op.kind || r.op.stage != op.stage || r.op.microbatch != op.microbatch)
      continue;
    double before_s = r.span.start_s;
    for (const RecordedExchange& x : r.exchanges) {
      bytes[static_cast<std::size_t>(x.what)] += x.bytes;
      EXPECT_FALSE(x.name.empty());
      EXPECT_LE(before_s, x.span.start_s);
      EXPECT_LE(x.span.end_s, r.span.end_s);
      before_s = x.span.end_s;
    }
  }
  return bytes;
}

TEST(TensorRanks, ExchangeWhatIsPredicted) {
  for (const char* name : {"1f1b", "zb-h1"}) {
    for (const Ranks& ranks : kRanks) {
      RunPlan plan = plan_of({name, shape_of(name, 3, 3, 1)});
      divide(plan, ranks, Recompute::none, 2);
      DeviceSpec device;
      device.peak_flops_per_s["fp32"] = 1e12;
      const auto costs =
          stage_costs(plan.model, device, plan.layers,
                      {.microbatch_size = 2, .tensor = {ranks.tensor, ranks.sequence}});
      const RecordedRun run = run_alone(plan, unpaced());
      for (std::uint16_t s = 0; s < 3; ++s) {
        for (const OpKind kind :
             {OpKind::forward, OpKind::backward, OpKind::backward_input, OpKind::backward_weight}) {
          const auto is_there = [&](const RecordedOp& r) { return r.op.kind == kind; };
          if (std::ranges::none_of(run.ops, is_there)) continue;
          const auto bytes = exchanged(run, {.microbatch = 1, .stage = s, .kind = kind});
          for (const Collective what : kCollectives)
            EXPECT_EQ(bytes[static_cast<std::size_t>(what)],
                      costs[s][kind].recipe.bytes(Axis::tensor, what))
                << name << " " << ranks.tensor << (ranks.sequence ? "s " : " ") << s
                << to_string(Op{.stage = s, .kind = kind});
        }
      }
    }
  }
}

TEST(TensorRanks, HoldTheirPartOfAStageAndNoMore) {
  const auto peak = [](const Ranks& ranks) {
    RunPlan plan = plan_of({"1f1b", {2, 4, 1}});
    divide(plan, ranks, Recompute::none, 4);
    return run_alone(plan, virtual_clock()).devices.at(0);
  };
  const auto of = [](const RecordedDevice& d, Owner owner) {
    return d.peak.bytes[static_cast<std::size_t>(owner)];
  };
  const RecordedDevice one = peak({1, false}), two = peak({2, false}), divided = peak({2, true});
  constexpr std::int64_t h = 16, f = 32, v = 41, layers = 4, s = 8;
  const std::int64_t whole_vectors = layers * 6 * h, positions = s * h;
  const std::int64_t parted = layers * (4 * h * h + 2 * h * f + 3 * h + f);
  EXPECT_EQ(of(one, Owner::weights), 4 * (parted + whole_vectors + positions + v * h));
  EXPECT_EQ(of(two, Owner::weights),
            4 * (parted / 2 + whole_vectors + positions + (v + 1) / 2 * h));
  EXPECT_EQ(of(divided, Owner::weights), of(two, Owner::weights));
  // Of what is as wide as the model a rank keeps all or, with sequence parallelism, half.
  EXPECT_LT(of(two, Owner::activations), of(one, Owner::activations));
  EXPECT_LT(of(divided, Owner::activations), of(two, Owner::activations));
  EXPECT_EQ(of(one, Owner::buffers), of(two, Owner::buffers));
  EXPECT_EQ(of(two, Owner::buffers), 2 * of(divided, Owner::buffers));
}

}  // namespace
}  // namespace penstock::tensor_ranks_test
