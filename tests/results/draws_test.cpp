// SPDX-License-Identifier: Apache-2.0
// What differs from microbatch to microbatch, as a user asks for it: times by hand, engines that
// agree, memory of the GPU with most tokens, percentiles, and what is refused.
#include "base/error.hpp"
#include "results/samples.hpp"
#include "results/sensitivity.hpp"
#include "results/simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace penstock::draws_test {
namespace {

constexpr double kLayers = 4, kTokens = 1024, kHidden = 1024, kWidth = 2048, kChoices = 4;

/// A llama of 4 layers with 16 experts, of which a token visits 4, on GPUs with ports of their own.
std::string text(const std::string& pipeline, const std::string& more,
                 const std::string& schedule = "1f1b", const std::string& stack = "none") {
  return fmt::format(
      "model: {{family: llama, num_layers: 4, hidden_size: 1024, num_attention_heads: "
      "16, ffn_hidden_size: 4096, vocab_size: 32000, seq_length: 1024, "
      "flash_attention: true, num_experts: 16, experts_per_token: 4, "
      "expert_ffn_hidden_size: 2048}}\nstack: {}\n"
      "cluster: {{device: A100-80, devices_per_node: 16, intra: {{bandwidth: 100 GB/s, latency: 2 "
      "us, attachment: switch}}}}\nschedule: {}\npipeline: {{{}}}\n{}\n",
      stack, schedule, pipeline, more);
}
Scenario scenario(const std::string& pipeline, const std::string& more = "",
                  const std::string& schedule = "1f1b", const std::string& stack = "none") {
  return parse_scenario(text(pipeline, more, schedule, stack), "test.yaml");
}
std::string refusal(const std::string& pipeline, const std::string& more,
                    const std::string& schedule = "1f1b") {
  try {
    scenario(pipeline, more, schedule);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}
double makespan_s(const Scenario& s, EngineChoice engine = EngineChoice::automatic) {
  return simulate(s, engine).timeline->makespan_s;
}
std::int64_t peak_bytes(const Simulation& s, int device) {
  return memory_over_time(s.memory(), device).use.total();
}

const char* const kJob = "stages: 2, width: 4, expert: 4, microbatches: 4";

TEST(Draws, BalancedIsWhatItWasToTheLastBit) {
  for (const char* stack : {"none", "megatron", "megatron-kernels"}) {
    const Scenario plain = scenario(kJob, "", "1f1b", stack);
    for (const char* same :
         {"routing: {load: balanced}", "routing: {capacity_factor: 1, pad_to_capacity: true}",
          "routing: {load: hot-rank, hot_share: 0}", "documents: {lengths: [1024]}"}) {
      const Scenario given = scenario(kJob, same, "1f1b", stack);
      EXPECT_EQ(makespan_s(given), makespan_s(plain)) << same << " " << stack;
      for (std::size_t s = 0; s < plain.costs.size(); ++s) {
        EXPECT_FALSE(given.costs[s].drawn) << same;
        EXPECT_EQ(given.costs[s].activation_bytes, plain.costs[s].activation_bytes);
        for (std::size_t kind = 0; kind < 4; ++kind) {
          EXPECT_EQ(given.costs[s].ops[kind].seconds, plain.costs[s].ops[kind].seconds) << same;
          EXPECT_EQ(given.costs[s].ops[kind].recipe, plain.costs[s].ops[kind].recipe) << same;
          EXPECT_EQ(given.costs[s].ops[kind].flops, plain.costs[s].ops[kind].flops) << same;
        }
      }
    }
  }
}

/// The first of 4 GPUs gets twice the mean of the tokens. By hand: experts' products take twice as
/// long, three times of F, in each layer, and so do the four exchanges of a layer.
TEST(Draws, AHotRankTakesWhatItsTokensTake) {
  const std::string job = "stages: 1, width: 4, expert: 4, microbatches: 3";
  const Scenario even = scenario(job), hot = scenario(job, "routing: {load: hot-rank}");
  const DeviceSpec a100 = load_device("A100-80");
  const double rate = a100.peak_flops_per_s.at("bf16") * a100.efficiency_at(kHidden);
  const double experts_s = 2 * kTokens * kChoices * 3 * kHidden * kWidth / rate;
  const double exchange_s = kTokens * kChoices * kHidden * 2 * 3 / 4 / 100e9;
  EXPECT_NEAR(makespan_s(hot) - makespan_s(even), 3 * kLayers * (3 * experts_s + 4 * exchange_s),
              1e-9);
  EXPECT_EQ(hot.costs[0][OpKind::forward].flops, even.costs[0][OpKind::forward].flops)
      << "FLOPs of the model are those of its tokens";
}

/// What its experts keep of a token's choices: the input, what up makes, and the activation.
TEST(Draws, TheHotRankKeepsWhatItsTokensKeep) {
  const std::string job = "stages: 1, width: 4, expert: 4, microbatches: 1";
  const Simulation even = simulate(scenario(job), EngineChoice::exact);
  const Simulation hot = simulate(scenario(job, "routing: {load: hot-rank}"), EngineChoice::exact);
  const double kept = kLayers * kTokens * kChoices * 2 * (kHidden + 2 * kWidth + kWidth);
  const auto more = [&](int device) {
    return static_cast<double>(peak_bytes(hot, device) - peak_bytes(even, device));
  };
  EXPECT_NEAR(more(0), kept, 2.5e-3 * kept) << "twice as many tokens";
  EXPECT_NEAR(more(3), -kept / 3, 2.5e-3 * kept) << "the others have two thirds";
}

TEST(Draws, DocumentsTakeWhatTheirPairsTake) {
  const std::string job = "stages: 1, microbatches: 2";
  const Scenario whole = scenario(job), halves = scenario(job, "documents: {lengths: [512]}");
  const DeviceSpec a100 = load_device("A100-80");
  const double rate = a100.peak_flops_per_s.at("bf16") * a100.efficiency_at(kHidden);
  // Half of the pairs are masked; of these, half are left.
  const double attention_s = kLayers * 4 * kTokens * kTokens * kHidden / 2 / rate;
  const double saved_s = 2 * 3 * attention_s / 2;
  EXPECT_NEAR(makespan_s(whole) - makespan_s(halves), saved_s, 2e-3 * saved_s);
  EXPECT_NEAR(whole.costs[0][OpKind::forward].flops - halves.costs[0][OpKind::forward].flops,
              kLayers * 4 * kTokens * kTokens * kHidden / 2, 1);
}

TEST(Draws, LengthsAreReadFromAFile) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("lengths-{}.txt", getpid());
  std::ofstream(file) << "# tokens, how often\n512, 3\n\n1024\n";
  const std::string given = fmt::format("documents: {{file: {}}}", file.string());
  const DocumentsSpec documents = scenario("stages: 2", given).documents.value();
  EXPECT_EQ(documents.lengths, (std::vector<double>{512, 1024}));
  EXPECT_EQ(documents.weights, (std::vector<double>{3, 1}));
  std::ofstream(file) << "512\n12 13 14\n";
  EXPECT_NE(refusal("stages: 2", given).find(":2: must be a length in tokens, or 'length count'"),
            std::string::npos);
  std::ofstream(file) << "# none\n";
  EXPECT_NE(refusal("stages: 2", given).find("has no lengths"), std::string::npos);
  std::filesystem::remove(file);
}

TEST(Draws, EveryMicrobatchAndReplicaHasDocumentsOfItsOwn) {
  const Scenario s = scenario("stages: 1, width: 2, microbatches: 8",
                              "documents: {lengths: [64, 1024], weights: [3, 1]}");
  ASSERT_TRUE(s.costs[0].drawn);
  EXPECT_EQ(s.costs[0].drawn->times.size(), 16U);
  EXPECT_GT(s.costs[0].drawn->passes.size(), 4U);
  const Simulation done = simulate(s, EngineChoice::exact);
  EXPECT_NE(done.timeline->op(done.program.ops.begin(0)).end_s,
            done.timeline->op(done.program.ops.begin(1)).end_s);
}

TEST(Draws, EnginesAgree) {
  struct Case {
    std::string pipeline, more, schedule;
    bool exact;
  };
  for (const Case& c : std::vector<Case>{
           {"stages: 1, width: 4, expert: 4, microbatches: 4", "routing: {load: zipf, drift: 0.3}",
            "1f1b", true},
           {"stages: 2, microbatches: 4", "documents: {lengths: [64, 200, 1024]}", "zb-h1", true},
           {kJob, "routing: {load: rotating, period: 1}", "1f1b", false},
           {"stages: 2, width: 4, expert: 2, microbatches: 4",
            "routing: {load: burst}\ndocuments: {lengths: [64, 200, 1024]}", "1f1b", false},
           {"stages: 2, width: 2, expert: 2, microbatches: 8",
            "routing: {load: hot-experts, drift: 0.1}", "dualpipe", false},
           {"stages: 2, width: 2, microbatches: 4, context: 2",
            "documents: {lengths: [64, 200, 1024], context_division: sequences}", "zb-h1",
            false}}) {
    const Scenario s = scenario(c.pipeline, c.more, c.schedule);
    const double fluid = makespan_s(s, EngineChoice::fluid);
    EXPECT_NEAR(makespan_s(s, EngineChoice::simgrid), fluid, 1e-9 * fluid) << c.more;
    const bool exact = engine_for(prepare(s), EngineChoice::automatic) == EngineChoice::exact;
    EXPECT_EQ(exact, c.exact) << c.more;
    if (!exact) continue;
    EXPECT_NEAR(makespan_s(s, EngineChoice::exact), fluid, 1e-9 * fluid) << c.more;
  }
}

TEST(Draws, EveryScheduleButThoseThatSayNoTakesThem) {
  int taken = 0;
  for (const Schedule& schedule : schedules()) {
    for (const char* pipeline : {"stages: 2, width: 2, microbatches: 8",
                                 "stages: 2, microbatches: 4, accumulation_steps: 2",
                                 "width: 4, stages: 1, microbatches: 4"}) {
      std::optional<Scenario> s;
      try {
        s = scenario(pipeline, "documents: {lengths: [64, 1024]}", std::string(schedule.name));
      } catch (const InputError&) {
        continue;  // of its own reasons, or said in AreRefusedWhereTheyMeanNothing
      }
      const Simulation done = simulate(*s, EngineChoice::automatic);
      for (const StageCosts& c : s->costs) {
        ASSERT_TRUE(c.drawn) << schedule.name;
        EXPECT_EQ(c.drawn->times.size(), done.program.microbatches()) << schedule.name;
      }
      EXPECT_NEAR(makespan_s(*s, EngineChoice::fluid), done.timeline->makespan_s,
                  1e-9 * done.timeline->makespan_s)
          << schedule.name;
      ++taken;
    }
  }
  EXPECT_GT(taken, 40);
}

TEST(Draws, MoreImbalanceNeverTakesLess) {
  for (const char* stack : {"none", "megatron", "megatron-kernels"}) {
    for (const char* load : {"hot-rank", "hot-experts", "spread", "rotating", "burst"}) {
      double last = makespan_s(scenario(kJob, "", "1f1b", stack));
      for (const double share : {0.25, 0.3, 0.4, 0.6, 0.8, 1.0}) {
        const double now = makespan_s(scenario(
            kJob, fmt::format("routing: {{load: {}, hot_share: {}}}", load, share), "1f1b", stack));
        EXPECT_GE(now, last * (1 - 1e-12)) << load << " " << share << " " << stack;
        last = now;
      }
    }
    double last = 1e300;  // shorter documents never take more
    for (const int length : {1024, 900, 512, 300, 256, 128}) {
      const double now = makespan_s(
          scenario(kJob, fmt::format("documents: {{lengths: [{}]}}", length), "1f1b", stack));
      EXPECT_LE(now, last) << length << " " << stack;
      last = now;
    }
  }
}

TEST(Draws, ACapacityAndCopiesTakeLessThanTheImbalance) {
  const std::string hot = "load: hot-rank, hot_experts: 2";
  const double plain = makespan_s(scenario(kJob, "routing: {" + hot + "}"));
  const double capped = makespan_s(scenario(kJob, "routing: {" + hot + ", capacity_factor: 1.25}"));
  const double padded = makespan_s(
      scenario(kJob, "routing: {" + hot + ", capacity_factor: 1.25, pad_to_capacity: true}"));
  EXPECT_LT(capped, plain);
  EXPECT_GE(padded, capped);
  EXPECT_LT(padded, plain);
  EXPECT_EQ(padded,
            makespan_s(scenario(kJob, "routing: {capacity_factor: 1.25, pad_to_capacity: true}")))
      << "padded, it does not matter who was chosen";
}

/// Each of 4 GPUs has room for one expert more in its two layers: weights and gradients.
TEST(Draws, CopiesOfExpertsCostMemoryAndExchanges) {
  const std::string hot = "load: hot-rank, hot_experts: 2";
  const Scenario without = scenario(kJob, "routing: {" + hot + "}");
  const Scenario with = scenario(kJob, "routing: {" + hot + ", redundant_experts: 4}");
  const double of_expert = 2 * 3 * kHidden * kWidth;
  EXPECT_NEAR(static_cast<double>(with.costs[0].weight_bytes - without.costs[0].weight_bytes),
              2 * of_expert, 1);
  EXPECT_NEAR(static_cast<double>(with.costs[0].gradient_bytes - without.costs[0].gradient_bytes),
              4 * of_expert, 1);
  EXPECT_EQ(with.costs[0].optimizer_bytes, without.costs[0].optimizer_bytes);
  EXPECT_EQ(with.costs[0][OpKind::forward].recipe.segments.size(),
            without.costs[0][OpKind::forward].recipe.segments.size() + 1);
  const auto tokens = [](const Scenario& s) {
    return draw_microbatches(const_cast<Scenario&>(s), 0).mean_rows;
  };
  EXPECT_LT(tokens(with), tokens(without));
}

TEST(Draws, WhatComputesFasterDoesSoInEveryMicrobatch) {
  Scenario s = scenario("stages: 1, microbatches: 4", "documents: {lengths: [64, 1024]}");
  const std::shared_ptr<const DrawnCosts> before = s.costs[0].drawn;
  const double makespan = makespan_s(s), first_s = before->passes[0].ops[0].seconds;
  s.costs[0].for_each_compute_s([](double& seconds) { seconds /= 2; });
  EXPECT_EQ(before->passes[0].ops[0].seconds, first_s) << "others have it, too";
  EXPECT_NEAR(makespan_s(s), makespan / 2 + s.costs[0].step_s / 2, 1e-12 + 1e-9 * makespan);
}

TEST(Draws, WhatWouldHelpIsStudiedWithAsManyMicrobatchesAsItHas) {
  const Simulation today =
      simulate(scenario("stages: 2, microbatches: 4", "documents: {lengths: [64, 1024]}"),
               EngineChoice::exact);
  const auto changes = study_sensitivities(today).changes;
  const auto longer = std::ranges::find_if(changes, [](const Sensitivity& change) {
    return change.change.starts_with("twice the microbatches");
  });
  ASSERT_NE(longer, changes.end());
  EXPECT_LT(longer->iteration_time_s, *iteration_time_s(today));
  EXPECT_GT(longer->iteration_time_s, 0.7 * *iteration_time_s(today));
}

TEST(Draws, SamplesAreQuantilesInOrder) {
  const Scenario s = scenario(kJob, "routing: {load: zipf}\ndocuments: {lengths: [64, 1024]}");
  const SampleStudy study = study_samples(s, EngineChoice::automatic, 40);
  EXPECT_EQ(study.n, 40);
  EXPECT_TRUE(study.differ);
  for (const Quantiles& q :
       {study.iteration_time_s, study.peak_memory_bytes, study.bubble_fraction}) {
    EXPECT_LT(q.p5, q.p50);
    EXPECT_LT(q.p50, q.p95);
    EXPECT_LE(q.p95, q.worst);
  }
  EXPECT_GT(study.tokens_per_s->p50, study.tokens_per_s->worst);
  const SampleStudy again = study_samples(s, EngineChoice::automatic, 40);
  EXPECT_EQ(again.iteration_time_s.p95, study.iteration_time_s.p95) << "whatever core drew it";
  EXPECT_EQ(study_samples(s, EngineChoice::automatic, 1).iteration_time_s.p50,
            iteration_time_s(simulate(s, EngineChoice::automatic)))
      << "the first draw is the scenario's";
}

TEST(Draws, OfWhatIsNotDrawnOneAnswerStandsForAll) {
  const Scenario s = scenario(kJob, "routing: {load: hot-rank}");
  const SampleStudy study = study_samples(s, EngineChoice::automatic, 1000);
  EXPECT_FALSE(study.differ);
  EXPECT_EQ(study.iteration_time_s.p5, study.iteration_time_s.worst);
}

TEST(Draws, AreRefusedWhereTheyMeanNothing) {
  struct Case {
    std::string pipeline, more, schedule, said;
  };
  for (const Case& c : std::vector<Case>{
           {kJob, "routing: {load: zipff}", "1f1b", "did you mean 'zipf'"},
           {kJob, "routing: {exponent: 2}", "1f1b", "has a meaning with load: zipf only"},
           {kJob, "routing: {load: zipf, hot_share: 0.3}", "1f1b", "hot-experts, hot-rank"},
           {kJob, "routing: {load: zipf, period: 3}", "1f1b", "rotating or burst only"},
           {kJob, "routing: {load: hot-rank, seed: 3}", "1f1b", "nothing else is drawn"},
           {kJob, "routing: {load: histogram}", "1f1b", "needs the tokens of each expert"},
           {kJob, "routing: {histogram: [1, 2, 3]}", "1f1b", "lists 3 experts, a layer has 16"},
           {kJob, "routing: {histogram: 3}", "1f1b", "must be a list of numbers"},
           {kJob, "routing: {histogram: [1, -2]}", "1f1b", "must be a list of numbers"},
           {kJob, "routing: {histogram: [90, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}", "1f1b",
            "none has more than 25"},
           {kJob, "routing: {capacity_factor: 0}", "1f1b", "must be more than 0"},
           {kJob, "routing: {pad_to_capacity: true}", "1f1b", "which is missing"},
           {kJob, "routing: {redundant_experts: 17}", "1f1b", "a layer has 16 experts, got 17"},
           {"stages: 2", "routing: {redundant_experts: 2}", "1f1b", "pipeline.expert of 2 or more"},
           {"stages: 2", "documents: {seed: 3}", "1f1b", "needs either 'lengths' or a 'file'"},
           {"stages: 2", "documents: {lengths: [64], file: x}", "1f1b", "either"},
           {"stages: 2", "documents: {lengths: [0]}", "1f1b", "a whole number of tokens, got 0"},
           {"stages: 2", "documents: {lengths: [1.5]}", "1f1b", "a whole number of tokens"},
           {"stages: 2", "documents: {lengths: [1, 2], weights: [1]}", "1f1b", "lists 1 lengths"},
           {"stages: 2", "documents: {lengths: [1], weights: [0]}", "1f1b", "of more than 0"},
           {"stages: 2", "documents: {file: no-such-lengths.txt}", "1f1b", "no-such-lengths.txt"},
           {"stages: 2, microbatches: 4, recompute: full", "documents: {lengths: [64]}",
            "torchgpipe", "checkpoint: always"},
           {"stages: 2, microbatches: 4", "documents: {lengths: [64]}", "timeprest",
            "one backward for all"},
           {"stages: 2, microbatches: 1000000", "documents: {lengths: [1]}", "1f1b",
            "documents, more than"},
           {"stages: 1, expert: 4, width: 4, microbatches: 20000000", "routing: {drift: 1}", "1f1b",
            "steps of experts"}})
    EXPECT_NE(refusal(c.pipeline, c.more, c.schedule).find(c.said), std::string::npos)
        << c.more << "\n"
        << refusal(c.pipeline, c.more, c.schedule);
}

TEST(Draws, AreOfModelsByShape) {
  const auto refused = [](const std::string& model) {
    try {
      parse_scenario(model + "\nschedule: gpipe\npipeline: {stages: 2}\n", "test.yaml");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused("model: {forward: 1 s, backward: 2 s}\ndocuments: {lengths: [64]}")
                .find("follows from a model's shape"),
            std::string::npos);
  EXPECT_NE(
      refused("model: gpt-1.3b\ncluster: dgx-a100\nrouting: {load: zipf}").find("has no experts"),
      std::string::npos);
  EXPECT_NE(refused("model: gpt-1.3b\ncluster: dgx-a100\ndocuments: {lengths: [64]}")
                .find("flash_attention: true"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::draws_test
