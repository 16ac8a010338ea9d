// SPDX-License-Identifier: Apache-2.0
// Ranks that have other experts of a layer, on the host: they end with the weights of a sequential
// run that has all of them, bit for bit, and exchange what is predicted.
#include "hw/reference.hpp"
#include "hw/transformer_layout.hpp"
#include "models/stage_costs.hpp"
#include "tests/hw/wrong_stage.hpp"
#include "tests/parameter_name.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

namespace penstock::experts_test {
namespace {

struct Choice {
  int width, expert, per_token;
  std::int64_t shared = 0;
  int first_dense = 0;
};
constexpr Choice kChoices[] = {{2, 2, 1},       {2, 2, 2, 12},    {4, 2, 2},
                               {4, 4, 1, 0, 1}, {4, 2, 3, 12, 1}, {2, 1, 2}};

std::string text_of(const Choice& c) {
  return "width " + std::to_string(c.width) + " expert " + std::to_string(c.expert) + " k " +
         std::to_string(c.per_token) + " shared " + std::to_string(c.shared) + " dense " +
         std::to_string(c.first_dense);
}

void give_experts(RunPlan& plan, const Choice& c, const PerStage<Recomputation>& recompute,
                  int layers = 1) {
  make_transformer(plan, recompute, layers);
  plan.model.experts = Experts{.count = 4,
                               .top_k = c.per_token,
                               .width = 24,
                               .shared_width = c.shared,
                               .router_bias = c.per_token == 2,
                               .first_dense = c.first_dense};
  plan.division.expert = c.expert;
}

RunPlan replicated(const std::string& name, const Choice& c,
                   const PerStage<Recomputation>& recompute = Recompute::none, int layers = 1) {
  RigSpec spec{name, shape_of(name, 2, 3, 2)};
  spec.shape.replicas = c.width;
  RunPlan plan = plan_of(spec);
  give_experts(plan, c, recompute, layers);
  return plan;
}

std::vector<std::string> schedules_with_experts() {
  std::vector<std::string> names = executed_schedules();
  std::erase_if(names, [](const std::string& name) {
    const RunPlan plan = replicated(name, kChoices[0]);
    return find_schedule(name)->asynchronous || plan.program.whole_backward;
  });
  return names;
}

class EveryScheduleWithExperts : public testing::TestWithParam<std::string> {};

TEST_P(EveryScheduleWithExperts, EndsWithTheWeightsOfASequentialRun) {
  for (const Choice& c : kChoices) {
    if (kBrief && c.width == 4) continue;
    RunPlan plan = replicated(GetParam(), c);
    plan.recompute = in_turn(plan, {Recompute::none, Recompute::full, Recompute::selective});
    ASSERT_EQ(why_not_executable(plan), std::vector<std::string>());
    const RecordedRun run = run_alone(plan, unpaced());
    ASSERT_TRUE(run.complete) << run.stopped_because;
    EXPECT_EQ(run.weights_equal, true) << text_of(c);
    EXPECT_EQ(run.weights_moved, true) << text_of(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Host, EveryScheduleWithExperts,
                         testing::ValuesIn(schedules_with_experts()), ByName());

/// All tokens may go to the experts of one rank; those of the others then get none.
TEST(Experts, ThatAreChosenUnevenlyEndWithTheWeightsOfASequentialRun) {
  for (const std::vector<double>& start :
       {std::vector<double>{2, 0, 0, 0}, {0, 0, 100, 100}, {0, 50, 0, 100}}) {
    RunPlan plan = replicated("1f1b", {4, 4, 2}, Recompute::none, 2);
    plan.router_start = start;
    plan.optimizer.weight_decay = 0.1;  // moves experts without tokens, too
    const RecordedRun run = run_alone(plan, unpaced());
    ASSERT_TRUE(run.complete) << run.stopped_because;
    EXPECT_EQ(run.weights_equal, true);
  }
}

TEST(Experts, OfSeveralGroupsReduceTheirGradientsByEveryAlgorithm) {
  std::size_t number = 0;
  for (const auto algorithm : {ReductionAlgorithm::ring, ReductionAlgorithm::hierarchical,
                               ReductionAlgorithm::tree, ReductionAlgorithm::all_to_all}) {
    for (const char* name : {"1f1b", "interleaved-1f1b", "chimera", "data-parallel"}) {
      if (is_left_out(number++, 3)) continue;
      RunPlan plan = replicated(name, {6, 2, 2, 12}, Recompute::none, 2);
      plan.reduction.algorithm = algorithm;
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name;
      divide_reduction(plan, 3);
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name << ", in buckets";
    }
  }
}

TEST(Experts, OfReplicasThatSplitMicrobatchesEndWithTheWeightsOfASequentialRun) {
  for (const char* name : {"1f1b", "gpipe", "pipedream-2bw", "zb-h1"}) {
    for (const int expert : {2, 4}) {
      RigSpec spec{name, shape_of(name, 2, 3, 2)};
      spec.reduces_within = true;
      RunPlan plan = plan_of(spec);
      give_experts(plan, {1, expert, 2, 12}, Recompute::none);
      plan.microbatch_size = 4;
      plan.division.replicas = {4, 4};
      EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name << expert;
    }
  }
}

TEST(Experts, OfTensorRanksEndWithTheWeightsOfASequentialRun) {
  std::size_t number = 0;
  for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1"}) {
    for (const int width : {1, 2}) {
      for (const int expert : {1, 2, 4}) {
        if (2 * width % expert != 0 || is_left_out(number++, 3)) continue;
        RigSpec spec{name, shape_of(name, 2, 2, 2)};
        spec.shape.replicas = width;
        spec.reduces_within = width == 1;
        RunPlan plan = plan_of(spec);
        give_experts(plan, {width, expert, 2, 12}, Recompute::none);
        plan.model.vocab_size = 41;
        plan.division.tensor = 2;
        plan.division.sequence = true;
        const RecordedRun run = run_alone(plan, unpaced());
        EXPECT_TRUE(run.complete) << run.stopped_because;
        EXPECT_EQ(run.weights_equal, true) << name << width << expert;
        divide_reduction(plan, 3);
        EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true) << name << ", in buckets";
      }
    }
  }
}

/// The weights of each stage after the run, of every expert and of all else, however divided: those
/// of the sequential run.
std::vector<std::string> trained(const RunPlan& plan) {
  SingleProcess alone;
  RunControl control(0);
  RunPlan bare = plan;
  bare.channels.clear();
  const auto backend = open_host_backend({bare, {}, control, alone, {0}});
  SequentialRun run(plan, backend->device(0), make_stage);
  for (std::uint32_t u = 0; u < run.updates(); ++u) run.run_update(u);
  return run.weights();
}

float largest_difference(const std::string& a, const std::string& b) {
  float worst = 0;
  for (std::size_t at = 0; at < a.size(); at += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    worst = std::max(worst, std::abs(x - y));
  }
  return worst;
}

/// Where each rank has all experts, their gradients are added replica by replica: another order.
/// SGD's steps of a tenth move weights by 1e-3 and more, so 1 % of an error would be ten times the
/// tolerance.
TEST(Experts, ThatAreDividedAreThoseOfRanksWithAllOfThem) {
  RunPlan plan = replicated("data-parallel", {2, 2, 2, 12}, Recompute::none, 2);
  plan.optimizer.kind = OptimizerSpec::Kind::sgd;
  plan.optimizer.learning_rate = 0.1;
  const std::vector<std::string> halves = trained(plan);
  ASSERT_EQ(halves.size(), 2U);
  RunPlan whole = plan;
  whole.division.expert = 1;
  const std::vector<std::string> all = trained(whole);
  ASSERT_EQ(all.size(), 1U);
  whole.optimizer.learning_rate = 0;
  const std::vector<std::string> before = trained(whole);
  EXPECT_GT(largest_difference(all[0], before[0]), 1e-3F);
  // Both layouts by the names of their parameters.
  const auto by_name = [&](const std::string& bytes, const ExpertRank& rank) {
    std::map<std::string, std::string> values;
    const TransformerPart part{0, 2, true, true, {}, 0, rank};
    const TransformerLayout layout(plan.model, part, plan.microbatch_size, Recompute::none, 4);
    for (const Parameter& p : layout.parameters)
      values[p.name] = bytes.substr(static_cast<std::size_t>(p.offset) * 4,
                                    static_cast<std::size_t>(p.elements) * 4);
    return values;
  };
  const auto expected = by_name(all[0], {});
  std::size_t compared = 0;
  for (const int half : {0, 1}) {
    for (const auto& [name, values] :
         by_name(halves[static_cast<std::size_t>(half)], {2, half, true})) {
      EXPECT_LE(largest_difference(values, expected.at(name)), 1e-6F) << name;
      compared += half == 0 || name.find("expert") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_EQ(compared, expected.size());
}

TEST(Experts, ThatLoseAGradientAreNoticed) {
  const RunPlan plan = replicated("1f1b", {2, 2, 2});
  RunOptions options = unpaced();
  options.make_stage = wrong_at(1, losing([](std::uint32_t k) { return k == 3; }));
  EXPECT_EQ(run_alone(plan, options).weights_equal, false);
}

TEST(Experts, OnAVirtualClockTakeTheTimesThatAreStated) {
  for (const char* name : {"1f1b", "zb-h1", "interleaved-1f1b", "dualpipe"}) {
    RigSpec spec{name, shape_of(name, 2, 3, 2)};
    spec.shape.replicas = 2;
    spec.link = {.latency_s = 0.17, .bytes_per_s = 3000};
    const Rig rig(spec);
    const Timeline simulated = simulate_exact(rig.input());
    RunPlan plan = plan_of(spec);
    give_experts(plan, {2, 2, 2}, Recompute::none);
    const RecordedRun run = run_alone(plan, virtual_clock());
    EXPECT_EQ(run.weights_equal, true) << name;
    const RecordedTimeline executed = to_timeline(rig.program.ops, rig.table, run);
    ASSERT_TRUE(executed.missing.empty());
    for (std::uint32_t g = 0; g < rig.program.ops.size(); ++g) {
      EXPECT_EQ(executed.timeline.op(g).start_s, simulated.op(g).start_s) << name;
      EXPECT_EQ(executed.timeline.op(g).end_s, simulated.op(g).end_s) << name;
    }
  }
}

/// All ranks together send what is predicted of each times their number, whoever gets it.
TEST(Experts, ExchangeWhatIsPredicted) {
  for (const bool again : {false, true}) {
    RunPlan plan = replicated("1f1b", {4, 2, 2}, again ? Recompute::full : Recompute::none, 2);
    DeviceSpec device;
    device.peak_flops_per_s["fp32"] = 1e12;
    StageCostOptions options{.microbatch_size = 2, .recompute = plan.recompute};
    options.expert.degree = 2;
    const auto costs = stage_costs(plan.model, device, plan.layers, options);
    std::map<std::pair<std::uint16_t, OpKind>, std::pair<std::int64_t, std::int64_t>> sums;
    for (const RecordedOp& r : run_alone(plan, unpaced()).ops) {
      if (!is_compute(r.op.kind)) continue;
      auto& [bytes, ops] = sums[{r.op.stage, r.op.kind}];
      ++ops;
      for (const RecordedExchange& x : r.exchanges)
        if (x.name != "token counts") bytes += x.bytes;
    }
    for (const auto& [key, sum] : sums) {
      const auto& [stage, kind] = key;
      EXPECT_EQ(sum.first,
                sum.second * costs[stage][kind].recipe.bytes(Axis::expert, Collective::all_to_all))
          << stage << to_string(Op{.stage = stage, .kind = kind});
      EXPECT_GT(sum.first, 0);
    }
    EXPECT_EQ(sums.size(), 4U);
  }
}

}  // namespace
}  // namespace penstock::experts_test
