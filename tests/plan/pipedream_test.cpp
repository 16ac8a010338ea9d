// SPDX-License-Identifier: Apache-2.0
// PipeDream's optimizer against the released program's answers.
#include "plan/pipedream.hpp"

#include "plan/layer_states.hpp"
#include "tests/shared.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

namespace penstock::pipedream_test {
namespace {

namespace fs = std::filesystem;

constexpr double kTimePrecision = 5e-7;  // the printed digits
constexpr double kSpeedupPrecision = 5e-5;

struct Row {
  std::string name, model, cluster;
  bool transfers = true, limited = false;
  int states = 0;
  double single_s = 0, time_per_stage_s = 0, speedup = 0, dp_speedup = 0, vs_dp = 0;
};

std::vector<Row> rows(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::vector<Row> found;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    Row row;
    fields >> row.name >> row.states >> row.single_s >> row.time_per_stage_s >> row.speedup >>
        row.dp_speedup >> row.vs_dp;
    row.model = row.name.substr(0, row.name.find('_'));
    const std::string rest = row.name.substr(row.model.size() + 1);
    row.limited = rest.ends_with("_mem16");
    row.transfers = rest.find("_nocomm") == std::string::npos;
    row.cluster = rest.substr(0, rest.find(row.transfers ? "_comm" : "_nocomm"));
    found.push_back(row);
  }
  return found;
}

PipedreamOptions options_of(const Row& row) {
  static const std::map<std::string, std::vector<PlanLevel>> kClusters = {
      {"clusterA_4x4", {{4, 12e9}, {4, 1.25e9}}},
      {"clusterB_8x2", {{8, 30e9}, {2, 3.125e9}}},
      {"clusterA_1x4", {{4, 12e9}}},
      {"clusterC_4x1", {{4, 5e9}}}};
  PipedreamOptions options;
  options.transfers = row.transfers;
  options.memory_bytes = row.limited ? 16e9 : 0;
  options.straight = row.cluster.find("straight") != std::string::npos;
  const auto known = kClusters.find(row.cluster);
  options.levels = known != kClusters.end()
                       ? known->second
                       : std::vector<PlanLevel>{{std::stoi(row.cluster.substr(1)), 1e9}};
  return options;
}

class ReleasedPipedream : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_SHARED(oracle_); }
  fs::path oracle_ = shared_folder() / "oracles/pipedream_optimizer/results.tsv";
  fs::path profiles_ = shared_folder() / "data/pipedream_profiles";
};

TEST_F(ReleasedPipedream, EveryStageTimeAndSpeedupIsReproduced) {
  const std::vector<Row> all = rows(oracle_);
  ASSERT_GE(all.size(), 60U);
  for (const Row& row : all) {
    SCOPED_TRACE(row.name);
    const std::string path = (profiles_ / row.model / "graph.txt").string();
    const auto states = antichain_states(load_pipedream_profile(path), 1, 1'000);
    EXPECT_EQ(static_cast<int>(states.size()), row.states);
    const PipedreamPlan plan = optimize_pipedream(states, options_of(row));
    const double single = states.back().time_s();
    EXPECT_NEAR(single, row.single_s, kTimePrecision);
    EXPECT_NEAR(plan.time_per_stage_s, row.time_per_stage_s, kTimePrecision);
    EXPECT_NEAR(single / plan.time_per_stage_s, row.speedup, kSpeedupPrecision);
    EXPECT_NEAR(single / plan.data_parallel_s, row.dp_speedup, kSpeedupPrecision);
    EXPECT_NEAR(plan.data_parallel_s / plan.time_per_stage_s, row.vs_dp, kSpeedupPrecision);
  }
}

}  // namespace
}  // namespace penstock::pipedream_test
