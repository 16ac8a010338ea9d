// SPDX-License-Identifier: Apache-2.0
// Models by PipeDream's layer profiles: how a scenario names them, splits them and scales them.
#include "base/error.hpp"
#include "scenarios/scenario.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock::profile_test {
namespace {

/// A folder with a profile of four layers.
class ProfiledModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("penstock-profile-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "graph.txt") << kGraph;
    std::ofstream(folder_ / "wrong.txt") << "node1 -- a\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Scenario read(const std::string& model, const std::string& pipeline,
                const std::string& rest = "schedule: gpipe\n") const {
    return parse_scenario("model: " + model + "\npipeline: " + pipeline + "\n" + rest,
                          (folder_ / "test.yaml").string());
  }
  std::string error_of(const std::string& model, const std::string& pipeline) const {
    try {
      read(model, pipeline);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }
  void expect_error(const std::string& model, const std::string& pipeline,
                    const std::string& part) const {
    const std::string error = error_of(model, pipeline);
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }

  static constexpr const char* kGraph =
      "node1 -- Input -- forward_compute_time=9, backward_compute_time=0, activation_size=64, "
      "parameter_size=0\n"
      "node2 -- Conv2d(1) -- forward_compute_time=1, backward_compute_time=2, activation_size=100, "
      "parameter_size=40000000\n"
      "node3 -- Conv2d(2) -- forward_compute_time=1, backward_compute_time=2, activation_size=50, "
      "parameter_size=40000000\n"
      "node4 -- Linear(3) -- forward_compute_time=1, backward_compute_time=1, activation_size=8, "
      "parameter_size=80\n"
      "node5 -- Linear(4) -- forward_compute_time=1, backward_compute_time=2, activation_size=8, "
      "parameter_size=80 -- stage_id=1\n"
      "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode4 -- node5\n";
  std::filesystem::path folder_;
};

TEST_F(ProfiledModel, IsNamedByItsFileOrByAKey) {
  for (const char* model : {"graph.txt", "{profile: graph.txt}", "{base: graph.txt, name: four}"}) {
    const Scenario s = read(model, "{stages: 1}");
    EXPECT_FALSE(s.transformer) << model;
    EXPECT_EQ(s.profile->layers.size(), 4U) << model;
    EXPECT_DOUBLE_EQ(s.costs[0][OpKind::forward].seconds, 0.004) << model;
  }
}

TEST_F(ProfiledModel, IsSplitByCostUnlessSaidOtherwise) {
  EXPECT_EQ(read("graph.txt", "{stages: 2}").layers, (std::vector<int>{2, 2}));
  EXPECT_EQ(read("graph.txt", "{stages: 2, split: [1, 3]}").layers, (std::vector<int>{1, 3}));
  EXPECT_EQ(read("graph.txt", "{stages: 2, split: even}").layers, (std::vector<int>{2, 2}));
  expect_error("graph.txt", "{stages: 3, split: even}", "4 layers do not divide evenly");
  expect_error("graph.txt", "{stages: 2, split: [1, 2]}", "adds up to 3 layers, the model has 4");
  expect_error("graph.txt", "{stages: 5}", "4 layers cannot fill 5 stages");
}

TEST_F(ProfiledModel, ReplicasCountInTheBalance) {
  const Scenario s =
      read("graph.txt", "{stages: 2, width: [3, 1]}", "schedule: pipedream\nbatches: 6\n");
  EXPECT_EQ(s.layers, (std::vector<int>{3, 1}));
}

TEST_F(ProfiledModel, TimesAreScaledFromTheProfilesBatch) {
  const Scenario s = read("{profile: graph.txt, profile_batch: 128}",
                          "{stages: 2, microbatch_size: 32, split: [2, 2]}");
  EXPECT_DOUBLE_EQ(s.costs[0][OpKind::backward].seconds, 0.001);
  EXPECT_EQ(s.costs[0].output_bytes, 13);  // 12.5
  EXPECT_EQ(s.costs[0].weight_bytes, 80'000'000);
  EXPECT_EQ(read("graph.txt", "{stages: 2, microbatch_size: 32}").costs[0].output_bytes, 50);
}

TEST_F(ProfiledModel, ParametersHaveTheBytesThatAreAskedFor) {
  const Scenario s =
      read("{profile: graph.txt, bytes_per_parameter: {optimizer: 4}}", "{stages: 1}");
  EXPECT_EQ(s.costs[0].optimizer_bytes, s.costs[0].weight_bytes);
  EXPECT_EQ(read("graph.txt", "{stages: 1}").costs[0].optimizer_bytes, 2 * s.costs[0].weight_bytes);
}

TEST_F(ProfiledModel, BucketsFollowItsLayers) {
  const Scenario s = read("graph.txt", "{stages: 1, width: 2, reduction: {overlap: backward}}");
  ASSERT_EQ(s.reduction.buckets[0].size(), 2U);  // two layers of more than 25 MiB
  EXPECT_DOUBLE_EQ(s.reduction.buckets[0][0].ready, 5.0 / 7);
  EXPECT_NEAR(s.reduction.buckets[0][0].share, 0.5, 1e-5);
}

TEST_F(ProfiledModel, WhatItWasTakenFromIsNoted) {
  const Scenario s = read("{profile: graph.txt, profile_batch: 2}", "{stages: 1}");
  ASSERT_EQ(s.notes.size(), 2U);
  EXPECT_EQ(s.notes[0],
            "costs of the stages from a profile of 4 layers of a batch of 2, times 0.5");
  EXPECT_EQ(s.notes[1], "the profile's stage ids are not used; give pipeline.split");
}

TEST_F(ProfiledModel, MistakesAreNamedWhereTheyStand) {
  expect_error("{profile: wrong.txt}", "{stages: 1}", "wrong.txt:1:1: a layer is");
  expect_error("{profile: absent.txt}", "{stages: 1}", "test.yaml:1:18: the profile file");
  expect_error("absent.txt", "{stages: 1}", "test.yaml:1:8: the model file");
  expect_error("{profile: graph.txt, hidden_size: 5}", "{stages: 1}",
               "test.yaml:1:29: 'hidden_size' has no meaning for a model by profile");
  expect_error("{profile: graph.txt, forward: 1 s}", "{stages: 1}", "'forward' has no meaning");
  expect_error("{profile: graph.txt, profile_batch: 0}", "{stages: 1}", "'profile_batch' must be");
  expect_error("graph.txt", "{stages: 1, tensor: 2}", "'tensor' needs a model by shape");
  expect_error("graph.txt", "{stages: 1, recompute: selective}", "needs a model by shape");
  expect_error("{num_layers: 4, profile_batch: 3}", "{stages: 1}",
               "'profile_batch' needs 'profile'");
}

}  // namespace
}  // namespace penstock::profile_test
