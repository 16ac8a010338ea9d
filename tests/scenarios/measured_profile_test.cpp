// SPDX-License-Identifier: Apache-2.0
// Profiles in scenarios: a file's sections as model and cluster, costs and makespans by hand.
#include "base/error.hpp"
#include "scenarios/scenario.hpp"
#include "schedules/lowering.hpp"
#include "sim/engine.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock::measured_profile_test {
namespace {

Scenario beside_tests(const std::string& text) {
  return parse_scenario(text,
                        std::string(std::getenv("PENSTOCK_SOURCE")) + "/tests/scenarios/test.yaml");
}

std::string error_of(const std::string& text) {
  try {
    beside_tests(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

const std::string kBoth = "model: profiles/tiny.yaml\ncluster: profiles/tiny.yaml\n";

std::string text(const std::string& pipeline, const std::string& model_and_cluster = kBoth) {
  return model_and_cluster + "schedule: gpipe-fifo\npipeline: {" + pipeline + "}\n";
}

bool has_note(const Scenario& s, const std::string& part) {
  for (const std::string& note : s.notes) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(Profile, StandsForModelAndCluster) {
  const Scenario s = beside_tests(text("stages: 2, microbatch_size: 2"));
  EXPECT_EQ(s.transformer->name, "tiny");
  EXPECT_EQ(s.cluster.name, "two small devices");
  EXPECT_EQ(s.cluster.devices_per_node, 2);
  EXPECT_DOUBLE_EQ(s.cluster.intra.latency_s, 10e-6);
  EXPECT_TRUE(s.cluster.device.peak_flops_per_s.empty());
}

TEST(Profile, CostsOfStagesAreThoseOfItsRows) {
  const Scenario s = beside_tests(text("stages: 2, microbatch_size: 2"));
  ASSERT_EQ(s.costs.size(), 2U);
  // Loaded rows: 0.1 + 2 * 1 + 0.4 and 0.1 + 2 * 1 + 0.9 ms.
  EXPECT_NEAR(s.costs[0][OpKind::forward].seconds, 2.5e-3, 1e-12);
  EXPECT_NEAR(s.costs[1][OpKind::forward].seconds, 3.0e-3, 1e-12);
  EXPECT_NEAR(s.costs[0][OpKind::backward].seconds, 5.0e-3, 1e-12);
  EXPECT_NEAR(s.costs[1][OpKind::backward].seconds, 6.0e-3, 1e-12);
  EXPECT_NEAR(s.costs[1][OpKind::backward_input].seconds, 3.0e-3, 1e-12)
      << "half of B where no parts were given";
  EXPECT_EQ(s.costs[0].output_bytes, 4 * 2 * 16 * 8);
  EXPECT_TRUE(has_note(s, "with 2 devices at work"));
}

TEST(Profile, OneDeviceIsAloneAndMayBeToldOtherwise) {
  const std::string one = "stages: 1, microbatch_size: 2";
  EXPECT_NEAR(beside_tests(text(one)).costs[0][OpKind::forward].seconds,
              (0.1 + 4 * 0.5 + 0.4 + 0.9) * 1e-3, 1e-12);
  const std::string told =
      "model: {base: profiles/tiny.yaml, measured_load: loaded}\ncluster: profiles/tiny.yaml\n";
  EXPECT_NEAR(beside_tests(text(one, told)).costs[0][OpKind::forward].seconds,
              (0.1 + 4 * 1.0 + 0.4 + 0.9) * 1e-3, 1e-12);
}

TEST(Profile, SimulatesToTheMakespanByHand) {
  const Scenario s = beside_tests(text("stages: 2, microbatch_size: 2, microbatches: 3"));
  const Program program = lower(*s.schedule, s.shape, s.lowering);
  const DependencyTable table(program.ops, program.placement, program.microbatches());
  const Traffic traffic(program, s.cluster, s.mesh);
  const SimulationInput input{program, table, s.costs, traffic};
  const auto timeline = simulate_exact(input);
  double end = 0;
  for (std::uint32_t g = 0; g < program.ops.size(); ++g) end = std::max(end, timeline.op(g).end_s);
  // 1,024 bytes at 1 MB/s and 10 us. Stage 1 is the slower one both ways: it begins when the first
  // message is there, then 3 F and 3 B without a gap; the last gradient travels; the last B and
  // STEP of stage 0.
  const double message = 10e-6 + 1024 / 1e6;
  const double by_hand = 2.5e-3 + message + 3 * 3.0e-3 + 3 * 6.0e-3 + message + 5.0e-3;
  EXPECT_NEAR(end, by_hand + s.costs[0].step_s, 1e-9);
  const double parameters = 2.0 * static_cast<double>(s.transformer->layer_parameters()) +
                            static_cast<double>(s.transformer->embedding_parameters());
  EXPECT_NEAR(s.costs[0].step_s, 20e-6 + parameters * 2e-9, 1e-12);
}

TEST(Profile, KeysCanBeChangedByBase) {
  const Scenario s =
      beside_tests(text("stages: 2, microbatch_size: 2",
                        "model: {base: profiles/tiny.yaml, num_layers: 8}\n"
                        "cluster: {base: profiles/tiny.yaml, intra: {latency: 1 ms}}\n"));
  EXPECT_NEAR(s.costs[0][OpKind::forward].seconds, (0.1 + 4 * 1.0 + 0.4) * 1e-3, 1e-12);
  EXPECT_DOUBLE_EQ(s.cluster.intra.latency_s, 1e-3);
  EXPECT_DOUBLE_EQ(s.cluster.intra.bytes_per_s, 1e6);
}

TEST(Profile, MicrobatchesBetweenSizesAreInterpolated) {
  const Scenario s = beside_tests(text("stages: 2, microbatch_size: 3"));
  EXPECT_NEAR(s.costs[0][OpKind::forward].seconds, (0.1 + 2 * 1.5 + 0.6) * 1e-3, 1e-12);
}

TEST(Profile, BalancedSplitFollowsTheMeasuredTimes) {
  const Scenario s = beside_tests(text("stages: 2, microbatch_size: 2, split: balanced"));
  EXPECT_EQ(s.layers, (std::vector<int>{2, 2}));
}

TEST(Profile, NeedsNoClusterAtAll) {
  EXPECT_NO_THROW(
      beside_tests(text("stages: 4, microbatch_size: 2", "model: profiles/tiny.yaml\n")));
}

TEST(Profile, WithoutTheSectionThatIsWantedIsRefused) {
  EXPECT_NE(error_of(text("stages: 2", "model: profiles/tiny.yaml\ncluster: profiles/model.yaml\n"))
                .find("the profile 'profiles/model.yaml' has no 'cluster'"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::measured_profile_test
