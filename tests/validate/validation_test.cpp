// SPDX-License-Identifier: Apache-2.0
#include "measured.hpp"
#include "validate/sections.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::validation_test {
namespace {

RigSpec linked() { return {.shape = {4, 8, 6}, .link = {.latency_s = 0.5}}; }

TEST(Validation, OfARunTenPercentSlowerHasExactlyTheExpectedErrors) {
  Measured m(linked());
  m.add_run(run_of(m.rig, m.predicted, 1.1));
  const Validation v = m.result();
  const double expected = 1 / 1.1 - 1;
  EXPECT_NEAR(*v.iteration.error, expected, 1e-12);
  EXPECT_NEAR(*v.iteration.measured_s, 1.1 * *v.iteration.predicted_s, 1e-9);
  EXPECT_EQ(v.iteration.samples, 4U);
  ASSERT_EQ(v.kinds.size(), 4U);  // steps take no time
  const char* const names[] = {"F", "B", "SEND_F", "SEND_B"};
  const double lengths[] = {1, 2, 0.5, 0.5};
  const std::size_t counts[] = {4 * 32, 4 * 32, 3 * 32, 3 * 32};  // without the warm-up
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(v.kinds[i].kind, names[i]);
    EXPECT_EQ(v.kinds[i].count, counts[i]);
    EXPECT_NEAR(v.kinds[i].predicted_median_s, lengths[i], 1e-9);
    EXPECT_NEAR(v.kinds[i].predicted_mean_s, lengths[i], 1e-9);
    EXPECT_NEAR(v.kinds[i].measured.p50, 1.1 * lengths[i], 1e-9);
    EXPECT_NEAR(*v.kinds[i].error, expected, 1e-9);
  }
  ASSERT_EQ(v.devices.size(), 4U);
  for (const DeviceRow& d : v.devices) {
    EXPECT_DOUBLE_EQ(d.predicted_busy_s, 6 * 8 * 3);
    EXPECT_NEAR(d.measured_busy_s, 1.1 * 6 * 8 * 3, 1e-9);
    EXPECT_NEAR(*d.busy_error, expected, 1e-12);
    EXPECT_NEAR(d.measured_idle_s, 1.1 * d.predicted_idle_s, 1e-9);
  }
  EXPECT_TRUE(v.order_differences.empty());
}

TEST(Validation, PoolsTheIterationsOfAllRunsAndKeepsTheirMedians) {
  Measured m({.shape = {4, 8, 6}});
  for (const double factor : {1.0, 1.2, 1.1}) m.add_run(run_of(m.rig, m.predicted, factor));
  const Validation v = m.result();
  EXPECT_EQ(v.iteration.samples, 12U);
  ASSERT_EQ(v.iteration.run_medians.size(), 3U);
  EXPECT_NEAR(v.iteration.run_medians[1], 33 * 1.2, 1e-9);
  EXPECT_NEAR(*v.iteration.measured_s, 33 * 1.1, 1e-9);
  EXPECT_NEAR(v.iteration.spread.p5, 33, 1e-9);
  EXPECT_NEAR(v.iteration.spread.p95, 33 * 1.2, 1e-9);
}

TEST(Validation, NamesTheStageThatIsSlow) {
  Measured m(linked());
  RecordedRun run = run_of(m.rig, m.predicted);
  for (RecordedOp& op : run.ops) {
    if (op.op.stage == 2 && op.op.kind == OpKind::backward) op.span.end_s += 0.5;
  }
  m.add_run(run);
  const Validation v = m.result();
  for (const KindRow& row : v.stages) {
    const bool slow = row.stage == 2 && row.kind == "B";
    EXPECT_NEAR(*row.error, slow ? -0.2 : 0, 1e-9) << row.stage << row.kind;
  }
  EXPECT_EQ(v.stages.size(), 4U * 2 + 3 + 3);
}

TEST(Validation, FindsTheFirstOpOutOfOrder) {
  Measured m({.schedule = "gpipe", .shape = {2, 4, 1}});
  RecordedRun run = run_of(m.rig, m.predicted);
  // Device 1 runs 1F2 before 1F1.
  const auto at = [&](const char* token) -> RecordedOp& {
    return *std::ranges::find_if(run.ops,
                                 [&](const RecordedOp& r) { return to_string(r.op) == token; });
  };
  std::swap(at("1F1").span, at("1F2").span);
  m.add_run(run);
  const Validation v = m.result();
  ASSERT_EQ(v.order_differences.size(), 1U);
  EXPECT_EQ(v.order_differences[0].device, 1);
  EXPECT_EQ(v.order_differences[0].position, 1U);
  EXPECT_EQ(to_string(v.order_differences[0].expected), "1F1");
  EXPECT_EQ(to_string(v.order_differences[0].measured), "1F2");
}

TEST(Validation, ComparesThePeaksOfTheFullestDevice) {
  Measured m({.shape = {2, 2, 1}});
  m.memory[0].use[Owner::activations] = 900;
  m.memory[1].use[Owner::weights] = 600;
  RecordedRun run = run_of(m.rig, m.predicted);
  run.devices.resize(2);
  run.devices[0].device = 0;
  run.devices[0].peak[Owner::activations] = 1000;
  run.devices[1].device = 1;
  run.devices[1].peak[Owner::weights] = 500;
  run.devices[1].allocator_peak_bytes = 512;
  m.add_run(run);
  run.devices[0].peak[Owner::activations] = 800;  // the higher of two runs counts
  m.add_run(run);
  const Validation v = m.result();
  EXPECT_NEAR(*v.devices[0].memory_error, -0.1, 1e-12);
  EXPECT_NEAR(*v.devices[1].memory_error, 0.2, 1e-12);
  EXPECT_EQ(v.devices[0].allocator_peak_bytes, std::nullopt);
  EXPECT_EQ(v.devices[1].allocator_peak_bytes, 512);
  EXPECT_EQ(v.predicted_bytes, 900);
  EXPECT_EQ(v.measured_bytes, 1000);
  EXPECT_NEAR(*v.memory_error, -0.1, 1e-12);
}

TEST(Validation, OfAStoppedRunUsesTheIterationsThatWereWhole) {
  Measured m({.shape = {4, 8, 6}});
  RecordedRun run = run_of(m.rig, m.predicted);
  std::erase_if(run.ops, [](const RecordedOp& r) { return r.span.end_s > 4 * 33 + 5; });
  run.complete = false;
  run.stopped_because = "a cable was pulled";
  m.add_run(run);
  const Validation v = m.result();
  EXPECT_EQ(v.iteration.samples, 2U);
  EXPECT_NEAR(*v.iteration.error, 0, 1e-12);
  EXPECT_TRUE(std::ranges::find(v.notes, "run 0 was stopped: a cable was pulled") != v.notes.end());
}

TEST(Validation, WithoutAWholeIterationSaysSo) {
  Measured m({.shape = {4, 8, 6}});
  RecordedRun run = run_of(m.rig, m.predicted);
  std::erase_if(run.ops, [](const RecordedOp& r) { return r.span.end_s > 40; });
  m.add_run(run);
  const Validation v = m.result();
  EXPECT_FALSE(v.iteration.measured_s);
  EXPECT_FALSE(v.iteration.error);
  EXPECT_FALSE(v.causes);
  // The timeline shows what there is.
  const auto sections =
      validation_sections({m.input, m.predicted, m.memory, m.recording, m.runs}, v);
  EXPECT_NE(sections[0].find("1 measured"), std::string::npos);
  EXPECT_NE(sections[0].find("measured unknown, error unknown"), std::string::npos);
}

TEST(ValidationSummary, SplitsTimesByDepth) {
  const ValidationSummary s = summarize({{2, 0.1, {}}, {4, -0.3, 0.5}, {4, 0.1, {}}, {8, {}, {}}});
  EXPECT_EQ(s.time.n, 3U);
  EXPECT_NEAR(s.time.mape, 0.5 / 3, 1e-12);
  EXPECT_EQ(s.memory.n, 1U);
  ASSERT_EQ(s.time_by_depth.size(), 2U);
  EXPECT_NEAR(s.time_by_depth.at(4).mape, 0.2, 1e-12);
  EXPECT_NEAR(s.time_by_depth.at(4).bias, -0.1, 1e-12);
}

TEST(ValidationSections, LayPredictedAboveMeasuredAtTheFirstUpdateShown) {
  Measured m(linked());
  m.recording.name = "a run";
  m.add_run(run_of(m.rig, m.predicted, 1.1));
  const auto sections =
      validation_sections({m.input, m.predicted, m.memory, m.recording, m.runs}, m.result());
  ASSERT_EQ(sections.size(), 4U);  // timelines, causes, kinds, devices
  const auto timeline = nlohmann::json::parse(sections[0]);
  EXPECT_EQ(timeline["heading"], "a run");
  EXPECT_NE(timeline["note"].get<std::string>().find("Iteration: predicted "), std::string::npos);
  ASSERT_EQ(timeline["lanes"].size(), 8U);
  EXPECT_EQ(timeline["lanes"][2]["name"], "1 predicted");
  EXPECT_EQ(timeline["lanes"][3]["name"], "1 measured");
  // Three of six updates; on the slower clock each ends ten percent later.
  EXPECT_EQ(timeline["end_update"].get<int>() - timeline["first_update"].get<int>(), 3);
  const auto& ends = timeline["clocks"];
  for (std::size_t u = 0; u <= 6; ++u)
    EXPECT_NEAR(ends[1]["ends"][u].get<double>(), 1.1 * ends[0]["ends"][u].get<double>(), 1e-9);
}

TEST(ValidationSections, ReplicasStandBelowTheirStage) {
  Measured m({.shape = {.depth = 2, .microbatches_per_update = 4, .batches = 3, .replicas = 2}});
  m.add_run(run_of(m.rig, m.predicted, 1.1));
  const auto sections =
      validation_sections({m.input, m.predicted, m.memory, m.recording, m.runs}, m.result());
  const auto timeline = nlohmann::json::parse(sections[0]);
  std::vector<std::string> names;
  for (const auto& lane : timeline["lanes"]) names.push_back(lane["name"].get<std::string>());
  EXPECT_EQ(names, (std::vector<std::string>{"stage 0 predicted", "device 0 measured",
                                             "device 2 measured", "stage 1 predicted",
                                             "device 1 measured", "device 3 measured"}));
}

}  // namespace
}  // namespace penstock::validation_test
