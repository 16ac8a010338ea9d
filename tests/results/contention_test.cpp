// SPDX-License-Identifier: Apache-2.0
// What neighbours that share memory do to ops, with slowdowns made up for the test.
#include "base/error.hpp"
#include "results/simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace penstock::contention_test {
namespace {

/// Ops and steps of 1 ms alone, messages that take no time.
std::string text(const std::string& interference, int microbatches, const std::string& load = "") {
  return fmt::format(
      "schedule: gpipe\nbatches: 1\ntransfers: free\n"
      "pipeline: {{stages: 2, microbatches: {}, microbatch_size: 1}}\n"
      "cluster: {{devices: 2, memory: 8 GiB}}\n"
      "stack: none\nmodel:\n  {{num_layers: 2, hidden_size: 8, num_attention_heads: 2, vocab_size: "
      "32,\n"
      "   seq_length: 16, precision: fp32,{}\n"
      "   measured: [{{microbatch_size: 1, layer: {{forward: 1 ms, backward: 1 ms}}}},\n"
      "     {{microbatch_size: 1, load: 2, layer: {{forward: 7 ms, backward: 7 ms}}}}],\n"
      "   measured_step: [{{overhead: 1 ms}}, {{load: 2, overhead: 7 ms}}]{}}}\n",
      microbatches, load.empty() ? "" : " measured_load: " + load + ",",
      interference.empty() ? "" : ",\n   measured_interference: " + interference);
}

Simulation run(const std::string& scenario) {
  return simulate(parse_scenario(scenario, "test.yaml"), EngineChoice::automatic);
}
double makespan_s(const std::string& scenario) { return run(scenario).timeline->makespan_s; }

TEST(Contention, OpsThatOverlapInPartAreSlowedByTheirShare) {
  // F0, F1, B1 one after the other; then B0 and the step of stage 1 meet; then the step of stage 0.
  const Simulation s = run(text("{products_by_steps: 2, steps_by_products: 3}", 1));
  EXPECT_NEAR(s.scenario.costs[0][OpKind::forward].seconds, 1e-3, 1e-9) << "met nobody";
  // B0 has a step beside it all the time; the step T = 1 + 2 (2 / T) has B0 for the first 2 ms.
  EXPECT_NEAR(s.scenario.costs[0][OpKind::backward].seconds, 2e-3, 1e-6);
  EXPECT_NEAR(s.scenario.costs[1].step_s, (1 + std::sqrt(17.0)) / 2 * 1e-3, 1e-6);
  EXPECT_NEAR(s.scenario.costs[1][OpKind::backward].seconds, 1e-3, 1e-9);
  EXPECT_NEAR(s.timeline->makespan_s, 6e-3, 1e-6);
}

TEST(Contention, WithoutASlowdownTimesAreThoseAlone) {
  EXPECT_DOUBLE_EQ(makespan_s(text("{}", 5)), makespan_s(text("", 5, "alone")));
}

TEST(Contention, ABubbleOnTheOtherDeviceIsNoContention) {
  const double alone = makespan_s(text("", 64, "alone"));
  const double beside = makespan_s(text("{products_by_products: 1.5}", 64));
  EXPECT_LT(beside, 1.5 * alone);
  EXPECT_GT(beside, 1.45 * alone) << "two of 130 slots are bubbles";
}

TEST(Contention, WhatWasFoundIsNotFoundOnceMore) {
  Simulation s = run(text("{products_by_products: 1.5, steps_by_steps: 2}", 8));
  const double once = s.timeline->makespan_s;
  run_engine(s, EngineChoice::automatic);
  EXPECT_DOUBLE_EQ(s.timeline->makespan_s, once);
}

TEST(Contention, OtherRowsMayBeAskedFor) {
  const std::string slow = "{products_by_products: 1.5}";
  EXPECT_DOUBLE_EQ(makespan_s(text(slow, 5, "alone")), makespan_s(text("", 5, "alone")));
  EXPECT_DOUBLE_EQ(makespan_s(text(slow, 5, "loaded")), makespan_s(text("", 5)));
  EXPECT_DOUBLE_EQ(makespan_s(text(slow, 5, "contended")), makespan_s(text(slow, 5)));
  EXPECT_THROW(run(text("", 5, "contended")), InputError);
}

}  // namespace
}  // namespace penstock::contention_test
