// SPDX-License-Identifier: Apache-2.0
// GPT-2.2B on 8 V100 against figures 6 and 7 of PipeDream-2BW (Narayanan et al., ICML'21). Bars are
// read off the figures, +-1 sequence/s. No factor is tuned per schedule; the device's efficiency
// curve is one for all. Assumptions: docs/validation.md.
#include "results/sensitivity.hpp"
#include "tests/rig.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::pipedream_2bw_test {
namespace {

struct Outcome {
  double samples_per_s;
  double peak_gb;
  bool feasible;
};

Outcome run(const std::string& file, const std::vector<Override>& changes = {}) {
  const std::string path =
      std::string(std::getenv("PENSTOCK_SOURCE")) + "/scenarios/gpt-2.2b-" + file + ".yaml";
  const Simulation s = simulate(load_scenario(path, changes), EngineChoice::exact);
  const Result r = summarize(s);
  double peak = 0;
  for (const DeviceResult& d : r.devices)
    peak = std::max(peak, static_cast<double>(d.memory.use.total()));
  return {r.samples_per_s, peak / 1e9, r.infeasible_because.empty()};
}

/// Within 15 % of the ratio of two bars, or what reading each bar one sequence/s off can explain.
void expect_ratio(double got, double bar, double other) {
  const double published = bar / other;
  const double reading =
      std::max((bar + 1) / (other - 1) - published, published - (bar - 1) / (other + 1));
  EXPECT_NEAR(got, published, std::max(0.15 * published, reading)) << bar << " / " << other;
}

class Gpt22b : public testing::Test {
 protected:
  static Override m(int microbatches) { return {"microbatches", std::to_string(microbatches)}; }
  Outcome two_bw_64 = run("2bw"), flush_64 = run("flush"), gpipe_32 = run("gpipe"),
          parallel = run("model-parallel");
  Outcome two_bw_256 = run("2bw", {m(32)}), flush_256 = run("flush", {m(32)});
};

TEST_F(Gpt22b, SpeedUpsOf2bwAreThePapers) {
  expect_ratio(two_bw_64.samples_per_s / flush_64.samples_per_s, 43, 26);
  expect_ratio(two_bw_64.samples_per_s / gpipe_32.samples_per_s, 43, 18);
  expect_ratio(two_bw_64.samples_per_s / parallel.samples_per_s, 43, 7);
  expect_ratio(two_bw_256.samples_per_s / flush_256.samples_per_s, 44, 38);
  expect_ratio(two_bw_256.samples_per_s / gpipe_32.samples_per_s, 44, 18);
  expect_ratio(two_bw_256.samples_per_s / parallel.samples_per_s, 44, 7);
}

TEST_F(Gpt22b, SpeedUpsOf2bwAreWithin6PercentOfTheBarsThatCanBeReadThatWell) {
  EXPECT_NEAR(two_bw_64.samples_per_s / flush_64.samples_per_s, 43.0 / 26, 0.06 * 43 / 26);
  EXPECT_NEAR(two_bw_64.samples_per_s / gpipe_32.samples_per_s, 43.0 / 18, 0.06 * 43 / 18);
  EXPECT_NEAR(two_bw_256.samples_per_s / flush_256.samples_per_s, 44.0 / 38, 0.06 * 44 / 38);
}

TEST_F(Gpt22b, TheOtherRatiosAreWithin6PercentToo) {
  EXPECT_NEAR(two_bw_64.samples_per_s / parallel.samples_per_s, 6.1, 0.06 * 6.1);  // the text's
  EXPECT_NEAR(two_bw_256.samples_per_s / parallel.samples_per_s, 44.0 / 7, 0.06 * 44 / 7);
  EXPECT_NEAR(two_bw_256.samples_per_s / gpipe_32.samples_per_s, 44.0 / 18, 0.06 * 44 / 18);
}

TEST_F(Gpt22b, BertIsWithin15PercentWhereTheBubbleExplainsTheFigure) {
  const Override bert{"model", "bert-2.2b"};
  // Flush at 64 (+16 %) and GPipe at 64 (+21 %) miss that bar: docs/validation.md.
  EXPECT_NEAR(run("2bw", {bert}).samples_per_s, 46, 0.15 * 46);
  EXPECT_NEAR(run("2bw", {bert, m(32)}).samples_per_s, 47, 0.15 * 47);
  EXPECT_NEAR(run("flush", {bert, m(32)}).samples_per_s, 38, 0.15 * 38);
  EXPECT_NEAR(run("model-parallel", {bert}).samples_per_s, 7, 0.15 * 7);
  EXPECT_NEAR(run("flush", {bert}).peak_gb, 9.1, 0.15 * 9.1);
  EXPECT_NEAR(run("2bw", {bert}).peak_gb, 10.5, 0.15 * 10.5);
  EXPECT_NEAR(run("gpipe", {bert, m(8)}).peak_gb, 13.3, 0.15 * 13.3);
  EXPECT_FALSE(run("gpipe", {bert, m(32)}).feasible);
}

TEST_F(Gpt22b, TheOrderOfTheFiveSchedulesIsThePapers) {
  EXPECT_GT(two_bw_64.samples_per_s, flush_64.samples_per_s);
  EXPECT_GT(flush_64.samples_per_s, gpipe_32.samples_per_s);
  EXPECT_GT(gpipe_32.samples_per_s, parallel.samples_per_s);
  // PipeDream would be nearly as fast as 2BW, but its weight versions do not fit.
  const Outcome pipedream = run("pipedream");
  EXPECT_FALSE(pipedream.feasible);
  EXPECT_LT(pipedream.samples_per_s, two_bw_64.samples_per_s);
}

TEST_F(Gpt22b, MemoryPerGpuOfFlushAnd2bwIsWithin15Percent) {
  EXPECT_NEAR(flush_64.peak_gb, 10.1, 0.15 * 10.1);
  EXPECT_NEAR(two_bw_64.peak_gb, 11.3, 0.15 * 11.3);
  EXPECT_NEAR(parallel.peak_gb, 8.6, 0.15 * 8.6);
  EXPECT_TRUE(flush_64.feasible && two_bw_64.feasible && parallel.feasible);
}

TEST_F(Gpt22b, GPipeRunsOutOfMemoryAtBatch64And256) {
  EXPECT_FALSE(run("gpipe", {m(8)}).feasible);
  EXPECT_FALSE(run("gpipe", {m(32)}).feasible);
  EXPECT_TRUE(gpipe_32.feasible);
}

TEST_F(Gpt22b, ThroughputsAreTheBarsWithin6Percent) {
  // Not asked of ratios alone: the shared efficiency curve was read off figure 12 of the same
  // paper.
  EXPECT_NEAR(two_bw_64.samples_per_s, 43, 0.06 * 43);
  EXPECT_NEAR(two_bw_256.samples_per_s, 44, 0.06 * 44);
  EXPECT_NEAR(flush_64.samples_per_s, 26, 0.06 * 26);
  EXPECT_NEAR(flush_256.samples_per_s, 38, 0.06 * 38);
  EXPECT_NEAR(gpipe_32.samples_per_s, 18, 0.06 * 18);
  EXPECT_NEAR(parallel.samples_per_s, 7, 0.06 * 7);
}

TEST(WhatWouldHelp, EqualsARealRunOfTheChange) {
  // Replicas over nodes: wider links speed up the gradient reduction as well.
  const std::string text =
      "model: {forward: 1 s, backward: 2 s, output: 1 GB, gradients: 8 GB}\n"
      "cluster: {nodes: 2, devices_per_node: 2, intra: 4 GB/s, inter: {bandwidth: 2 GB/s, nics: "
      "2}}\n"
      "schedule: gpipe\nbatches: 2\npipeline: {stages: 2, width: 2, microbatches: 2, rank_order: "
      "pipeline-first}\n";
  const Simulation s = simulate(parse_scenario(text, "test"), EngineChoice::exact);
  const auto doubled = parse_scenario(
      text, "test", {{"cluster.intra", "8 GB/s"}, {"cluster.inter.bandwidth", "4 GB/s"}});
  const Result expected = summarize(simulate(doubled, EngineChoice::exact));
  bool found = false;
  for (const Sensitivity& h : study_sensitivities(s).changes) {
    if (h.change != "links of twice the bandwidth") continue;
    found = true;
    EXPECT_DOUBLE_EQ(h.iteration_time_s, expected.iteration_time_s.value());
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace penstock::pipedream_2bw_test
