// SPDX-License-Identifier: Apache-2.0
// Context parallelism, as a user writes it: what each rank computes and holds, how long keys and
// values go round, and both engines.
#include "base/error.hpp"
#include "models/collectives.hpp"
#include "results/simulation.hpp"
#include "sim/communication.hpp"
#include "sim/engine.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace penstock::context_parallel_test {
namespace {

constexpr auto kF = static_cast<std::size_t>(OpKind::forward);
constexpr auto kB = static_cast<std::size_t>(OpKind::backward);

// Llama's shape: 32 layers, h 4096, 8 of 32 heads for keys and values (k = 1024), 2 bytes an
// element.
constexpr double kTokens = 131072, kHidden = 4096, kKeys = 1024, kLayers = 8;

Scenario scenario(const std::string& pipeline, const std::string& bandwidth = "450 GB/s",
                  const std::string& transfers = "free") {
  return parse_scenario(
      "model: {base: llama-3-8b, seq_length: 131072}\nstack: none\n"
      "cluster: {base: dgx-h100, nodes: 8, intra: {attachment: switch, bandwidth: " +
          bandwidth + ", latency: 2 us}}\ntransfers: " + transfers +
          "\nschedule: 1f1b\npipeline: {stages: 4, microbatches: 8, " + pipeline + "}\n",
      "test.yaml");
}

double layer_forward_flops() {
  const double matrices = 2 * kHidden * kHidden + 2 * kHidden * kKeys + 3 * kHidden * 14336;
  return 2 * kTokens * matrices + 4 * kTokens * kTokens * kHidden;
}

/// Seconds that a rank passes keys and values of a layer on, all c-1 times, with their gradients or
/// without.
double ring_s(int context, int parts, double s_per_byte, double latency_s) {
  const double y = 2 * 2 * kTokens / context * kKeys;
  return (context - 1) * (parts * y * s_per_byte + latency_s);
}

TEST(ContextParallel, DividesEveryOp) {
  const Scenario one = scenario("context: 1"), four = scenario("context: 4");
  const StageCosts &whole = one.costs[1], &part = four.costs[1];
  EXPECT_DOUBLE_EQ(whole[OpKind::forward].flops, kLayers * layer_forward_flops());
  EXPECT_DOUBLE_EQ(part[OpKind::forward].flops, whole[OpKind::forward].flops / 4);
  EXPECT_DOUBLE_EQ(part[OpKind::backward].flops, whole[OpKind::backward].flops / 4);
  EXPECT_NEAR(part[OpKind::forward].seconds, whole[OpKind::forward].seconds / 4, 1e-12);
  EXPECT_EQ(part.output_bytes, whole.output_bytes / 4);
  EXPECT_EQ(part.activation_bytes, whole.activation_bytes / 4);
  EXPECT_EQ(part.weight_bytes, whole.weight_bytes) << "every rank has all of them";
  EXPECT_EQ(part.reduced_bytes, whole.reduced_bytes);
  EXPECT_EQ(one.gpu_count(), 4);
  EXPECT_EQ(four.gpu_count(), 16);
  EXPECT_EQ(four.gpus_of(1), (std::vector<int>{4, 5, 6, 7}));
}

TEST(ContextParallel, HoldsWhatComesRoundNext) {
  const Scenario one = scenario("context: 1"), four = scenario("context: 4");
  const auto y = static_cast<std::int64_t>(2 * 2 * kTokens / 4 * kKeys);
  const auto more = [&](std::int64_t StageCosts::*bytes) {
    return four.costs[1].*bytes - one.costs[1].*bytes / 4;
  };
  EXPECT_EQ(more(&StageCosts::forward_workspace_bytes), y);
  EXPECT_EQ(more(&StageCosts::backward_workspace_bytes), 2 * y) << "with its gradient";
}

TEST(ContextParallel, HidesTheRingUnderAttentionWhereThatTakesLonger) {
  for (const double gb_per_s : {450.0, 40.0, 4.0, 0.4}) {
    const Scenario s = scenario("context: 4", fmt::format("{} GB/s", gb_per_s));
    const Simulation done = simulate(s, EngineChoice::exact);
    const double attention = 2 * kTokens * kTokens * kHidden;  // FLOPs that the mask leaves
    const double attention_s = s.costs[1][OpKind::forward].seconds / kLayers * attention /
                               (layer_forward_flops() - attention);
    const double under = attention_s * 3 / 4;
    const double ring = ring_s(4, 1, 1e-9 / gb_per_s, 2e-6),
                 back = ring_s(4, 2, 1e-9 / gb_per_s, 2e-6);
    const double forward_s =
        s.costs[1][OpKind::forward].seconds + kLayers * std::max(0.0, ring - under);
    const double backward_s =
        s.costs[1][OpKind::backward].seconds + kLayers * std::max(0.0, back - 2 * under);
    const OpLists& ops = done.program.ops;
    bool seen[2] = {false, false};
    for (std::uint32_t g = ops.begin(1); g < ops.end(1); ++g) {
      const double length_s = done.timeline->op(g).length_s();
      const auto kind = static_cast<std::size_t>(ops[g].kind);
      if (kind != kF && kind != kB) continue;
      EXPECT_NEAR(length_s, kind == kF ? forward_s : backward_s, 1e-9 * length_s) << gb_per_s;
      seen[kind == kF ? 0 : 1] = true;
    }
    EXPECT_TRUE(seen[0] && seen[1]);
    const Communication cp =
        communication(done.input(), *done.timeline).inner[static_cast<std::size_t>(Axis::context)];
    EXPECT_GT(cp.total_s, 0);
    if (ring < under)
      EXPECT_NEAR(cp.exposed_s, 0, 1e-9) << gb_per_s;
    else
      EXPECT_GT(cp.exposed_s, 0) << gb_per_s;
  }
}

TEST(ContextParallel, SendsKeysAndValuesOfEveryLayer) {
  const Scenario s = scenario("context: 4, tensor: 2");
  const Simulation done = simulate(s, EngineChoice::exact);
  const auto sums = communication(done.input(), *done.timeline);
  // 4 stages of 8 GPUs, 8 microbatches; F passes y on 3 times, B y and its gradient.
  const double y = 2 * 2 * kTokens / 4 * kKeys / 2;
  const double expected = 4 * 8 * 8 * kLayers * 3 * 3 * y;
  const auto& cp = sums.inner[static_cast<std::size_t>(Axis::context)];
  EXPECT_NEAR(static_cast<double>(cp.bytes), expected, 1e-6 * expected);
  EXPECT_EQ(s.gpus_of(0), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(s.mesh.groups(0, Axis::tensor)[1], (std::vector<int>{2, 3}));
  EXPECT_EQ(s.mesh.groups(0, Axis::context)[1], (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(s.mesh.groups(0, Axis::data)[1], (std::vector<int>{1, 3, 5, 7}));
}

TEST(ContextParallel, ReducesGradientsOverReplicasAndContextRanks) {
  for (const std::string more : {"", ", distributed_optimizer: true"}) {
    const Scenario both = scenario("context: 2, width: 2" + more),
                   replicas = scenario("width: 4" + more), ranks = scenario("context: 4" + more);
    EXPECT_GT(both.costs[1].reduce_grad_s, 0);
    EXPECT_DOUBLE_EQ(both.costs[1].reduce_grad_s, replicas.costs[1].reduce_grad_s);
    EXPECT_DOUBLE_EQ(ranks.costs[1].reduce_grad_s, replicas.costs[1].reduce_grad_s);
    EXPECT_EQ(both.costs[1].optimizer_bytes, replicas.costs[1].optimizer_bytes);
    EXPECT_EQ(ranks.costs[1].optimizer_bytes, replicas.costs[1].optimizer_bytes);
    EXPECT_EQ(simulate(ranks, EngineChoice::automatic).program.ops.devices(), 4);
  }
}

TEST(ContextParallel, SamplesAreThoseOfTheReplicas) {
  EXPECT_EQ(scenario("context: 4, width: 2").samples_per_update(), 16);
  EXPECT_EQ(scenario("context: 1, width: 2").samples_per_update(), 16);
}

TEST(ContextParallel, RecomputesTheRingWithTheLayer) {
  const Scenario none = scenario("context: 4"), full = scenario("context: 4, recompute: full"),
                 selective = scenario("context: 4, recompute: selective");
  const auto bytes = [](const Scenario& s) {
    return s.costs[1].ops[kB].recipe.bytes(Axis::context, Collective::all_gather);
  };
  EXPECT_EQ(2 * bytes(full), 3 * bytes(none));
  EXPECT_EQ(bytes(selective), bytes(full)) << "core attention has the ring in it";
}

TEST(ContextParallel, GathersKeysAndValuesOrExchangesHeads) {
  const int c = 4;
  const auto moved = [](const Scenario& s, OpKind kind, Collective what) {
    return static_cast<double>(s.costs[1][kind].recipe.bytes(Axis::context, what));
  };
  const double y = 2 * 2 * kTokens / c * kKeys, queries = 2 * kTokens / c * kHidden;
  const Scenario ring = scenario("context: 4"),
                 gather = scenario("context: 4, context_exchange: all-gather"),
                 heads = scenario("context: 4, context_exchange: all-to-all");
  EXPECT_EQ(moved(gather, OpKind::forward, Collective::all_gather), kLayers * c * y);
  EXPECT_EQ(moved(gather, OpKind::backward, Collective::all_gather), kLayers * c * y);
  EXPECT_EQ(moved(gather, OpKind::backward, Collective::reduce_scatter), kLayers * c * y);
  for (const OpKind kind : {OpKind::forward, OpKind::backward})
    EXPECT_EQ(moved(heads, kind, Collective::all_to_all), kLayers * (2 * queries + y));
  // Nothing hides them: stage 1 takes longer by its exchanges, here on switch ports of 450 GB/s.
  const auto exposed_s = [](const Scenario& s) {
    const Simulation done = simulate(s, EngineChoice::automatic);
    return communication(done.input(), *done.timeline)
               .inner[static_cast<std::size_t>(Axis::context)]
               .exposed_s /
           (4 * 8);  // devices, microbatches
  };
  const double latency_s = 2e-6, rate = 450e9;
  const double gathered_s = kLayers * 3 * ((c - 1.0) / c * c * y / rate + (c - 1) * latency_s);
  EXPECT_NEAR(exposed_s(gather), gathered_s, 1e-6 * gathered_s);
  EXPECT_GT(exposed_s(heads), 0);
  EXPECT_LT(exposed_s(ring), exposed_s(gather));
  EXPECT_GT(gather.costs[1].forward_workspace_bytes, ring.costs[1].forward_workspace_bytes);
}

TEST(ContextParallel, ARingOfGroupsThatExchangeHeadsHasShortSteps) {
  // Eight ranks: two neighbours exchange heads, four pairs send keys and values round.
  const int c = 8, u = 2;
  const Scenario both = scenario("context: 4, ulysses: 2"), ring = scenario("context: 8");
  EXPECT_EQ(both.gpu_count(), ring.gpu_count());
  EXPECT_EQ(both.costs[1].activation_bytes, ring.costs[1].activation_bytes);
  EXPECT_EQ(both.costs[1].reduced_bytes, ring.costs[1].reduced_bytes);
  EXPECT_DOUBLE_EQ(both.costs[1][OpKind::forward].flops, ring.costs[1][OpKind::forward].flops);
  const double y = 2 * 2 * kTokens / c * kKeys, queries = 2 * kTokens / c * kHidden;
  const Recipe& forward = both.costs[1][OpKind::forward].recipe;
  EXPECT_EQ(static_cast<double>(forward.bytes(Axis::ulysses, Collective::all_to_all)),
            kLayers * (2 * queries + y));
  EXPECT_EQ(static_cast<double>(forward.bytes(Axis::context, Collective::all_gather)),
            kLayers * c / u * y);
  // Ranks of a stage are neighbours 0,1 2,3 ...; the ring goes among the first of each pair, and
  // among the second.
  using Groups = std::vector<std::vector<int>>;
  EXPECT_EQ(both.mesh.groups(0, Axis::ulysses), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(both.mesh.groups(0, Axis::context), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(both.mesh.groups(0, Axis::data), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
  // Of slow links both engines say the same.
  for (const char* rate : {"450 GB/s", "5 GB/s"}) {
    const Scenario s = scenario("context: 4, ulysses: 2", rate);
    EXPECT_NEAR(*iteration_time_s(simulate(s, EngineChoice::simgrid)),
                *iteration_time_s(simulate(s, EngineChoice::exact)),
                1e-9 * *iteration_time_s(simulate(s, EngineChoice::exact)));
  }
  // Ulysses alone is what all-to-all among context ranks is.
  EXPECT_NEAR(*iteration_time_s(simulate(scenario("ulysses: 4"), EngineChoice::exact)),
              *iteration_time_s(simulate(scenario("context: 4, context_exchange: all-to-all"),
                                         EngineChoice::exact)),
              1e-9);
}

TEST(ContextParallel, TakesAsLongInBothEngines) {
  std::mt19937 random{20261124};
  const auto pick = [&](const std::vector<std::string>& from) {
    return from[random() % from.size()];
  };
  int exact = 0, contended = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const std::string text =
        "model: {base: llama-3-8b, seq_length: " + pick({"8192", "32768", "131072"}) + "}\n" +
        "cluster: {base: dgx-h100, nodes: 8}\ntransfers: " + pick({"free", "free", "overlapped"}) +
        "\nschedule: " + pick({"1f1b", "zb-h1", "interleaved-1f1b", "gpipe", "dualpipe"}) +
        "\npipeline: {stages: " + pick({"2", "4"}) +
        ", microbatches: 8, context: " + pick({"2", "4"}) + ", ulysses: " + pick({"1", "1", "2"}) +
        ", tensor: " + pick({"1", "2"}) + ", width: " + pick({"1", "1", "2"}) +
        ", recompute: " + pick({"none", "selective", "full"}) +
        pick({"", ", reduction: {overlap: none}"}) + "}\n";
    const Scenario s = parse_scenario(text, "test.yaml");
    Simulation prepared = prepare(s);
    const Simulation simgrid = simulate(s, EngineChoice::simgrid);
    if (!why_not_exact(prepared.input()).empty()) {
      ++contended;
      continue;
    }
    ++exact;
    run_engine(prepared, EngineChoice::exact);
    const double expected = *iteration_time_s(prepared);
    EXPECT_NEAR(*iteration_time_s(simgrid), expected, 1e-9 * expected) << text;
  }
  EXPECT_GT(exact, 10);
  EXPECT_GT(contended, 5);
}

TEST(ContextParallel, SharesTheNetworkWithMessages) {
  const Scenario shared = scenario("context: 2, tensor: 8", "450 GB/s", "overlapped"),
                 free = scenario("context: 2, tensor: 8");
  EXPECT_EQ(shared.gpus_of(0).back(), 15) << "a stage spans two nodes";
  const Simulation done = simulate(shared, EngineChoice::automatic);
  EXPECT_EQ(done.engine, "fluid");
  EXPECT_GT(*iteration_time_s(done), *iteration_time_s(simulate(free, EngineChoice::automatic)));
}

std::string refused(const std::string& text) {
  try {
    parse_scenario(text, "test.yaml");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ContextParallel, ExchangesWholeHeads) {
  try {
    scenario("context: 16, context_exchange: all-to-all");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("whole heads, of which there are 8"),
              std::string::npos)
        << error.what();
  }
}

TEST(ContextParallel, RefusesHeadsThatUlyssesCannotDivide) {
  const std::string job =
      "model: {base: llama-3-8b, seq_length: 131072}\ncluster: {base: dgx-h100, nodes: 8}\n"
      "schedule: 1f1b\npipeline: {stages: 2, ";
  EXPECT_NE(refused(job + "tensor: 2, ulysses: 8}\n")
                .find("16 ranks (tensor x ulysses) has whole heads, of which there are 8"),
            std::string::npos);
  EXPECT_NE(refused(job + "context: 2, ulysses: 2, context_exchange: all-gather}\n")
                .find("keys and values go round"),
            std::string::npos);
}

TEST(ContextParallel, SaysWhatCannotBeDivided) {
  const auto with = [](const std::string& pipeline) {
    return refused(
        "model: gpt-2.2b\nstack: none\ncluster: {base: dgx-h100, nodes: 8}\nschedule: "
        "1f1b\npipeline: {stages: "
        "2, " +
        pipeline + "}\n");
  };
  EXPECT_NE(with("context: 3").find("a context degree of 3 does not cut a sequence"),
            std::string::npos)
      << with("context: 3");
  EXPECT_NE(with("context: 3").find("is 2"), std::string::npos) << with("context: 3");
  EXPECT_EQ(with("context_parallel_size: 2"), "");
  EXPECT_NE(refused("model: {forward: 1 ms}\nschedule: 1f1b\npipeline: {stages: 2, context: 2}\n")
                .find("'context' needs a model by shape"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::context_parallel_test
