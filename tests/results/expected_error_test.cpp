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
    EXPECT_TRUE(expected_error_text(error).starts_with("unknown, no runs of this kind"));
    return error.at("differs").get<std::string>();
  };
  EXPECT_EQ(differs(error_of("megatron", "dgx-h100")), "on H100");
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
