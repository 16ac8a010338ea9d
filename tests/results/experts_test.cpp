// SPDX-License-Identifier: Apache-2.0
// Experts that the GPUs of a position divide, as a user asks for it: what each GPU holds, reduces
// and exchanges, what computing hides of it, and what is refused.
#include "base/error.hpp"
#include "program/op_costs.hpp"
#include "results/simulation.hpp"
#include "sim/communication.hpp"
#include "sim/engine.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace penstock::experts_test {
namespace {

constexpr double kLayers = 4, kTokens = 1024, kHidden = 1024, kWidth = 2048, kExperts = 16;
constexpr double kOfExperts = kLayers * kExperts * 3 * kHidden * kWidth;  // parameters

/// A llama of 4 layers with 16 experts, of which a token visits 4, on GPUs with ports of their own.
Scenario scenario(const std::string& pipeline, const std::string& schedule = "1f1b",
                  const std::string& cluster = "devices_per_node: 16") {
  return parse_scenario(
      fmt::format(
          "model: {{family: llama, num_layers: 4, hidden_size: 1024, num_attention_heads: "
          "16, ffn_hidden_size: 4096, vocab_size: 32000, seq_length: 1024, "
          "flash_attention: true, num_experts: 16, experts_per_token: 4, "
          "expert_ffn_hidden_size: 2048}}\nstack: none\n"
          "cluster: {{device: A100-80, {}, intra: {{bandwidth: 100 GB/s, latency: 2 us, "
          "attachment: switch}}, "
          "inter: {{bandwidth: 25 GB/s, latency: 5 us{}}}}}\nschedule: {}\npipeline: {{{}}}\n",
          cluster, cluster.find("nodes") != std::string::npos ? ", nics: 8" : "", schedule,
          pipeline),
      "test.yaml");
}

std::string refusal(const std::string& pipeline, const std::string& schedule = "1f1b") {
  try {
    scenario(pipeline, schedule);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

double makespan_s(const Scenario& s, EngineChoice engine = EngineChoice::automatic) {
  return simulate(s, engine).timeline->makespan_s;
}
Communication of_experts(const Scenario& s) {
  const Simulation done = simulate(s, EngineChoice::automatic);
  return communication(done.input(), *done.timeline).inner[static_cast<std::size_t>(Axis::expert)];
}

TEST(Experts, AreDividedAndWhatIsBesideThemIsNot) {
  const StageCosts whole = scenario("stages: 1, width: 8, microbatches: 2").costs[0];
  for (const int degree : {2, 4, 8}) {
    const StageCosts c =
        scenario(fmt::format("stages: 1, width: 8, microbatches: 2, expert: {}", degree)).costs[0];
    const double gone = kOfExperts * (1 - 1.0 / degree);
    EXPECT_NEAR(static_cast<double>(whole.weight_bytes - c.weight_bytes), 2 * gone, 1) << degree;
    EXPECT_NEAR(static_cast<double>(whole.gradient_bytes - c.gradient_bytes), 4 * gone, 1);
    EXPECT_NEAR(static_cast<double>(whole.optimizer_bytes - c.optimizer_bytes), 12 * gone, 1);
    EXPECT_EQ(c.activation_bytes, whole.activation_bytes);
    EXPECT_DOUBLE_EQ(c[OpKind::forward].flops, whole[OpKind::forward].flops);
  }
}

TEST(Experts, StatesAreDividedAmongThoseWhoHaveTheSame) {
  const std::string job = "stages: 1, width: 8, microbatches: 2, expert: 4, ";
  const StageCosts all = scenario(job + "distributed_optimizer: false").costs[0];
  const StageCosts shared = scenario(job + "distributed_optimizer: true").costs[0];
  const double of_experts = kOfExperts / 4, n = static_cast<double>(all.optimizer_bytes) / 12;
  EXPECT_NEAR(static_cast<double>(shared.optimizer_bytes),
              12 * ((n - of_experts) / 8 + of_experts / 2), 1);
}

/// Two rings: one of 8 GPUs with everything but experts, one of the two that have the same experts.
TEST(Experts, GradientsAreReducedByThoseWhoHaveTheSame) {
  const Scenario s = scenario(
      "stages: 1, width: 8, microbatches: 2, expert: 4, reduction: {overlap: none, algorithm: "
      "ring}");
  const auto all = static_cast<double>(s.costs[0].reduced_bytes);
  const auto experts = static_cast<double>(s.costs[0].expert_reduced_bytes);
  EXPECT_NEAR(experts, 4 * kOfExperts / 4, 1);
  const auto ring_s = [](double bytes, double members) {
    return 2 * (members - 1) / members * bytes / 100e9 + 2 * (members - 1) * 2e-6;
  };
  EXPECT_NEAR(s.costs[0].reduce_grad_s, ring_s(all - experts, 8) + ring_s(experts, 2), 1e-9);
}

TEST(Experts, TensorRanksWithTheSameOnesReduceThem) {
  const Scenario s = scenario(
      "stages: 1, tensor: 4, sequence_parallel: true, expert: 2, expert_tensor: 1, microbatches: "
      "2");
  EXPECT_EQ(s.mesh.sharers(), 1);
  EXPECT_EQ(s.mesh.expert_sharers(0), 2);
  EXPECT_GT(s.costs[0].reduce_grad_s, 0);
  EXPECT_GT(s.costs[0].expert_reduced_bytes, 0);
}

/// An all-to-all of n GPUs, each of which has `bytes` for all, over ports.
TEST(Experts, TokensGoThereAndBackInEveryLayer) {
  for (const int degree : {2, 8}) {
    const Scenario s =
        scenario(fmt::format("stages: 1, width: 8, microbatches: 1, expert: {}", degree));
    const double bytes = kTokens * 4 * kHidden * 2, moved = bytes * (degree - 1) / degree;
    const Communication c = of_experts(s);
    EXPECT_NEAR(c.bytes, 8 * 4 * kLayers * moved, 1) << "four times in F and B, on 8 GPUs";
    EXPECT_NEAR(c.exposed_s, 8 * 4 * kLayers * (moved / 100e9 + 2e-6), 1e-9);
  }
}

TEST(Experts, TokensGoInTheTypeOfProductsAndComeBackWide) {
  const auto bytes = [](const std::string& more, OpKind kind) {
    return static_cast<double>(scenario("stages: 1, width: 4, expert: 4, microbatches: 1" + more)
                                   .costs[0][kind]
                                   .recipe.bytes(Axis::expert, Collective::all_to_all));
  };
  EXPECT_EQ(bytes(", narrow_dispatch: true", OpKind::forward), bytes("", OpKind::forward))
      << "products are in 16 bits";
  const Scenario s = parse_scenario(
      "model: {base: qwen3-30b-a3b, precision: fp8}\ncluster: {base: dgx-h100}\nstack: none\n"
      "schedule: 1f1b\npipeline: {stages: 1, width: 8, expert: 8, narrow_dispatch: true}\n",
      "narrow.yaml");
  const double copies = 4096.0 * 8 * 2048 * 48;
  EXPECT_EQ(static_cast<double>(
                s.costs[0][OpKind::forward].recipe.bytes(Axis::expert, Collective::all_to_all)),
            copies * (1 + 2));
}

TEST(Experts, OfTensorRanksHaveTheTokensOfTheirOwn) {
  const auto bytes = [](const std::string& more) {
    return scenario("stages: 1, tensor: 4, sequence_parallel: true, microbatches: 1, " + more)
        .costs[0][OpKind::forward]
        .recipe.bytes(Axis::expert, Collective::all_to_all);
  };
  const double of_rank = kTokens / 4 * 4 * kHidden * 2;
  EXPECT_EQ(static_cast<double>(bytes("expert: 4, expert_tensor: 1")), 2 * kLayers * of_rank);
  EXPECT_EQ(bytes("expert: 1, expert_tensor: 4"), 0);
}

TEST(Experts, RecomputedLayersExchangeOnceMore) {
  const auto backward = [](const std::string& more) {
    return scenario("stages: 1, width: 4, expert: 4, microbatches: 1" + more)
        .costs[0][OpKind::backward]
        .recipe.bytes(Axis::expert, Collective::all_to_all);
  };
  EXPECT_EQ(backward(", recompute: full"), 2 * backward(""));
  EXPECT_EQ(backward(", recompute: selective, recompute_modules: [moe]"), 2 * backward(""));
  EXPECT_EQ(backward(", recompute: selective"), backward(""));
}

/// 16 GPUs on two nodes: half of the copies cross the network, or one for each token of which an
/// expert is there, which are 1 - (1/2)^4 of all.
TEST(Experts, TokensCrossTheNetworkOnceWhereTheyAreSentOn) {
  const auto exposed_s = [](const std::string& exchange) {
    return of_experts(scenario("stages: 1, width: 16, microbatches: 1, expert: 16, "
                               "expert_exchange: " +
                                   exchange,
                               "1f1b", "devices_per_node: 8, nodes: 2"))
        .exposed_s;
  };
  const double bytes = kTokens * 4 * kHidden * 2, calls = 16 * 4 * kLayers;
  EXPECT_NEAR(exposed_s("all-to-all"), calls * (bytes / 2 / 25e9 + 5e-6), 1e-6);
  const double once = bytes * (1 - std::pow(0.5, 4)) / 4;
  EXPECT_NEAR(exposed_s("once-per-node"), calls * (once / 25e9 + 5e-6), 1e-6);
}

/// DeepSeek-V3's ranks gather 2,112 elements of a token's latents before attention, and 7,168 of
/// tokens everywhere else: in F before the shared experts, in W again.
TEST(Experts, OfTensorRanksGatherLatents) {
  const auto gathered = [](OpKind kind) {
    const Scenario s = parse_scenario(
        "model: {base: deepseek-v3-671b, num_layers: 4, mtp_layers: 0}\n"
        "cluster: {base: hgx-h800, nodes: 2}\nstack: none\nschedule: zb-h1\n"
        "pipeline: {stages: 2, width: 4, tensor: 2, sequence_parallel: true, expert: 8, "
        "expert_tensor: 1, microbatches: 2, split: [2, 2]}\n",
        "latents.yaml");
    return static_cast<double>(s.costs[0][kind].recipe.bytes(Axis::tensor, Collective::all_gather));
  };
  const double token = 4096 * 2, layers = 2;
  EXPECT_EQ(gathered(OpKind::forward), layers * token * (2112 + 7168));
  EXPECT_EQ(gathered(OpKind::backward_input), layers * token * 2 * 7168);
}

TEST(Experts, OfFewPartsCrossTheNetworkLess) {
  const auto bytes = [](const std::string& groups) {
    return of_experts(
               parse_scenario(
                   "model: {base: deepseek-v3-671b" + groups +
                       "}\ncluster: {base: hgx-h800, nodes: 8}\nstack: none\nschedule: 1f1b\n"
                       "pipeline: {stages: 1, width: 64, expert: 64, microbatches: 1, "
                       "expert_exchange: once-per-node}\n",
                   "groups.yaml"))
        .exposed_s;
  };
  // Eight nodes, a part each: a token is sent to a node with the probability that its part is one
  // of the four, and has one of the eight experts.
  const double of_four = 0.5 * (1 - std::pow(0.75, 8)), of_all = 1 - std::pow(7.0 / 8, 8);
  EXPECT_NEAR(bytes("") / bytes(", expert_groups: 1, groups_per_token: 1"), of_four / of_all, 0.02);
}

TEST(Experts, PassesThatRunTogetherHideExchanges) {
  const std::string job = "stages: 1, width: 8, microbatches: 16, expert: 8";
  const Scenario apart = scenario(job), together = scenario(job + ", expert_overlap: true");
  EXPECT_LT(makespan_s(together), makespan_s(apart));
  const double apart_s = of_experts(apart).exposed_s, left_s = of_experts(together).exposed_s;
  EXPECT_LT(left_s, 0.3 * apart_s) << "the first F and the last B are alone";
  const std::string chunked = "stages: 2, chunks: 2, width: 4, microbatches: 16, expert: 4";
  EXPECT_LT(makespan_s(scenario(chunked + ", expert_overlap: true", "interleaved-1f1b")),
            makespan_s(scenario(chunked, "interleaved-1f1b")));
}

TEST(Experts, TakeAsLongInEveryEngine) {
  for (const char* job :
       {"stages: 1, width: 8, microbatches: 4, expert: 8, expert_overlap: true",
        "stages: 2, chunks: 2, width: 4, microbatches: 8, expert: 4, expert_overlap: true",
        "stages: 2, tensor: 2, sequence_parallel: true, width: 4, microbatches: 4, expert: 8, "
        "expert_tensor: 1",
        "stages: 4, width: 2, microbatches: 8, expert: 2"}) {
    const std::string text = job;
    const char* schedule = text.find("chunks") != std::string::npos      ? "interleaved-1f1b"
                           : text.find("stages: 4") != std::string::npos ? "dualpipe"
                                                                         : "1f1b";
    for (const char* cluster : {"devices_per_node: 16", "devices_per_node: 8, nodes: 2"}) {
      const Scenario s = scenario(job, schedule, cluster);
      const double simgrid_s = makespan_s(s, EngineChoice::simgrid);
      EXPECT_NEAR(makespan_s(s, EngineChoice::fluid), simgrid_s, 1e-9 * simgrid_s) << job;
      EXPECT_NEAR(makespan_s(s), simgrid_s, 1e-9 * simgrid_s) << job;
    }
  }
}

/// Eight layers of Qwen3 30B on H100, whose kernels were measured: 132 multiprocessors.
Scenario measured(const std::string& schedule, const std::string& pipeline) {
  return parse_scenario(
      fmt::format("model: {{base: qwen3-30b-a3b, num_layers: 8}}\n"
                  "cluster: {{base: dgx-h100, nodes: 2}}\nstack: megatron-kernels\n"
                  "schedule: {}\npipeline: {{microbatches: 8, distributed_optimizer: true, "
                  "expert_exchange: once-per-node, {}}}\n",
                  schedule, pipeline),
      "test.yaml");
}

TEST(Experts, ExchangesTakeMultiprocessorsFromComputingBesideThem) {
  const std::pair<const char*, std::string> jobs[] = {
      {"1f1b", "stages: 1, width: 16, expert: 16, expert_overlap: true"},
      {"interleaved-1f1b", "stages: 2, chunks: 2, width: 8, expert: 8, expert_overlap: true"},
      {"dualpipe", "stages: 4, width: 4, expert: 4"},
      {"dualpipe-v", "stages: 2, width: 8, expert: 8"}};
  for (const auto& [schedule, pipeline] : jobs) {
    SCOPED_TRACE(schedule);
    double before_s = 0;
    for (const int sms : {0, 33, 66}) {
      const Scenario s = measured(schedule, pipeline + fmt::format(", expert_sms: {}", sms));
      const double simgrid_s = makespan_s(s, EngineChoice::simgrid);
      EXPECT_NEAR(makespan_s(s, EngineChoice::fluid), simgrid_s, 1e-9 * simgrid_s) << sms;
      EXPECT_NEAR(makespan_s(s), simgrid_s, 1e-9 * simgrid_s) << sms;
      EXPECT_GT(simgrid_s, 1.002 * before_s) << sms;
      EXPECT_LT(simgrid_s, sms > 0 ? before_s * 2 : 1e9) << sms;
      before_s = simgrid_s;
    }
  }
  const auto apart_s = [](int sms) {
    return makespan_s(measured("1f1b", fmt::format("stages: 1, width: 16, expert: 16, "
                                                   "expert_sms: {}",
                                                   sms)));
  };
  EXPECT_DOUBLE_EQ(apart_s(66), apart_s(0)) << "nothing is computed beside them";
  const auto usual = [](const std::string& more) {
    return measured("1f1b", "stages: 1, width: 16, expert: 16" + more).mesh.routing.sms;
  };
  EXPECT_EQ(usual(""), 20);
  EXPECT_EQ(usual(", expert_sms: 24"), 24);
  EXPECT_EQ(scenario("stages: 1, width: 8, expert: 8").mesh.routing.sms, 0) << "NCCL's: not known";
}

/// arXiv:2505.09343, table 4: 19.926 s a step. Nothing was fitted on it.
TEST(Experts, OfDeepSeekV3OnTwoThousandGpusTakeWhatWasPublished) {
  const auto step_s = [](const std::vector<Override>& changes) {
    return iteration_time_s(
               simulate(load_scenario(data_folder() + "/scenarios/deepseek-v3.yaml", changes),
                        EngineChoice::automatic))
        .value();
  };
  const double as_shipped = step_s({}), free = step_s({parse_override("pipeline.expert_sms=0")});
  RecordProperty("step_s", std::to_string(as_shipped));
  RecordProperty("with_free_multiprocessors_s", std::to_string(free));
  EXPECT_NEAR(as_shipped, 19.926, 0.05 * 19.926);
  EXPECT_GT(as_shipped, 1.02 * free);
}

TEST(Experts, AreRefusedWhereTheyCannotBeDividedSo) {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal("stages: 1, width: 9, expert: 3"), "16 experts cannot be divided"));
  EXPECT_TRUE(has(refusal("stages: 1, width: 6, expert: 4"), "do not divide the 6 GPUs"));
  EXPECT_TRUE(has(refusal("stages: 1, tensor: 2, expert: 2"), "sequence_parallel"));
  EXPECT_THROW(measured("1f1b", "stages: 1, width: 16, expert: 16, expert_sms: 132"), InputError);
  EXPECT_TRUE(has(refusal("stages: 1, tensor: 4, sequence_parallel: true, expert: 2, "
                          "expert_tensor: 2"),
                  "use 1 or 4"));
  EXPECT_TRUE(has(refusal("stages: 1, width: 4, expert: 2, shard: weights"), "shard: optimizer"));
  EXPECT_TRUE(has(refusal("stages: 2, width: 2, expert: 2, microbatches: 4, expert_overlap: true"),
                  "interleaved-1f1b"));
  EXPECT_EQ(refusal("stages: 1, width: 8, expert: 4"), "");
  EXPECT_TRUE(has(refusal("stages: 1, width: 8, shard: optimizer, shard_group: 4"), "shard_group"));
  EXPECT_EQ(refusal("stages: 1, width: 8, shard: weights"), "") << "each GPU has all experts";
  EXPECT_TRUE(has(refusal("stages: 1, width: 4, expert: 65536, expert_tensor: 65536"), "divide"));
  EXPECT_TRUE(has(
      refusal("stages: 2, width: 2, expert: 2, microbatches: 4, expert_overlap: true", "hanayo"),
      "interleaved-1f1b"));
  EXPECT_THROW(parse_scenario("model: {forward: 1 ms, backward: 2 ms}\nschedule: 1f1b\n"
                              "pipeline: {stages: 2, expert: 2}\n",
                              "costs.yaml"),
               InputError);
}

}  // namespace
}  // namespace penstock::experts_test
