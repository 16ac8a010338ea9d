// SPDX-License-Identifier: Apache-2.0
// PipeDream's speed-ups over data parallelism (Narayanan et al., SOSP'19, table 1, time per epoch)
// for the models whose profiles are public, on clusters A (Azure NC24 v3, PCIe, 10 Gb/s) and B
// (p3.16xlarge, NVLink, 25 Gb/s). Nothing is calibrated on these rows: layer times are the
// profiles', bandwidths the data sheets'. The speed-ups come out too low, mostly because the
// published data-parallel runs reduced gradients far more slowly than the NICs allow:
// docs/validation.md has the table and the causes.
#include "results/simulation.hpp"
#include "tests/rig.hpp"
#include "tests/shared.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace penstock::pipedream_sosp19_test {
namespace {

struct Case {
  const char* profile;
  int profile_batch, batch;  ///< samples of the profile's minibatch, of the paper's
  const char* cluster;
  int nodes, gpus;
  const char* pipeline;  ///< PipeDream's configuration
  const char* inter;     ///< "": the data sheet's
};

/// PipeDream reduces inside each backward, as torch's DistributedDataParallel does.
constexpr const char* kVgg15To1 =
    "stages: 2, width: [15, 1], split: [31, 9], reduction: {overlap: backward}";
constexpr const char* kAlexNet15To1 =
    "stages: 2, width: [15, 1], split: [13, 9], reduction: {overlap: backward}";

std::string scenario(const Case& c, const std::string& schedule, const std::string& pipeline,
                     int batches) {
  const auto file = shared_folder() / "data/pipedream_profiles" / c.profile / "graph.txt";
  const std::string inter = *c.inter == '\0' ? "" : fmt::format(", inter: {}", c.inter);
  return fmt::format(
      "model: {{profile: '{}', profile_batch: {}, bytes_per_parameter: {{optimizer: 4}}}}\n"
      "cluster: {{base: {}, nodes: {}{}}}\nschedule: {}\nbatches: {}\n"
      "pipeline: {{{}, microbatch_size: {}}}\n",
      file.string(), c.profile_batch, c.cluster, c.nodes, inter, schedule, batches, pipeline,
      c.batch);
}

/// Links are shared, so SimGrid simulates.
double samples_per_s(const std::string& text) {
  return summarize(simulate(parse_scenario(text, "test"), EngineChoice::automatic)).samples_per_s;
}

double speed_up(const Case& c) {
  const std::string all =
      fmt::format("stages: 1, width: {}, reduction: {{overlap: backward}}", c.gpus);
  return samples_per_s(scenario(c, "pipedream", c.pipeline, 300)) /
         samples_per_s(scenario(c, "data-parallel", all, 4));
}

class PipedreamSosp19 : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = shared_folder() / "data/pipedream_profiles";
    SKIP_WITHOUT_SHARED(folder);
  }
};

struct Published {
  Case run;
  double speed_up;  ///< over data parallelism, time per epoch
  double ours;      ///< as in docs/validation.md, which this test keeps true
};

TEST_F(PipedreamSosp19, SpeedUpsAreThoseOfTheDocumentation) {
  const char* a = "azure-nc24v3";
  const char* b = "pipedream-b";
  const Published rows[] = {
      {{"vgg16", 128, 64, a, 4, 16, kVgg15To1, ""}, 5.28, 2.67},
      {{"vgg16", 128, 64, b, 2, 16, kVgg15To1, ""}, 2.98, 1.28},
      {{"alexnet", 256, 256, a, 4, 16, kAlexNet15To1, ""}, 4.92, 2.26},
      {{"alexnet", 256, 256, b, 2, 16, kAlexNet15To1, ""}, 2.04, 1.36},
      {{"gnmt_large", 64, 64, a, 1, 4, "stages: 4", ""}, 1.46, 0.98},
      {{"gnmt_large", 64, 64, a, 4, 16, "stages: 16", ""}, 2.34, 1.54},
      {{"gnmt_large", 64, 64, b, 2, 16, "stages: 16", ""}, 3.14, 0.71},
      {{"gnmt", 32, 64, a, 1, 4, "stages: 4", ""}, 1.5, 0.96},
      {{"gnmt", 32, 64, a, 3, 12, "stages: 12", ""}, 2.95, 2.67},
      {{"vgg16", 128, 64, b, 2, 16, kVgg15To1, "10 Gbps"}, 2.98, 2.66},
      {{"alexnet", 256, 256, b, 2, 16, kAlexNet15To1, "10 Gbps"}, 2.04, 2.47},
      {{"gnmt_large", 64, 64, b, 2, 16, "stages: 16", "10 Gbps"}, 3.14, 1.52},
  };
  for (const Published& row : rows) {
    EXPECT_NEAR(speed_up(row.run), row.ours, 0.02 * row.ours)
        << row.run.profile << " on " << row.run.gpus << " GPUs of " << row.run.cluster
        << ", published: " << row.speed_up;
  }
}

TEST_F(PipedreamSosp19, FourServersOfClusterAPreferPipelinesAsPublished) {
  const char* a = "azure-nc24v3";
  EXPECT_GT(speed_up({"vgg16", 128, 64, a, 4, 16, kVgg15To1, ""}), 2);
  EXPECT_GT(speed_up({"alexnet", 256, 256, a, 4, 16, kAlexNet15To1, ""}), 2);
  EXPECT_GT(speed_up({"gnmt_large", 64, 64, a, 4, 16, "stages: 16", ""}), 1.5);
}

TEST_F(PipedreamSosp19, FasterNetworksHelpDataParallelismMoreAsPublished) {
  for (const auto& [profile, size, batch, pipeline] :
       {std::tuple{"vgg16", 128, 64, kVgg15To1}, std::tuple{"alexnet", 256, 256, kAlexNet15To1}}) {
    EXPECT_GT(speed_up({profile, size, batch, "azure-nc24v3", 4, 16, pipeline, ""}),
              speed_up({profile, size, batch, "pipedream-b", 2, 16, pipeline, ""}))
        << profile;
  }
}

TEST_F(PipedreamSosp19, DataParallelismIsBestWherePipeDreamsOptimizerChoseIt) {
  // ResNet-50 on both clusters, GNMT-8 on B: the published speed-up is 1. The first pipeline is the
  // repository's for 16 GPUs.
  for (const char* pipeline : {"stages: 3, width: [8, 4, 4]", "stages: 2, width: [15, 1]"}) {
    EXPECT_LT(speed_up({"resnet50", 128, 128, "azure-nc24v3", 4, 16, pipeline, ""}), 1) << pipeline;
    EXPECT_LT(speed_up({"resnet50", 128, 128, "pipedream-b", 2, 16, pipeline, ""}), 1) << pipeline;
  }
  EXPECT_LT(speed_up({"gnmt", 32, 64, "pipedream-b", 2, 16, "stages: 16", ""}), 1);
}

// Why no setting of the network reproduces the table: below 6.5 Gb/s (7.5 with reductions after the
// backward) AlexNet's speed-up is more than 25 % too large, and from there on GNMT-16's is more
// than 25 % too small.
TEST_F(PipedreamSosp19, NoRateOfTheNicsBringsAllOfClusterBWithin25Percent) {
  const char* b = "pipedream-b";
  for (const bool beside : {true, false}) {
    const auto published = [&](Case c, const char* rate) {
      c.inter = rate;
      std::string pipeline = c.pipeline;
      const std::string with = "overlap: backward";
      if (const auto at = pipeline.find(with); !beside && at != std::string::npos)
        pipeline.replace(at, with.size(), "overlap: none");
      const std::string all =
          fmt::format("stages: 1, width: 16{}", beside ? ", reduction: {overlap: backward}" : "");
      return samples_per_s(scenario(c, "pipedream", pipeline, 100)) /
             samples_per_s(scenario(c, "data-parallel", all, 4));
    };
    const Case alexnet{"alexnet", 256, 256, b, 2, 16, kAlexNet15To1, ""};
    const Case gnmt{"gnmt_large", 64, 64, b, 2, 16, "stages: 16", ""};
    const char* between = beside ? "6.5 Gbps" : "7.5 Gbps";
    for (const char* rate : {"2 Gbps", "4 Gbps", between})
      EXPECT_GT(published(alexnet, rate), 1.25 * 2.04)
          << rate << ", beside the backward: " << beside;
    for (const char* rate : {between, "10 Gbps", "15 Gbps", "25 Gbps"})
      EXPECT_LT(published(gnmt, rate), 0.75 * 3.14) << rate << ", beside the backward: " << beside;
  }
}

TEST_F(PipedreamSosp19, SlowerNicsSlowThePipelineOfClusterAToo) {
  for (const char* rate : {"2 Gbps", "3 Gbps", "5 Gbps", "8 Gbps", "10 Gbps"}) {
    const Case alexnet{"alexnet", 256, 256, "azure-nc24v3", 4, 16, kAlexNet15To1, rate};
    EXPECT_LT(speed_up(alexnet), 0.75 * 4.92) << rate;
  }
}

}  // namespace
}  // namespace penstock::pipedream_sosp19_test
