// SPDX-License-Identifier: Apache-2.0
// Studies say what a run of the changed scenario says: each is compared with that run itself.
#include "base/error.hpp"
#include "results/advice.hpp"
#include "results/perturbation_study.hpp"
#include "results/sensitivity.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::studies_test {
namespace {

/// Four stages, one of which takes `slow` for F and twice that for B.
std::string abstract(const std::string& slow, const std::string& more = "") {
  return fmt::format(
      "model: {{forward: [10 ms, {0}, 10 ms, 10 ms], backward: [20 ms, 28 ms, 20 ms, 20 ms], "
      "output: 48 MiB}}\n"
      "cluster: {{devices: 4, link: {{latency: 10 us, bandwidth: 25 GB/s}}}}\n"
      "schedule: 1f1b\npipeline: {{stages: 4, microbatches: 8}}\nbatches: 3\n{1}",
      slow, more);
}

Scenario parsed(const std::string& text) { return parse_scenario(text, "test.yaml"); }

Simulation simulated(const std::string& text) {
  return simulate(parsed(text), EngineChoice::exact);
}

double iteration_s(const std::string& text) { return iteration_time_s(simulated(text)).value(); }

const Sensitivity& change_named(const Sensitivities& found, const std::string& part) {
  const auto at = std::ranges::find_if(found.changes, [&](const Sensitivity& s) {
    return s.change.find(part) != std::string::npos;
  });
  if (at == found.changes.end()) throw InputError("test", "no change named " + part);
  return *at;
}

TEST(Sensitivities, AreTheTimesOfTheChangedRuns) {
  const Sensitivities found = study_sensitivities(simulated(abstract("14 ms")));
  EXPECT_EQ(found.none_because, "");
  const Sensitivity& faster = change_named(found, "stage 1 computes 10 % faster");
  EXPECT_TRUE(faster.of_stage) << "the stage with the most work";
  std::string text = abstract("12.6 ms");
  text.replace(text.find("28 ms"), 5, "25.2 ms");
  EXPECT_NEAR(faster.iteration_time_s, iteration_s(text), 1e-12);
  std::string wider = abstract("14 ms");
  wider.replace(wider.find("25 GB/s"), 7, "50 GB/s");
  EXPECT_NEAR(change_named(found, "twice the bandwidth").iteration_time_s, iteration_s(wider),
              1e-12);
  std::string longer = abstract("14 ms");
  longer.replace(longer.find("microbatches: 8"), 15, "microbatches: 16");
  EXPECT_NEAR(change_named(found, "twice the microbatches").iteration_time_s,
              iteration_s(longer) / 2, 1e-12);
}

TEST(Sensitivities, AreOfLinksThatOnlyTensorRanksUse) {
  // Within nodes nothing goes but what tensor ranks exchange, between them nothing but messages.
  const auto text = [](const char* within, const char* between) {
    return fmt::format(
        "model: gpt-1.3b\nstack: none\nschedule: 1f1b\nbatches: 3\n"
        "cluster: {{base: dgx-a100, nodes: 2, intra: {{bandwidth: {}}}, inter: {{bandwidth: "
        "{}}}}}\n"
        "pipeline: {{stages: 2, tensor: 8, microbatches: 4, sequence_parallel: true}}\n",
        within, between);
  };
  const Sensitivities found =
      study_sensitivities(simulate(parsed(text("100 GB/s", "10 GB/s")), EngineChoice::automatic));
  const auto seconds = [&](const char* within, const char* between) {
    return *iteration_time_s(simulate(parsed(text(within, between)), EngineChoice::automatic));
  };
  EXPECT_NEAR(change_named(found, "links within nodes").iteration_time_s,
              seconds("200 GB/s", "10 GB/s"), 1e-12);
  EXPECT_NEAR(change_named(found, "links between nodes").iteration_time_s,
              seconds("100 GB/s", "20 GB/s"), 1e-12);
}

TEST(Sensitivities, ThatTheBudgetDoesNotAffordAreCountedAsNotTried) {
  std::string text = abstract("14 ms");
  text.replace(text.find("batches: 3"), 10, "batches: 9000");
  const Simulation today = simulated(text);
  AdviceBudget usual, full(AdviceEffort::full);
  const auto some = study_sensitivities(today, usual).changes;
  const auto all = study_sensitivities(today, full).changes;
  EXPECT_LT(some.size(), all.size());
  EXPECT_EQ(static_cast<std::size_t>(usual.not_tried()), all.size() - some.size());
  EXPECT_EQ(full.not_tried(), 0);
}

const char* const kModel =
    "model: gpt-1.3b\nstack: none\ncluster: dgx-a100\nschedule: gpipe\n"
    "pipeline: {stages: 4, microbatches: 8, microbatch_size: 2, recompute: full}\nbatches: 3\n";

ChangesStudy changes_for(const Scenario& scenario) {
  const Simulation today = simulate(scenario, EngineChoice::automatic);
  return study_changes(today, summarize(today));
}

TEST(Advice, HelpsAsMuchAsItSays) {
  const Scenario today = parsed(kModel);
  const ChangesStudy study = changes_for(today);
  ASSERT_FALSE(study.found.empty());
  EXPECT_LE(study.found.size(), 2U);
  EXPECT_EQ(study.incomplete_because, "");
  const double before = summarize(simulate(today, EngineChoice::automatic)).samples_per_s;
  for (const Advice& advice : study.found) {
    std::vector<Override> changes;
    for (const std::string& set : advice.set) changes.push_back(parse_override(set));
    const Scenario other = parse_scenario(kModel, "test.yaml", changes);
    EXPECT_EQ(other.gpu_count(), today.gpu_count()) << advice.change;
    EXPECT_EQ(other.samples_per_update(), today.samples_per_update()) << advice.change;
    const double after = summarize(simulate(other, EngineChoice::automatic)).samples_per_s;
    EXPECT_NEAR(advice.time_ratio, before / after, 1e-9) << advice.change;
    EXPECT_LT(advice.time_ratio, 1) << advice.change;
  }
}

TEST(Advice, LeavesTheMemoryFreeThatTheScenarioLeaves) {
  // Without recomputation 30.4 s an update and 330 MiB left; with it 31.9 s.
  const auto advised = [](double headroom) {
    Scenario scenario = parsed(
        "model: llama-3-8b\nstack: none\ncluster: dgx-h100\nschedule: 1f1b\nbatches: 1\npipeline: "
        "{stages: 2, "
        "width: 4, microbatch_size: 1, global_batch_size: 256, split: [17, 15], recompute: full, "
        "recompute_method: block, recompute_layers: [2, 0], distributed_optimizer: true}\n");
    keep_free(scenario.cluster, headroom);
    const Simulation today = simulate(scenario, EngineChoice::automatic);
    const auto found = study_changes(today, summarize(today)).found;
    return std::ranges::any_of(found,
                               [](const Advice& a) { return a.change.starts_with("recompute"); });
  };
  EXPECT_TRUE(advised(0));
  EXPECT_FALSE(advised(0.05));
}

/// As `simulate` says it: with sensitivities and, where nothing fits, more GPUs.
Result helped(const std::string& text) {
  const Simulation today = simulate(parsed(text), EngineChoice::automatic);
  Result result = summarize(today);
  add_help(today, result);
  return result;
}

Result changed_by(const std::string& text, const Advice& advice) {
  std::vector<Override> changes;
  for (const std::string& set : advice.set) changes.push_back(parse_override(set));
  return summarize(simulate(parse_scenario(text, "test.yaml", changes), EngineChoice::automatic));
}

/// Neither sequence parallelism nor a distributed optimizer alone makes it fit.
const char* const kTight =
    "model: llama-3-8b\ncluster: {base: dgx-a100-40, nodes: 2}\nstack: megatron\nschedule: 1f1b\n"
    "pipeline: {stages: 2, tensor: 4, width: 2, microbatch_size: 2, microbatches: 8}\n";

TEST(Advice, CombinesWhatPeopleUseTogether) {
  const Result result = helped(kTight);
  ASSERT_FALSE(result.infeasible_because.empty());
  const auto combined = std::ranges::find_if(result.what_to_change, [](const Advice& a) {
    return a.change.find("sequence_parallel: true, distributed_optimizer: true") !=
           std::string::npos;
  });
  ASSERT_NE(combined, result.what_to_change.end());
  EXPECT_TRUE(combined->makes_it_fit);
  EXPECT_EQ(combined->gpus, 0);
  EXPECT_TRUE(changed_by(kTight, *combined).infeasible_because.empty());
}

TEST(Advice, ReducesGradientsBesideTheBackward) {
  const Result result = helped(
      "model: gpt-1.3b\nstack: {name: neutral}\nschedule: 1f1b\n"
      "cluster: {base: dgx-a100, nodes: 4, devices_per_node: 1, inter: {bandwidth: 100 Gbps, nics: "
      "1}}\n"
      "pipeline: {stages: 1, width: 4, microbatch_size: 16, microbatches: 1}\n");
  ASSERT_EQ(result.what_to_change.size(), 2U);
  EXPECT_EQ(result.what_to_change[0].change,
            "reduction.overlap: backward, distributed_optimizer: true");
  EXPECT_EQ(result.what_to_change[1].change, "reduction.overlap: backward");
}

TEST(Advice, CostsNoMoreThanItsBudgetUnlessItIsAskedFor) {
  std::string text = abstract("14 ms");
  text.replace(text.find("microbatches: 8"), 15, "microbatches: 4000");
  const Simulation today = simulate(parsed(text), EngineChoice::automatic);
  const auto helped_by = [&](AdviceEffort effort) {
    Result result = summarize(today);
    add_help(today, result, effort);
    return result;
  };
  const Result none = helped_by(AdviceEffort::none), usual = helped_by(AdviceEffort::usual),
               full = helped_by(AdviceEffort::full);
  EXPECT_TRUE(none.what_would_help.empty() && none.what_to_change.empty());
  EXPECT_EQ(none.help_not_tried, "");
  EXPECT_NE(usual.help_not_tried.find("--advice full"), std::string::npos);
  EXPECT_FALSE(usual.nothing_to_change) << "not all was tried";
  EXPECT_EQ(full.help_not_tried, "");
  EXPECT_GT(full.what_would_help.size(), usual.what_would_help.size());
  EXPECT_NE(full.nothing_to_change, !full.what_to_change.empty());
}

TEST(Advice, SaysHowManyGpusWouldDo) {
  const std::string text =
      "model: llama-3-70b\ncluster: dgx-h100\nstack: megatron\nschedule: 1f1b\n"
      "pipeline: {stages: 1, tensor: 8, microbatches: 16}\n";
  const Result result = helped(text);
  ASSERT_EQ(result.what_to_change.size(), 1U);
  const Advice& advice = result.what_to_change[0];
  EXPECT_TRUE(advice.makes_it_fit);
  EXPECT_EQ(advice.gpus, 24) << "two stages would need 78 GiB for weights and optimizer alone";
  EXPECT_TRUE(advice.change.starts_with(fmt::format("{} GPUs instead of 8, ", advice.gpus)));
  const Result after = changed_by(text, advice);
  EXPECT_TRUE(after.infeasible_because.empty());
  EXPECT_NEAR(advice.time_ratio, result.samples_per_s / after.samples_per_s,
              0.02 * advice.time_ratio);
}

TEST(Results, ReplicasOfAStageDoNotFitForOneReason) {
  const Simulation today = simulate(
      parsed("model: llama-3-8b\ncluster: dgx-a100-40\nstack: {name: neutral}\nschedule: 1f1b\n"
             "pipeline: {stages: 2, width: 4, microbatches: 4}\n"),
      EngineChoice::automatic);
  const std::vector<std::string> why = summarize(today).infeasible_because;
  ASSERT_EQ(why.size(), 2U);
  EXPECT_TRUE(why[0].starts_with("devices 0,2,4,6 need ") ||
              why[0].starts_with("devices 1,3,5,7 need "))
      << why[0];
}

TEST(Results, DevicesAreNamedInShort) {
  EXPECT_EQ(devices_text({3}), "3");
  EXPECT_EQ(devices_text({0, 1, 2, 5}), "0-2,5");
  EXPECT_EQ(devices_text({0, 4, 8, 12}), "0,4,8,12");
  EXPECT_EQ(devices_text({0, 4, 8, 12, 16}, true), "0,4,..,16");
  std::vector<int> ends;  // of pipelines of 16 that go both ways
  for (int d = 0; d < 2048; ++d)
    if (d % 16 == 0 || d % 16 == 15) ends.push_back(d);
  EXPECT_EQ(devices_text(ends, true), "0,15-16,..,2047 (256 in all)");
  EXPECT_EQ(devices_text({0, 4, 8, 12, 17}, true), "0,4,8,12,17") << "nothing tells the rest";
  EXPECT_EQ(devices_text({0, 4, 8, 12, 17}), "0,4,..,17");
}

TEST(Advice, IsNoneForADisturbedRun) {
  EXPECT_TRUE(changes_for(parsed(std::string(kModel) +
                                 "perturbations: {slow_devices: [{device: 1, factor: 2}]}\n"))
                  .found.empty());
}

TEST(Perturbations, CostTheDifferenceOfTheTwoRuns) {
  const std::string spec = "perturbations: {slow_devices: [{device: 2, factor: 1.5}]}\n";
  const auto study = study_perturbations(parsed(abstract("14 ms", spec)), EngineChoice::exact);
  ASSERT_TRUE(study);
  const double without = simulated(abstract("14 ms")).timeline->makespan_s,
               with = simulated(abstract("14 ms", spec)).timeline->makespan_s;
  EXPECT_GT(with, without);
  EXPECT_DOUBLE_EQ(study->undisturbed.makespan_s, without);
  EXPECT_DOUBLE_EQ(study->disturbed.value().makespan_s, with);
  ASSERT_EQ(study->costs.size(), 1U);
  EXPECT_EQ(study->costs[0].key, "slow_devices");
  EXPECT_NEAR(study->costs[0].more.value().makespan_s, with - without, 1e-12);
}

TEST(Perturbations, OfJitterAreItsRuns) {
  const std::string spec = "perturbations: {jitter: {spread: 5%, runs: 7, seed: 3}}\n";
  const auto study = study_perturbations(parsed(abstract("14 ms", spec)), EngineChoice::exact);
  ASSERT_TRUE(study && study->runs);
  EXPECT_EQ(study->runs->n, 7);
  const Percentiles& spread = study->runs->makespan_s.value();
  EXPECT_LE(spread.min, spread.p5);
  EXPECT_LE(spread.p5, spread.p50);
  EXPECT_LE(spread.p50, spread.p95);
  EXPECT_LE(spread.p95, spread.max);
  EXPECT_LT(spread.min, spread.max);
  EXPECT_DOUBLE_EQ(study->disturbed.value().makespan_s, spread.mean);
}

TEST(Perturbations, AreNoneWhereNothingDisturbs) {
  EXPECT_FALSE(study_perturbations(parsed(abstract("14 ms")), EngineChoice::exact));
}

}  // namespace
}  // namespace penstock::studies_test
