// SPDX-License-Identifier: Apache-2.0
// What a scenario tells its schedule, and what a schedule makes of the scenario's costs.
#include "scenarios/scenario.hpp"

#include "base/error.hpp"
#include "schedules/formats/torch_reader.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

namespace penstock::schedule_parts_test {
namespace {

const std::string kCosts = "model: {forward: 1 s, backward: 2 s, output: 1 MiB}\n";

Scenario scenario(const std::string& text) { return parse_scenario(text, "test.yaml"); }

std::string refused(const std::string& text) {
  try {
    scenario(text);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::vector<std::vector<Op>> order_of(const Scenario& s) {
  OpLists order;
  s.schedule->generate(s.shape, order);
  std::vector<std::vector<Op>> lists;
  for (int d = 0; d < order.devices(); ++d)
    lists.emplace_back(order.of_device(d).begin(), order.of_device(d).end());
  return lists;
}

// --- mirrored schedules -------------------------------------------------------------------------

TEST(MirroredSchedules, CountTheStagesOfBothDirectionsAsOneChunkOrAsTwo) {
  for (const std::string name : {"dualpipe", "chimera"}) {
    const std::string text = kCosts + "schedule: " + name + "\npipeline: {stages: 4, ";
    const Scenario one = scenario(text + "chunks: 1, microbatches: 8}\n");
    const Scenario two = scenario(text + "chunks: 2, microbatches: 8}\n");
    EXPECT_EQ(two.shape.chunks, 1U) << name;
    EXPECT_EQ(two.costs.size(), 4U) << name;
    EXPECT_EQ(order_of(one), order_of(two)) << name;
    EXPECT_NE(refused(text + "chunks: 3, microbatches: 8}\n").find("chunks"), std::string::npos)
        << name;
  }
}

class OwnTable : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// What is said of a scenario with this table.
  std::string refused_table(const std::string& table) {
    const auto path = (folder_ / "own.csv").string();
    std::ofstream(path) << table;
    EXPECT_NO_THROW(read_torch_csv(table, path)) << "the table itself can run";
    return refused(kCosts + "schedule: " + path + "\n");
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("penstock-own-" + std::to_string(getpid()));
};

TEST_F(OwnTable, OfStagesOnTwoDevicesNeedsAnEvenNumberOfDevices) {
  const std::string said = refused_table(
      "0F0,2F1,2B1,0B0\n"
      "1F0,1F1,1B0,1B1\n"
      "0F1,2F0,2B0,0B1\n");
  EXPECT_NE(said.find("own.csv: stages that live on two devices need an even number of devices "
                      "and as many stages; here are 3 devices and 3 stages"),
            std::string::npos)
      << said;
}

TEST_F(OwnTable, OfStagesOnTwoDevicesNeedsAsManyStagesAsDevices) {
  const std::string said = refused_table(
      "0F0,1F1,2F0,3F1,3B1,2B0,1B1,0B0\n"
      "0F1,1F0,2F1,3F0,3B0,2B1,1B0,0B1\n");
  EXPECT_NE(said.find("here are 2 devices and 4 stages"), std::string::npos) << said;
}

TEST_F(OwnTable, OfStagesOnTwoDevicesIsTakenWhereBothHold) {
  EXPECT_EQ(refused_table("0F0,1F1,1B1,0B0\n"
                          "0F1,1F0,1B0,0B1\n"),
            "");
}

// --- the transfer that searches are told --------------------------------------------------------

TEST(TransferTold, IsExactlyThatOfTheLargestMessageOnAPrivateLink) {
  const std::string text =
      "model: {forward: 1 s, backward: 2 s, output: [4 MB, 48 MB, 1 MB, 2 MB]}\n"
      "cluster: {devices: 4, link: {latency: 3 ms, bandwidth: 2 GB/s}}\n"
      "schedule: zb\npipeline: {stages: 4, microbatches: 8}\n";
  EXPECT_DOUBLE_EQ(scenario(text).shape.transfer, 3e-3 + 48e6 / 2e9);
  EXPECT_EQ(scenario(text + "transfers: free\n").shape.transfer, 0);
}

TEST(TransferTold, IsNoLessThanAnyMessageTakesOnNodes) {
  for (const char* cluster :
       {"{nodes: 2, devices_per_node: 4, intra: {bandwidth: 50 GB/s, latency: 4 us}, "
        "inter: {bandwidth: 25 Gbps, latency: 30 us}}",
        "{nodes: 8, devices_per_node: 1, inter: {bandwidth: 3 GB/s, latency: 10 us}}",
        "{base: p3.16xlarge}", "{base: dgx-a100, nodes: 2}"}) {
    const Scenario s = scenario(
        "model: {forward: 1 s, backward: 2 s, output: 8 MB}\ncluster: " + std::string(cluster) +
        "\nschedule: search\npipeline: {stages: 8, microbatches: 8}\n");
    Network network(s.cluster);
    double longest_s = 0;
    for (int from = 0; from < s.cluster.devices(); ++from) {
      for (int to = 0; to < s.cluster.devices(); ++to) {
        if (from == to) continue;
        const Route route = network.route(from, to, false);
        double rate = std::numeric_limits<double>::infinity();
        for (const int l : route.links)
          rate = std::min(rate, network.links()[static_cast<std::size_t>(l)].bytes_per_s);
        longest_s = std::max(longest_s, route.latency_s + 8e6 / rate);
      }
    }
    EXPECT_GT(longest_s, 0);
    EXPECT_GE(s.shape.transfer, longest_s * (1 - 1e-12)) << cluster;
    // The bound counts NICs, whether or not a message needs them.
    if (s.cluster.nodes > 1) {
      EXPECT_LE(s.shape.transfer, 3 * longest_s) << cluster << ": a bound of no use";
    }
  }
}

// --- costs of one backward for many, and of stored microbatches ---------------------------------

/// Two stages of two replicas, each stage on an A100 and a V100.
std::string unlike(const std::string& schedule, const std::string& recompute) {
  return "model: gpt-355m\nstack: none\n"
         "cluster: {inter: 10 GB/s, devices_per_node: 2, groups: [{device: V100-16}, "
         "{device: A100-80}]}\nschedule: " +
         schedule + "\npipeline: {stages: 2, width: 2, microbatches: 4, placement: [0, 2, 1, 3]" +
         recompute + "}\n";
}

void expect_joined(const std::vector<StageCosts>& whole, const std::vector<StageCosts>& each,
                   int m) {
  ASSERT_EQ(whole.size(), each.size());
  for (std::size_t s = 0; s < whole.size(); ++s) {
    EXPECT_EQ(each[s].backward_microbatches, 1);
    EXPECT_EQ(whole[s].backward_microbatches, m);
    EXPECT_DOUBLE_EQ(whole[s][OpKind::backward].seconds, m * each[s][OpKind::backward].seconds);
    EXPECT_DOUBLE_EQ(whole[s][OpKind::backward_input].seconds,
                     m * each[s][OpKind::backward_input].seconds);
    EXPECT_DOUBLE_EQ(whole[s][OpKind::backward_weight].seconds,
                     m * each[s][OpKind::backward_weight].seconds);
    EXPECT_DOUBLE_EQ(whole[s][OpKind::forward].seconds, each[s][OpKind::forward].seconds);
    // FLOPs stay those of a microbatch: rates are per microbatch.
    EXPECT_DOUBLE_EQ(whole[s][OpKind::backward].flops, each[s][OpKind::backward].flops);
    EXPECT_DOUBLE_EQ(whole[s][OpKind::backward].again_flops, each[s][OpKind::backward].again_flops);
    for (std::size_t kind = 0; kind < whole[s].ops.size(); ++kind) {
      const bool backward = is_backward(static_cast<OpKind>(kind)) ||
                            static_cast<OpKind>(kind) == OpKind::backward_weight;
      Recipe joined = each[s].ops[kind].recipe;
      joined.times *= backward ? m : 1;
      for (Segment& segment : joined.segments) {
        segment.bytes *= backward ? m : 1;
        segment.calls *= backward ? m : 1;
      }
      EXPECT_EQ(whole[s].ops[kind].recipe, joined);
    }
  }
}

TEST(WholeBackwards, TakeAsLongAsThoseOfTheirMicrobatches) {
  const std::string rest =
      "\npipeline: {stages: 4, tensor: 2, microbatches: 6, recompute: full}\nmodel: "
      "gpt-2.2b\nstack: none\n"
      "cluster: p3.16xlarge\n";
  const Scenario whole = scenario("schedule: timeprest" + rest);
  EXPECT_TRUE(whole.costs[0][OpKind::backward].recipe.exchanges(Axis::tensor));
  expect_joined(whole.costs, scenario("schedule: gpipe" + rest).costs, 6);
}

TEST(WholeBackwards, TakeAsLongOnDevicesUnlikeTheOthers) {
  const Scenario whole = scenario(unlike("timeprest", "")), each = scenario(unlike("gpipe", ""));
  ASSERT_EQ(whole.unlike.costs.size(), 2U);
  ASSERT_EQ(each.unlike.costs.size(), 2U);
  EXPECT_NE(each.unlike.costs[0][0][OpKind::backward].seconds,
            each.unlike.costs[1][0][OpKind::backward].seconds);
  for (std::size_t kind = 0; kind < 2; ++kind)
    expect_joined(whole.unlike.costs[kind], each.unlike.costs[kind], 4);
}

TEST(StoredMicrobatches, AreNotRecomputedOnDevicesUnlikeTheOthersEither) {
  const Scenario both = scenario(unlike("torchgpipe", ""));
  const Scenario full = scenario(unlike("gpipe", ", recompute: full"));
  const Scenario none = scenario(unlike("gpipe", ""));
  ASSERT_EQ(both.unlike.costs.size(), 2U);
  for (std::size_t kind = 0; kind < 2; ++kind) {
    for (std::size_t s = 0; s < 2; ++s) {
      const StageCosts& c = both.unlike.costs[kind][s];
      const StageCosts &again = full.unlike.costs[kind][s], &kept = none.unlike.costs[kind][s];
      ASSERT_TRUE(c.stored);
      EXPECT_EQ(c[OpKind::backward].seconds, again[OpKind::backward].seconds);
      EXPECT_EQ((*c.stored)[OpKind::backward].seconds, kept[OpKind::backward].seconds);
      EXPECT_LT(kept[OpKind::backward].seconds, again[OpKind::backward].seconds);
      EXPECT_EQ(c.activation_bytes, again.activation_bytes);
      EXPECT_EQ(c.stored->activation_bytes, kept.activation_bytes);
      EXPECT_EQ(c.stored->backward_workspace_bytes, kept.backward_workspace_bytes);
    }
  }
}

}  // namespace
}  // namespace penstock::schedule_parts_test
