// SPDX-License-Identifier: Apache-2.0
// Activations that wait in the memory of the host, as a user asks for it: what stays on the GPU,
// what is copied when, and who shares the PCIe links.
#include "base/error.hpp"
#include "results/simulation.hpp"
#include "sim/communication.hpp"
#include "sim/engine.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace penstock::offload_test {
namespace {

constexpr double kKept = 34.0 * 2048 * 2560 * 2;  // of a layer: s b h (34), MLSys'23, equation 1

/// GPT with 8 layers on four stages, each with a PCIe link of its own or two GPUs on a switch.
Scenario scenario(const std::string& offload, const std::string& pcie = "{link: 1000 GB/s}",
                  const std::string& schedule = "1f1b") {
  return parse_scenario(
      "model: {family: gpt, num_layers: 8, hidden_size: 2560, num_attention_heads: 32, "
      "vocab_size: 51200, seq_length: 2048, flash_attention: true}\nstack: none\n"
      "cluster: {device: A100-80, devices_per_node: 4, intra: {attachment: pairs, bandwidth: 300 "
      "GB/s}, "
      "pcie: " +
          pcie + "}\nschedule: " + schedule +
          "\npipeline: {stages: 4, microbatches: 8, microbatch_size: 2, offload: " + offload +
          "}\n",
      "test.yaml");
}

std::int64_t moved(const Scenario& s, std::size_t stage, OpKind kind, Collective what) {
  return s.costs[stage][kind].recipe.bytes(Axis::host, what);
}

TEST(Offload, LeavesTheRestOfWhatLayersKeepOnTheGpu) {
  const Scenario none = scenario("0");
  for (const double share : {0.25, 0.5, 1.0}) {
    const Scenario s = scenario(fmt::format("{}", share));
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const auto there =
          static_cast<double>(none.costs[stage].activation_bytes - s.costs[stage].activation_bytes);
      EXPECT_NEAR(there, share * 2 * kKept, 1e-3 * kKept) << "two layers of a microbatch of two";
      EXPECT_NEAR(static_cast<double>(moved(s, stage, OpKind::forward, Collective::copy_out)),
                  there, 1);
      EXPECT_NEAR(static_cast<double>(moved(s, stage, OpKind::backward, Collective::copy_in)),
                  there, 1);
      EXPECT_EQ(moved(s, stage, OpKind::forward, Collective::copy_in), 0);
      EXPECT_EQ(s.costs[stage][OpKind::forward].seconds,
                none.costs[stage][OpKind::forward].seconds);
    }
  }
  EXPECT_EQ(moved(none, 1, OpKind::forward, Collective::copy_out), 0);
}

TEST(Offload, HasAShareForEachStage) {
  const Scenario s = scenario("[1, 0.5, 0, 0]");
  EXPECT_GT(moved(s, 0, OpKind::forward, Collective::copy_out),
            1.9 * static_cast<double>(moved(s, 1, OpKind::forward, Collective::copy_out)));
  EXPECT_EQ(moved(s, 2, OpKind::forward, Collective::copy_out), 0);
}

TEST(Offload, IsOfMicrobatchesThatAreStoredAsWell) {
  const Scenario s = scenario("1", "{link: 1000 GB/s}", "torchgpipe");
  ASSERT_TRUE(s.costs[1].stored);
  const auto out = [](const PassCosts& pass) {
    return pass[OpKind::forward].recipe.bytes(Axis::host, Collective::copy_out);
  };
  EXPECT_GT(out(*s.costs[1].stored), out(s.costs[1])) << "which keeps the inputs of layers alone";
  EXPECT_GT(out(s.costs[1]), 0);
}

TEST(Offload, SavesMemoryAndTakesTimeOnlyWhereCopiesAreSlower) {
  const auto run = [](const Scenario& s) {
    const Simulation done = simulate(s, EngineChoice::simgrid);
    return std::pair(*iteration_time_s(done), summarize(done).devices[0].memory.use.total());
  };
  const auto [time_s, bytes] = run(scenario("0"));
  const auto [fast_s, fewer] = run(scenario("1"));
  EXPECT_NEAR(fast_s, time_s, 1e-9 * time_s);
  // Of four microbatches in flight one layer of the last is not copied yet, and one comes back.
  EXPECT_NEAR(static_cast<double>(bytes - fewer), (4 * 2 - 2) * kKept, 0.1 * kKept);
  const auto [slow_s, as_few] = run(scenario("1", "{link: 1 GB/s}"));
  EXPECT_NEAR(static_cast<double>(as_few), static_cast<double>(fewer), 0.1 * kKept);
  // Each microbatch crosses the link of every stage once out and once in; F and B last as long.
  EXPECT_GT(slow_s, 8 * 2 * 2 * kKept / 1e9);
  EXPECT_LT(slow_s, 11 * 2 * 2 * kKept / 1e9 + 4 * time_s);
}

TEST(Offload, TakesAsLongInBothEnginesWhereNobodySharesALink) {
  // One switch with an unlimited uplink, or a switch for each.
  for (const char* pcie :
       {"{link: 20 GB/s}", "{link: 5 GB/s, devices_per_switch: 1, uplink: 9 GB/s}"}) {
    const Scenario s = scenario("0.7", pcie);
    Simulation exact = prepare(s);
    ASSERT_EQ(why_not_exact(exact.input()), "");
    run_engine(exact, EngineChoice::exact);
    const double expected_s = *iteration_time_s(exact);
    EXPECT_NEAR(*iteration_time_s(simulate(s, EngineChoice::simgrid)), expected_s,
                1e-9 * expected_s);
  }
}

TEST(Offload, SharesTheUplinkOfASwitch) {
  // In GPipe all copy out, and then all copy in.
  const Scenario apart = scenario("1", "{devices_per_switch: 1, link: 4 GB/s, uplink: 4 GB/s}",
                                  "gpipe"),
                 shared = scenario("1", "{devices_per_switch: 2, link: 4 GB/s, uplink: 4 GB/s}",
                                   "gpipe");
  Simulation prepared = prepare(shared);
  EXPECT_NE(why_not_exact(prepared.input()).find("offloading cop"), std::string::npos);
  const auto time_s = [](const Scenario& s) {
    return *iteration_time_s(simulate(s, EngineChoice::simgrid));
  };
  EXPECT_GT(time_s(shared), 1.5 * time_s(apart));
}

TEST(Offload, IsToldAsExposedCommunication) {
  const Simulation s = simulate(scenario("1", "{link: 4 GB/s}"), EngineChoice::simgrid);
  const CommunicationByDimension sums = communication(s.input(), *s.timeline);
  EXPECT_GT(sums.inner[static_cast<std::size_t>(Axis::host)].exposed_s, 0);
  EXPECT_EQ(sums.axes().size(), 3U);
  const Simulation none = simulate(scenario("0"), EngineChoice::simgrid);
  EXPECT_EQ(communication(none.input(), *none.timeline).axes().size(), 2U);
}

}  // namespace
}  // namespace penstock::offload_test
