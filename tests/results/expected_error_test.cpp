// SPDX-License-Identifier: Apache-2.0
// What a prediction may be off by is said of the measured runs that are like the job, and where
// there are none, that there are none.
#include "results/expected_error.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace penstock::expected_error_test {
namespace {

/// A job of two stages.
Json error_of(const std::string& stack, const std::string& cluster,
              const std::string& pipeline = ", width: 4", const std::string& model = "") {
  const Scenario scenario = parse_scenario(
      fmt::format("model: {{base: llama-3-8b{}}}\ncluster: {}\nstack: {}\nschedule: 1f1b\n"
                  "pipeline: {{stages: 2, microbatches: 4{}}}\n",
                  model, cluster, stack, pipeline),
      "test.yaml");
  return expected_error(scenario).value();
}

const char* const kNanotron = "nanotron on H100 (Ultra-Scale Playbook, regular ones)";

TEST(ExpectedError, IsThatOfMeasuredRunsOfTheSameKind) {
  const Json error = error_of("nanotron", "dgx-h100");
  EXPECT_TRUE(error.at("near").get<bool>());
  EXPECT_EQ(error.at("differs").get<std::string>(), "");
  EXPECT_EQ(error.at("basis").get<std::string>(),
            fmt::format("{}, tensor <= 8, in pipelines", kNanotron));
  const auto runs = std::ranges::find(measured_runs(), error.at("basis").get<std::string>(),
                                      &MeasuredRuns::called);
  ASSERT_NE(runs, measured_runs().end());
  EXPECT_EQ(error.at("fraction").get<double>(), runs->median);
  EXPECT_EQ(error.at("nine_of_ten").get<double>(), runs->p90);
  EXPECT_EQ(error.at("memory_fraction").get<double>(), runs->memory_median);
  EXPECT_EQ(error.at("runs").get<int>(), runs->runs);
  EXPECT_TRUE(expected_error_text(error).starts_with("± "));
}

TEST(ExpectedError, FollowsDegreesAndChips) {
  const auto basis = [](const Json& error) { return error.at("basis").get<std::string>(); };
  const char* const nodes = "{base: dgx-h100, nodes: 32}";
  EXPECT_EQ(basis(error_of("nanotron", nodes, ", width: 4, tensor: 16",
                           ", num_key_value_heads: 32, vocab_size: 131072")),
            fmt::format("{}, tensor 16", kNanotron));
  EXPECT_EQ(basis(error_of("megatron-deepspeed", "{base: dgx-a100-40, nodes: 4}", ", tensor: 4")),
            "Megatron-DeepSpeed on A100 (bigscience)");
}

/// Each differs in one thing from what was measured.
TEST(ExpectedError, OfAnotherKindSaysInWhatItDiffers) {
  const auto differs = [](const Json& error) {
    EXPECT_FALSE(error.at("near").get<bool>());
    EXPECT_TRUE(expected_error_text(error).starts_with("unknown, no such runs were measured"));
    return error.at("differs").get<std::string>();
  };
  EXPECT_EQ(differs(error_of("megatron-b200-node", "dgx-h100")), "on H100");
  EXPECT_EQ(differs(error_of("nanotron", "dgx-h100", ", width: 4", ", precision: fp32")),
            "in fp32");
  EXPECT_EQ(differs(error_of("nanotron", "dgx-h100", ", width: 4", ", missing: its experts")),
            "parts left out");
  EXPECT_EQ(differs(error_of("nanotron", "{base: dgx-h100, nodes: 200}", ", width: 800")),
            "1600 GPUs");
  EXPECT_EQ(differs(error_of("nanotron", "{base: dgx-h100, nodes: 2}", ", width: 4, context: 2")),
            "sequences divided");
  EXPECT_EQ(differs(error_of("deepspeed", "dgx-h100")), "stack deepspeed");
  EXPECT_EQ(differs(error_of("{base: nanotron, matrix_efficiency: 30%}", "dgx-h100")),
            "numbers of the stack changed");
  EXPECT_EQ(differs(error_of("nanotron",
                             "{base: dgx-h100, device: {base: h100, peak: {bf16: 500 TFLOP/s}}}")),
            "numbers of the device changed");
}

TEST(ExpectedError, OfAnotherKindPromisesNothing) {
  const Json error = error_of("nanotron", "dgx-h100", ", width: 4", ", precision: fp32");
  for (const char* promise : {"fraction", "nine_of_ten", "memory_fraction"})
    EXPECT_TRUE(error.at(promise).is_null()) << promise;
  EXPECT_EQ(error.at("nearest").size(), 1u);
  EXPECT_EQ(error.at("nearest")[0].at("basis"), error.at("basis"));
}

/// The bases of the nearest runs, and of those that tell how much more to expect.
std::vector<std::string> bases(const Json& error) {
  std::vector<std::string> said;
  for (const Json& runs : error.at("nearest")) said.push_back(runs.at("basis").get<std::string>());
  return said;
}

/// A stack that was fitted on another chip is off by more than on that one, and so it was measured.
TEST(ExpectedError, OnAnotherChipSaysWhatCarryingAStackCost) {
  const Json error =
      error_of("megatron-b200-node", "{base: dgx-a100, nodes: 8}", ", width: 8, tensor: 4");
  EXPECT_EQ(bases(error),
            (std::vector<std::string>{
                "Megatron on 8 B200 (SimuMax, layers of Llama 3)",
                "Megatron-DeepSpeed on V100 (bigscience), by a stack fitted on A100",
                "Megatron-DeepSpeed on A100 (bigscience), predicted without a stack"}));
  const Json& nearest = error.at("nearest");
  for (std::size_t i = 1; i < nearest.size(); ++i)
    EXPECT_GT(nearest[i].at("fraction").get<double>(), nearest[0].at("fraction").get<double>());
  // The text names the worst of these.
  EXPECT_NE(expected_error_text(error).find("; expect more: 75 runs of Megatron-DeepSpeed on A100"),
            std::string::npos)
      << expected_error_text(error);
}

TEST(ExpectedError, TakesFourLinesOfATableAtMost) {
  for (const char* stack : {"megatron", "nanotron", "deepspeed"})
    for (const char* node : {"dgx-h100", "dgx-a100", "dgx-b200"}) {
      const std::string text = how_sure_text(
          error_of(stack, fmt::format("{{base: {}, nodes: 8}}", node), ", width: 8, tensor: 4"));
      EXPECT_LE(std::ranges::count(text, '\n'), 4) << text;
    }
}

/// Of the chip, the software that is predicted worst: the job's may be as far off.
TEST(ExpectedError, OfAnotherStackSaysWhatOthersOnTheChipWereOffBy) {
  EXPECT_EQ(bases(error_of("deepspeed", "dgx-h100")),
            (std::vector<std::string>{
                fmt::format("{}, tensor <= 8, in pipelines", kNanotron),
                "nanotron on H100 (Ultra-Scale Playbook), predicted without a stack"}));
}

TEST(ExpectedError, ComparesLinks) {
  const auto differs = [](const std::string& cluster) {
    return error_of("nanotron", cluster, ", width: 8").at("differs").get<std::string>();
  };
  EXPECT_EQ(differs("{base: dgx-h100, nodes: 2}"), "");
  EXPECT_EQ(differs("{base: dgx-h100, nodes: 2, inter: {bandwidth: 100 Gbps, latency: 10 us}}"),
            "12.5 GB/s a GPU between nodes");
  EXPECT_EQ(differs("{base: dgx-h100, nodes: 2, intra: {bandwidth: 32 GB/s, latency: 10 us}}"),
            "32.0 GB/s within nodes");
  EXPECT_EQ(error_of("nanotron", "{base: dgx-h100, inter: {bandwidth: 1 Gbps, latency: 10 us}}")
                .at("differs")
                .get<std::string>(),
            "")
      << "a job that stays in its node";
}

TEST(ExpectedError, LooksForChangedNumbersInFilesAsInMaps) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("stack-{}.yaml", getpid());
  const auto differs = [&](const std::string& stack) {
    std::ofstream(path) << stack;
    return error_of(path.string(), "dgx-h100").at("differs").get<std::string>();
  };
  EXPECT_EQ(differs("{base: nanotron, matrix_efficiency: 30%}\n"), "numbers of the stack changed");
  EXPECT_EQ(differs("{base: nanotron}\n"), "") << "a copy of what is shipped";
  std::filesystem::remove(path);
}

TEST(ExpectedError, OfGivenTimesIsTheirOwn) {
  EXPECT_FALSE(expected_error(parse_scenario(
      "model: {forward: 1 s, backward: 2 s}\ncluster: {devices: 2, link: {latency: 1 us}}\n"
      "schedule: gpipe\npipeline: {stages: 2, microbatches: 2}\n",
      "test.yaml")));
}

}  // namespace
}  // namespace penstock::expected_error_test
