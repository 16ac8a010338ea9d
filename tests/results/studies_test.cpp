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
        "model: gpt-1.3b\nschedule: 1f1b\nbatches: 3\n"
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

TEST(Sensitivities, OfARunTooLargeToRepeatAreLeftOut) {
  std::string text = abstract("14 ms");
  text.replace(text.find("batches: 3"), 10, "batches: 9000");
  const Sensitivities found = study_sensitivities(simulated(text));
  EXPECT_TRUE(found.changes.empty());
  EXPECT_NE(found.none_because.find("what would help is left out"), std::string::npos);
}

const char* const kModel =
    "model: gpt-1.3b\ncluster: dgx-a100\nschedule: gpipe\n"
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
        "model: llama-3-8b\ncluster: dgx-h100\nschedule: 1f1b\nbatches: 1\npipeline: {stages: 2, "
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
