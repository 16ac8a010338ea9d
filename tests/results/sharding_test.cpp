// SPDX-License-Identifier: Apache-2.0
// Weights, gradients and optimizer states that replicas divide, as a user asks for it: what each
// GPU holds, what it gathers and reduces, and which of that computing hides.
#include "base/error.hpp"
#include "results/simulation.hpp"
#include "sim/communication.hpp"
#include "sim/engine.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace penstock::sharding_test {
namespace {

/// GPT with 8 layers on so many stages of four replicas, on a cluster in which each GPU has a port
/// of its own.
Scenario scenario(const std::string& pipeline, const std::string& bandwidth = "100 GB/s",
                  const std::string& schedule = "1f1b") {
  return parse_scenario(
      fmt::format(
          "model: {{family: gpt, num_layers: 8, hidden_size: 1024, num_attention_heads: 16, "
          "vocab_size: 51200, seq_length: 1024, flash_attention: true}}\nstack: none\n"
          "cluster: {{device: A100-80, devices_per_node: 16, intra: {{bandwidth: {}, latency: "
          "2 us}}}}\nschedule: {}\npipeline: {{{}}}\n",
          bandwidth, schedule, pipeline),
      "test.yaml");
}

double makespan_s(const Scenario& s, EngineChoice engine = EngineChoice::automatic) {
  return simulate(s, engine).timeline->makespan_s;
}
std::int64_t peak_bytes(const Scenario& s) {
  return summarize(simulate(s, EngineChoice::automatic)).devices[0].memory.use.total();
}
Communication of_shards(const Scenario& s) {
  const Simulation done = simulate(s, EngineChoice::automatic);
  return communication(done.input(), *done.timeline).inner[static_cast<std::size_t>(Axis::data)];
}

TEST(Sharding, DividesTheStatesThatItNames) {
  const std::string job = "stages: 1, width: 4, microbatches: 2, shard: ";
  const StageCosts none = scenario(job + "none").costs[0],
                   optimizer = scenario(job + "optimizer").costs[0],
                   gradients = scenario(job + "gradients").costs[0],
                   weights = scenario(job + "weights").costs[0];
  EXPECT_EQ(optimizer.optimizer_bytes, none.optimizer_bytes / 4);
  EXPECT_EQ(optimizer.gradient_bytes, none.gradient_bytes);
  EXPECT_EQ(gradients.optimizer_bytes, none.optimizer_bytes / 4);
  EXPECT_EQ(gradients.gradient_bytes, none.gradient_bytes / 4);
  EXPECT_EQ(gradients.weight_bytes, none.weight_bytes);
  EXPECT_EQ(weights.weight_bytes, none.weight_bytes / 4);
  EXPECT_EQ(weights.gradient_bytes, none.gradient_bytes / 4);
  EXPECT_EQ(scenario(job + "weights, shard_group: 2").costs[0].optimizer_bytes,
            none.optimizer_bytes / 2);
}

/// The closed form of one stage without tensor parallelism, unit by unit (embedding, eight layers,
/// LM head).
TEST(Sharding, OfWeightsHidesAllButTheFirstGatherAndTheLastReduction) {
  constexpr double kUnits = 10, kMembers = 4, kRate = 100e9, kLatency_s = 2e-6;
  for (const char* bandwidth : {"100 GB/s", "1 GB/s"}) {
    const double rate = std::string(bandwidth) == "100 GB/s" ? kRate : kRate / 100;
    const Scenario s = scenario("stages: 1, width: 4, microbatches: 3, shard: weights", bandwidth);
    const StageCosts whole = scenario("stages: 1, width: 4, shard: none").costs[0];
    // A ring: three steps of a quarter each.
    const auto ring_s = [&](double bytes, double calls) {
      return bytes * (kMembers - 1) / kMembers / rate + calls * (kMembers - 1) * kLatency_s;
    };
    const auto gathered = static_cast<double>(whole.weight_bytes);
    const auto reduced = static_cast<double>(whole.reduced_bytes);
    const double f = whole[OpKind::forward].seconds, b = whole[OpKind::backward].seconds;
    const double of_rest = (kUnits - 1) / kUnits;
    const double forward_s =
        ring_s(gathered / kUnits, 1) + std::max(f, ring_s(gathered * of_rest, kUnits - 1));
    const double backward_s = std::max(b, ring_s(gathered * of_rest, kUnits - 1) +
                                              ring_s(reduced * of_rest, kUnits - 1)) +
                              ring_s(reduced / kUnits, 1);
    EXPECT_NEAR(makespan_s(s), 3 * (forward_s + backward_s) + s.costs[0].step_s,
                1e-6 * makespan_s(s))
        << bandwidth;
  }
}

TEST(Sharding, GathersNewWeightsOnceAnUpdateWhereTheyStayWhole) {
  const auto gathered = [](const Scenario& s) { return of_shards(s).bytes; };
  const std::string job = "stages: 2, width: 4, microbatches: 8, ";
  const auto whole = static_cast<double>(scenario(job + "shard: none").costs[0].weight_bytes +
                                         scenario(job + "shard: none").costs[1].weight_bytes);
  // Each of four GPUs sends three quarters on.
  const double once = 3 * whole;
  EXPECT_NEAR(gathered(scenario(job + "shard: weights")), once, 1e-6 * once);
  EXPECT_NEAR(gathered(scenario(job + "shard: optimizer, reduction: {gather: first-forward}")),
              once, 1e-6 * once);
  EXPECT_GT(gathered(scenario(job + "shard: weights, reshard_after_forward: always")), 15 * once)
      << "8 forwards and 8 backwards, and gradients reduced each time";
}

TEST(Sharding, KeepsLessAndLessOnEachGpu) {
  const auto peak = [](const std::string& what) {
    return peak_bytes(scenario("stages: 1, width: 4, microbatches: 2, " + what));
  };
  EXPECT_GT(peak("shard: none"), peak("shard: optimizer"));
  EXPECT_GT(peak("shard: optimizer"), peak("shard: gradients"));
  EXPECT_GT(peak("shard: gradients"), peak("shard: weights"));
  EXPECT_GT(peak("shard: weights, shard_group: 2"), peak("shard: weights"));
  EXPECT_EQ(peak("shard: optimizer"), peak("distributed_optimizer: true"));
}

TEST(Sharding, GathersNothingAheadWhereNothingMayBeThereAhead) {
  const auto job = [](int ahead) {
    return scenario("stages: 1, width: 4, microbatches: 2, shard: weights, unshard_lookahead: " +
                    std::to_string(ahead));
  };
  const Scenario waits = job(0), usual = job(1), ahead = job(3);
  EXPECT_GT(makespan_s(waits), makespan_s(usual));
  EXPECT_EQ(makespan_s(ahead), makespan_s(usual)) << "layers are alike: one ahead hides as much";
  EXPECT_EQ(of_shards(waits).bytes, of_shards(usual).bytes);
  // Each layer ahead is there as a whole.
  const auto unit = usual.costs[0].forward_workspace_bytes - waits.costs[0].forward_workspace_bytes;
  const std::int64_t all = scenario("stages: 1, width: 4, shard: none").costs[0].weight_bytes;
  EXPECT_GT(unit, 0);
  EXPECT_EQ(ahead.costs[0].forward_workspace_bytes - waits.costs[0].forward_workspace_bytes,
            std::min(4 * unit, all) - unit);
}

TEST(Sharding, PrefetchesTheWeightsOfFurtherChunks) {
  const std::string job =
      "stages: 4, chunks: 2, width: 4, microbatches: 8, shard: optimizer, reduction: {overlap: "
      "backward, gather: ";
  const auto exposed_s = [&](const std::string& gather, const std::string& bandwidth) {
    const Scenario s = scenario(job + gather + "}", bandwidth, "interleaved-1f1b");
    return of_shards(s).exposed_s;
  };
  EXPECT_LT(makespan_s(scenario(job + "first-forward}", "20 GB/s", "interleaved-1f1b")),
            makespan_s(scenario(job + "after-step}", "20 GB/s", "interleaved-1f1b")));
  // The first chunk's own first layer is waited for; slow links leave more to wait for.
  EXPECT_GT(exposed_s("first-forward", "1 GB/s"), 20 * exposed_s("first-forward", "20 GB/s"));
}

TEST(Sharding, TakesEnginesTheSameTime) {
  std::mt19937 random(7);
  const auto pick = [&](const auto& of) { return of[random() % of.size()]; };
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    const std::vector<std::string> schedules{"1f1b",  "gpipe", "interleaved-1f1b",
                                             "zb-h1", "zb-v",  "dualpipe-v"};
    const std::string schedule = pick(schedules);
    const std::string chunks = schedule == "interleaved-1f1b" ? ", chunks: 2" : "";
    const std::string shard = pick(std::vector<std::string>{
        "shard: weights", "shard: weights, reshard_after_forward: always", "shard: gradients",
        "shard: gradients, reduction: {gather: first-forward}",
        "shard: optimizer, reduction: {overlap: backward, gather: first-forward}",
        "shard: optimizer, shard_group: 2", "shard: weights, shard_group: 2"});
    const std::string bandwidth = pick(std::vector<std::string>{"600 GB/s", "20 GB/s", "2 GB/s"});
    const Scenario s = scenario(fmt::format("stages: {}, width: 4{}, microbatches: {}, {}",
                                            schedule == "1f1b" ? 1 + 3 * (random() % 2) : 4, chunks,
                                            8 + 4 * (random() % 2), shard),
                                bandwidth, schedule);
    Simulation exact = prepare(s);
    if (!why_not_exact(exact.input()).empty()) continue;
    ++compared;
    run_engine(exact, EngineChoice::exact);
    const double expected_s = exact.timeline->makespan_s;
    EXPECT_NEAR(makespan_s(s, EngineChoice::simgrid), expected_s, 1e-9 * expected_s)
        << schedule << ' ' << shard << ' ' << bandwidth;
  }
  EXPECT_GT(compared, 5);
}

TEST(Sharding, SharesLinksWithTheRingOfContextRanks) {
  const Scenario s =
      scenario("stages: 1, width: 1, microbatches: 1, context: 2, shard: weights", "10 GB/s");
  Simulation prepared = prepare(s);
  ASSERT_NE(why_not_exact(prepared.input()), "");
  EXPECT_NEAR(makespan_s(s, EngineChoice::fluid), makespan_s(s, EngineChoice::simgrid),
              1e-6 * makespan_s(s, EngineChoice::simgrid));
}

TEST(Sharding, ReducesPartsWithinGroupsAndAcrossThem) {
  const auto reduced = [](const std::string& more) {
    const Simulation done =
        simulate(scenario("stages: 2, width: 4, microbatches: 4, shard: optimizer" + more),
                 EngineChoice::automatic);
    return communication(done.input(), *done.timeline).data.bytes;
  };
  const StageCosts whole = scenario("stages: 2, width: 4, microbatches: 4").costs[0],
                   last = scenario("stages: 2, width: 4, microbatches: 4").costs[1];
  const auto bytes = static_cast<double>(whole.reduced_bytes + last.reduced_bytes);
  // In two groups of two: each reduces a half to each member, and two all-reduce each half.
  EXPECT_NEAR(reduced(", shard_group: 2"), 2 * bytes + 2 * bytes, 1e-6 * bytes);
}

// Each GPU sends each other one a quarter of its quarter of the matrices, 12 h^2 a layer in bf16,
// on the link between the two, and gets as much back.
TEST(Sharding, OfWeightsMakesMuonExchangePiecesOfMatrices) {
  const auto step_s = [](const std::string& shard, const std::string& optimizer) {
    const std::string job = "stages: 1, width: 4, microbatches: 2, shard: ";
    return scenario(job + shard + "}\ntraining: {optimizer: " + optimizer).costs[0].step_s;
  };
  const double once_s = 2e-6 + 1.0 / 4 * (2.0 * 8 * 12 * 1024 * 1024 / 4) / 100e9;
  const double whole = step_s("optimizer", "muon") - step_s("optimizer", "adamw");
  EXPECT_GT(whole, 0);
  for (const char* shard : {"gradients", "weights"})
    EXPECT_NEAR(step_s(shard, "muon") - step_s(shard, "adamw") - whole, 2 * once_s, 1e-9) << shard;
}

TEST(Sharding, RefusesWhatMakesNoSense) {
  const auto refused = [](const std::string& keys, const std::string& why,
                          const std::string& schedule = "1f1b") {
    try {
      scenario("stages: 2, width: 4, microbatches: 4, " + keys, "100 GB/s", schedule);
      ADD_FAILURE() << keys;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused("shard: all", "none, optimizer, gradients, weights");
  refused("shard: weights, shard_group: 3", "must divide");
  refused("shard_group: 2", "needs 'shard'");
  refused("shard: none, distributed_optimizer: true", "says the contrary");
  refused("shard: optimizer, reshard_after_forward: never", "needs shard: weights");
  refused("shard: gradients", "several versions", "pipedream");
  refused("shard: gradients", "each stage on two devices", "dualpipe");
}

}  // namespace
}  // namespace penstock::sharding_test
