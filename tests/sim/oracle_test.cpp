// SPDX-License-Identifier: Apache-2.0
// The recorded timelines: device, start, end and weight version of every op, peaks; both engines.
#include "tests/rig.hpp"
#include "tests/shared.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace penstock::oracle_test {
namespace {

using nlohmann::json;

std::string schedule_of(const std::string& kind) {
  if (kind == "flush" || kind == "dapple_pa") return "1f1b";
  if (kind == "dapple_pb") return "dapple-pb";
  return kind;
}

Rig run_of(const json& oracle) {
  const auto m = oracle.value("m", 1U);
  return Rig({.schedule = schedule_of(oracle["kind"]),
              .shape = {oracle["P"], m, oracle["M"].get<std::uint32_t>() / m},
              .costs = std::vector<StageCosts>(oracle["P"], unit_costs(oracle["F"], oracle["B"])),
              .link = {.latency_s = oracle["comm"]}});
}

void expect_equal(const Rig& rig, const std::vector<double>& flat, const json& oracle) {
  ASSERT_EQ(flat.size(), 1 + 4 * std::size_t{rig.program.ops.size()});
  EXPECT_EQ(flat[0], oracle["makespan"].get<double>());
  for (int d = 0; d < rig.program.ops.devices(); ++d) {
    const json& expected = oracle["timeline"][static_cast<std::size_t>(d)];
    std::size_t i = 0;
    for (std::uint32_t g = rig.program.ops.begin(d); g < rig.program.ops.end(d); ++g) {
      const Op& op = rig.program.ops[g];
      if (!is_compute(op.kind)) continue;
      ASSERT_LT(i, expected.size());
      const json got = {token(op.kind), op.microbatch + 1, flat[1 + 4 * g], flat[2 + 4 * g],
                        rig.program.version(op)};
      EXPECT_EQ(got, expected[i++]) << "device " << d;
    }
    EXPECT_EQ(i, expected.size());
    const OrderFacts facts = order_facts(rig.program, d);
    EXPECT_EQ(facts.stash_peak,
              oracle["peak_stash"][static_cast<std::size_t>(d)].get<std::uint32_t>());
    EXPECT_EQ(facts.weight_versions_peak,
              oracle["versions_live_peak"][static_cast<std::size_t>(d)].get<std::uint32_t>());
  }
}

TEST(RecordedTimelines, AreReproducedOpByOpByBothEngines) {
  const auto folder = shared_folder() / "oracles" / "timelines";
  SKIP_WITHOUT_SHARED(folder);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++files;
    std::ifstream in(entry.path());
    const json oracle = json::parse(in);
    const Rig rig = run_of(oracle);
    ASSERT_TRUE(check(rig.program, rig.table).empty());
    expect_equal(rig, flatten(simulate_exact(rig.input())), oracle);
    expect_equal(rig, run_simgrid(rig), oracle);
  }
  EXPECT_EQ(files, 22);
}

}  // namespace
}  // namespace penstock::oracle_test
