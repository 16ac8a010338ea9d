// SPDX-License-Identifier: Apache-2.0
// DAPPLE's latency model by hand, and the released planner's plans and evaluations.
#include "plan/dapple.hpp"

#include "plan/planners.hpp"
#include "tests/plan/profiles.hpp"
#include "tests/plan/released_dapple.hpp"
#include "tests/shared.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <numeric>
#include <regex>

namespace penstock::dapple_test {
namespace {

namespace fs = std::filesystem;

TEST(DappleLatency, EqualStagesAreAFilledPipelineWithItsWarmUpAndDrain) {
  const std::vector<LatencyStage> stages(4, {1, 2, 0});
  const PipelineLatency latency = pipeline_latency(stages, 8);
  EXPECT_EQ(latency.pivot, 3U);
  EXPECT_DOUBLE_EQ(latency.warmup_s, 4);
  EXPECT_DOUBLE_EQ(latency.steady_s, 21);
  EXPECT_DOUBLE_EQ(latency.ending_s, 8);
  EXPECT_DOUBLE_EQ(latency.total_s(), (8 + 4 - 1) * 3);
}

TEST(DappleLatency, ASlowEarlyStageBecomesThePivot) {
  std::vector<LatencyStage> stages(4, {1, 1, 0});
  stages[1] = {3, 3, 0};
  const PipelineLatency latency = pipeline_latency(stages, 10);
  EXPECT_EQ(latency.pivot, 1U);
  EXPECT_DOUBLE_EQ(latency.warmup_s, 4);
  EXPECT_DOUBLE_EQ(latency.steady_s, 54);
  EXPECT_DOUBLE_EQ(latency.ending_s, 4);
}

TEST(DappleLatency, AStageBehindThePivotHasTimeToReduceBeforeThePivotEnds) {
  std::vector<LatencyStage> stages{{3, 3, 0}, {1, 2, 8}};
  // s = 1: 8 - (B_0 + B_1) = 3, which the pivot's own backward covers.
  EXPECT_DOUBLE_EQ(pipeline_latency(stages, 100).ending_s, 3);
  stages[1].all_reduce_s = 10;
  EXPECT_DOUBLE_EQ(pipeline_latency(stages, 100).ending_s, 5);
}

TEST(DapplePlacing, ThePoliciesTakeFreshUsedAndAllMachines) {
  DappleCluster cluster;
  cluster.machines = 3;
  cluster.devices_per_machine = 4;
  std::vector<int> used{2, 0, 0};
  EXPECT_EQ(*place(cluster, Placing::fresh_first, 5, used), (std::vector{4, 5, 6, 7, 8}));
  EXPECT_EQ(used, (std::vector{2, 4, 1}));
  used = {2, 0, 0};
  EXPECT_EQ(*place(cluster, Placing::append_first, 2, used), (std::vector{2, 3}));
  EXPECT_FALSE(place(cluster, Placing::append_first, 1, used).has_value()) << "none in part";
  used = {2, 0, 0};
  EXPECT_EQ(*place(cluster, Placing::scatter_first, 4, used), (std::vector{2, 3, 4, 8}));
}

TEST(DapplePlanner, NoPlanOfASmallModelIsBetterThanItsOwn) {
  // Every split of 4 layers into stages on 4 devices of one machine, which all placements share.
  const ProfileModel model =
      table({{1, 2, 4e6, 40e6}, {2, 3, 1e6, 10e6}, {2, 2, 2e6, 90e6}, {1, 1, 0, 200e6}});
  PlanRequest request = request_for(model, {{4, 1e9}});
  request.batch = 8;
  const auto states = model.chain(1, Recompute::none);
  DappleCluster cluster{1, 4, 1e9, 1e9, 1e9};
  double best = 1e9;
  const std::function<void(int, int, std::vector<DappleStage>)> search =
      [&](int first, int used, std::vector<DappleStage> stages) {
        for (int last = first; last < 4; ++last) {
          for (int n = 1; n <= 4 - used; ++n) {
            std::vector<int> devices(static_cast<std::size_t>(n));
            std::iota(devices.begin(), devices.end(), used);
            auto next = stages;
            next.push_back({last, devices});
            if (last < 3) {
              search(last + 1, used + n, next);
            } else if (used + n == 4) {
              best = std::min(best,
                              pipeline_latency(latency_stages(states, next, cluster), 8).total_s());
            }
          }
        }
      };
  search(0, 0, {});
  EXPECT_NEAR(plan_dapple(request).plans.at(0).latency_s, best, 1e-12);
}

TEST(DapplePlanner, AMemoryLimitRulesPlansOutAndIsSaid) {
  const ProfileModel model = table({{1, 2, 4e6, 40e6}, {2, 3, 1e6, 10e6}});
  PlanRequest request = request_for(model, {{2, 1e9}});
  request.memory_bytes = 50e6;
  const PlanResult split = plan_dapple(request);
  ASSERT_EQ(split.plans.size(), 1U);
  EXPECT_EQ(split.plans[0].depth(), 2) << "both layers on one device need more";
  request.memory_bytes = 20e6;
  EXPECT_TRUE(plan_dapple(request).plans.empty());
  EXPECT_FALSE(plan_dapple(request).infeasible_because.empty());
}

// --- the released planner ---

DappleCluster released_cluster(int machines, int each) { return {machines, each, 25e9, 1e9, 3e9}; }

/// "8,16" are two machines of eight devices.
DappleCluster cluster_of(const std::string& ends) {
  const auto machines = static_cast<int>(std::ranges::count(ends, ',')) + 1;
  return released_cluster(machines, 16 / machines);
}

std::vector<int> numbers(const std::string& text) {
  static const std::regex kNumber("[0-9]+");
  std::vector<int> found;
  for (std::sregex_iterator i(text.begin(), text.end(), kNumber), end; i != end; ++i)
    found.push_back(std::stoi(i->str()));
  return found;
}

std::vector<LayerState> batch_states(const fs::path& file, int profile_batch, int global_batch) {
  const std::string path = file.string();
  return antichain_states(load_pipedream_profile(path),
                          static_cast<double>(global_batch) / profile_batch, 1'000);
}

class ReleasedPlans : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_SHARED(oracle_);
    SKIP_WITHOUT_SHARED(profiles_);
  }
  fs::path oracle_ = shared_folder() / "oracles/dapple_planner";
  fs::path profiles_ = shared_folder() / "data/dapple_profiles";
};

TEST_F(ReleasedPlans, AreEvaluatedOverTimeAsTheReleasedPlannerDoes) {
  std::ifstream file(oracle_ / "vs_pipedream_recursive_eval.txt");
  std::string plan_line, speedup_line;
  int evaluated = 0;
  static const std::regex kPlan(R"(.*: dump/(\S+) (\d+) (\d+) (\d+) \d+ \d+ (\S+) (\S+))");
  static const std::regex kStage(R"((\d+)-(\d+)-(\d+):([0-9.]+))");
  while (std::getline(file, plan_line) && std::getline(file, speedup_line)) {
    SCOPED_TRACE(plan_line);
    std::smatch m;
    ASSERT_TRUE(std::regex_match(plan_line, m, kPlan));
    const int batch = std::stoi(m[3]);
    const auto states = batch_states(profiles_ / m[1].str(), std::stoi(m[2]), batch);
    const ReleasedDapple released{states, cluster_of(m[5]), batch, std::stoi(m[4]), 1};
    const std::string stages = m[6];
    std::vector<ReleasedStage> plan;
    for (std::sregex_iterator i(stages.begin(), stages.end(), kStage), end; i != end; ++i)
      plan.push_back(
          {std::stoi((*i)[1]), std::stoi((*i)[2]), std::stoi((*i)[3]), numbers((*i)[4])});
    const double speedup = std::stod(speedup_line.substr(speedup_line.find(' ')));
    EXPECT_NEAR(released.recursive_speedup(plan), speedup, 1e-9 * speedup);
    ++evaluated;
  }
  EXPECT_EQ(evaluated, 8);
}

struct PrintedPlan {
  double speedup = 0;
  int pipelines = 1;
  std::vector<ReleasedStage> stages;
};

std::vector<PrintedPlan> printed_plans(const fs::path& path) {
  static const std::regex kSpeedup(R"(speedup ([0-9.]+) rp (\d+) .*)");
  static const std::regex kStage(R"(\((\d+), (\d+), (\d+), \{([0-9, ]+)\}\))");
  std::ifstream file(path);
  std::vector<PrintedPlan> plans;
  std::smatch m;
  for (std::string line; std::getline(file, line);) {
    if (!std::regex_match(line, m, kSpeedup)) continue;
    PrintedPlan plan{std::stod(m[1]), std::stoi(m[2]), {}};
    for (std::sregex_iterator i(line.begin(), line.end(), kStage), end; i != end; ++i)
      plan.stages.push_back(
          {std::stoi((*i)[1]), std::stoi((*i)[2]), std::stoi((*i)[3]), numbers((*i)[4])});
    plans.push_back(std::move(plan));
  }
  return plans;
}

/// One of the four printed searches: VGG-19 on 16 devices.
struct PrintedSearch {
  int batch;
  std::string config;
  DappleCluster cluster;
  fs::path file(const fs::path& oracle) const {
    return oracle / ("vgg19_gbs" + std::to_string(batch) + "_cfg" + config + ".txt");
  }
};

std::vector<PrintedSearch> printed_searches() {
  const DappleCluster a = released_cluster(2, 8), b = released_cluster(16, 1);
  return {{1024, "A", a}, {1024, "B", b}, {2048, "A", a}, {2048, "B", b}};
}

TEST_F(ReleasedPlans, HaveTheirPrintedSpeedup) {
  for (const PrintedSearch& search : printed_searches()) {
    SCOPED_TRACE(search.file(oracle_).string());
    const auto states = batch_states(profiles_ / "vgg-19-pbs-32.txt", 32, search.batch);
    const auto plans = printed_plans(search.file(oracle_));
    EXPECT_EQ(plans.size(), 8U);
    for (const PrintedPlan& plan : plans) {
      const ReleasedDapple released{states, search.cluster, search.batch, 32, plan.pipelines};
      EXPECT_NEAR(released.analytical_speedup(plan.stages), plan.speedup, 5e-7);
    }
  }
}

TEST_F(ReleasedPlans, AreNeverFasterThanOursInThePapersModel) {
  const auto states = batch_states(profiles_ / "vgg-19-pbs-32.txt", 32, 32);
  for (const PrintedSearch& search : printed_searches()) {
    SCOPED_TRACE(search.file(oracle_).string());
    DappleOptions options;
    options.microbatches = search.batch / 32;
    const double ours = search_dapple(states, search.cluster, options).at(0).latency_s;
    for (const PrintedPlan& plan : printed_plans(search.file(oracle_))) {
      if (plan.pipelines > 1) continue;
      std::vector<DappleStage> stages;
      for (const ReleasedStage& s : plan.stages) stages.push_back({s.end - 1, s.devices});
      stages.back().last = 24;
      const auto theirs = latency_stages(states, stages, search.cluster);
      EXPECT_LE(ours, pipeline_latency(theirs, options.microbatches).total_s() * (1 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace penstock::dapple_test
