// SPDX-License-Identifier: Apache-2.0
// Llama 3 405B as it was pretrained, against table 4 of the paper (arXiv:2407.21783), by the
// shipped scenarios. Nothing is fitted to these numbers. The paper states TFLOP/s and not whether
// they count what a causal mask leaves out; here they do not, as flash attention computes.
#include "results/simulation.hpp"
#include "tests/rig.hpp"

#include <gtest/gtest.h>

namespace penstock::llama3_test {
namespace {

struct Row {
  const char* scenario;
  int gpus;
  double tflops;
  double within;  ///< of the time
};

TEST(Llama3, ShippedScenariosAreWithinTheirErrors) {
  // The third misses 5 %: docs/validation.md says what is not modelled of it.
  constexpr Row kRows[] = {{"llama-3-405b", 8192, 430, 0.02},
                           {"llama-3-405b-16384", 16384, 400, 0.03},
                           {"llama-3-405b-131072", 16384, 380, 0.055}};
  for (const Row& row : kRows) {
    const std::string path =
        std::string(std::getenv("PENSTOCK_SOURCE")) + "/scenarios/" + row.scenario + ".yaml";
    const Scenario scenario = load_scenario(path, {});
    EXPECT_EQ(scenario.gpu_count(), row.gpus) << row.scenario;
    const Rates r = rates(simulate(scenario, EngineChoice::automatic));
    EXPECT_NEAR(row.tflops / (*r.mfu_causal * 989.4), 1, row.within) << row.scenario;
  }
}

}  // namespace
}  // namespace penstock::llama3_test
