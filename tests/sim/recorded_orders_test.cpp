// SPDX-License-Identifier: Apache-2.0
// Every recorded order, lowered like a schedule of the user's own: makespan, stage times and peak
// activations in both engines.
#include "program/check.hpp"
#include "tests/effort.hpp"
#include "tests/rig.hpp"
#include "tests/schedules/recorded.hpp"
#include "traces/memory.hpp"
#include "traces/metrics.hpp"

namespace penstock::recorded_orders_test {
namespace {

/// A recorded order with the rows and costs to run it.
struct RecordedRun {
  explicit RecordedRun(const RecordedCase& one) : order(recorded_order(one)) {
    const Placement where = placement_of(one);
    row.name = "recorded";
    row.generate = [this](const ScheduleShape&, OpLists& out) { out = order; };
    row.positions = where.positions();
    if (where.mirrored()) row.layout = Layout::mirrored;
    spec.own = &row;
    spec.shape = {.depth = one.p, .microbatches_per_update = one.m};
    StageCosts c;
    c[OpKind::forward].seconds = one.number("f");
    c[OpKind::backward_input].seconds = one.number("b");
    c[OpKind::backward_weight].seconds = one.number("w");
    c[OpKind::backward].seconds =
        c[OpKind::backward_input].seconds + c[OpKind::backward_weight].seconds;
    c.overlap_saving_s = one.all.contains("fb") ? c[OpKind::forward].seconds +
                                                      c[OpKind::backward].seconds - one.number("fb")
                                                : 0;
    c.activation_bytes = c.activation_after_input_bytes = 1;
    spec.costs.assign(static_cast<std::size_t>(where.stages()), c);
    spec.reduction.priced = true;
    spec.link.latency_s = one.number("c");
  }

  OpLists order;
  Schedule row;
  RigSpec spec;
};

void expect_recorded(const Rig& rig, const Timeline& timeline, const nlohmann::json& ref) {
  EXPECT_NEAR(timeline.makespan_s, ref["makespan"].get<double>(), 1e-6);
  const TimelineView view{rig.program, rig.table, timeline};
  const std::vector<std::uint32_t> versions(rig.costs.size(), 0);
  for (int d = 0; d < rig.program.ops.devices(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    double last_s = 0;  // STEP and REDUCE_GRAD take no time, but may wait for a mirrored device
    for (std::uint32_t g = rig.program.ops.begin(d); g < rig.program.ops.end(d); ++g)
      if (is_compute(rig.program.ops[g].kind)) last_s = timeline.op(g).end_s;
    const double first_s = timeline.op(rig.program.ops.begin(d)).start_s;
    EXPECT_NEAR(last_s - first_s, ref["stage_time"][i].get<double>(), 1e-6);
    EXPECT_NEAR(device_metrics(view, d).busy_s, ref["busy"][i].get<double>(), 1e-6);
    const MemoryPeak peak =
        memory_over_time({rig.program.ops, rig.table, timeline, rig.costs, versions}, d);
    EXPECT_EQ(peak.use.total(), ref["peak_act_chunks"][i].get<std::int64_t>());
  }
}

Timeline timeline_of(const std::vector<double>& flat) {
  Timeline timeline(static_cast<std::uint32_t>((flat.size() - 1) / 4));
  timeline.makespan_s = flat[0];
  for (std::uint32_t g = 0; g < timeline.size(); ++g) {
    timeline.op(g) = {flat[1 + 4 * g], flat[2 + 4 * g]};
    timeline.message(g) = {flat[3 + 4 * g], flat[4 + 4 * g]};
  }
  return timeline;
}

class RecordedOrdersInEngines : public testing::TestWithParam<const char*> {};

TEST_P(RecordedOrdersInEngines, TakeAndHoldWhatTheRecordSays) {
  SKIP_WITHOUT_RECORDED(GetParam());
  int run = 0;
  for (const RecordedCase& one : recorded_cases(GetParam())) {
    if (one.order.empty() || !one.all.contains("ref")) continue;
    SCOPED_TRACE(one.name());
    const RecordedRun recorded(one);
    const Rig rig(recorded.spec);
    const std::vector<std::string> problems = check(rig.program, rig.table);
    EXPECT_EQ(!problems.empty(), one.deadlocks());
    if (one.deadlocks()) {
      ASSERT_FALSE(problems.empty());
      // Tables of torch's 1F1B have a forward too many on the last device.
      const bool said = problems.front().find("deadlock: device") != std::string::npos ||
                        problems.front().find("is outside of the schedule") != std::string::npos;
      EXPECT_TRUE(said) << problems.front();
    }
    if (!problems.empty()) continue;
    expect_recorded(rig, simulate_exact(rig.input()), one.all["ref"]);
    if (run++ % (kBrief ? 16 : 4) != 0) continue;  // a process each
    const std::vector<double> flat = run_simgrid(rig);
    ASSERT_FALSE(flat.empty());
    expect_recorded(rig, timeline_of(flat), one.all["ref"]);
  }
  EXPECT_GT(run, 15);
}

INSTANTIATE_TEST_SUITE_P(Files, RecordedOrdersInEngines, testing::ValuesIn(kRecordedFiles));

}  // namespace
}  // namespace penstock::recorded_orders_test
