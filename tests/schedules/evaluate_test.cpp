// Every recorded order, whoever made it, takes and holds what an independent evaluation says, or
// is diagnosed as the deadlock it is.
#include "schedules/evaluate.hpp"
#include "tests/schedules/recorded.hpp"

namespace penstock {
namespace {

/// Devices hold the stages their ops name: any placement a recorded order may come with.
Placement placement_of(const RecordedCase& one) {
  const std::vector<int> widths(one.p, 1);
  const auto stages = static_cast<std::uint32_t>(one.number("n_stages_total", one.p));
  if (one.schedule == "dualpipe") return mirrored_placement(widths, one.m);
  const auto chunks = static_cast<int>(stages / one.p);
  const bool snake = one.schedule.starts_with("v_") || one.schedule.starts_with("zbv") ||
                     one.schedule == "dualpipev" || one.schedule == "ZBVZeroBubble" ||
                     one.schedule == "DualPipeV";
  return snake ? snake_placement(widths, chunks) : loop_placement(widths, chunks);
}

class RecordedOrders : public testing::TestWithParam<const char*> {};

TEST_P(RecordedOrders, TakeWhatAnIndependentEvaluationSays) {
  SKIP_WITHOUT_RECORDED(GetParam());
  int compared = 0, deadlocks = 0;
  for (const RecordedCase& one : recorded_cases(GetParam())) {
    if (one.order.empty() || !one.all.contains("ref")) continue;
    const Placement where = placement_of(one);
    const Evaluation found =
        evaluate(recorded_order(one), where, one.shape(static_cast<std::uint32_t>(where.stages())));
    const auto& ref = one.all["ref"];
    EXPECT_EQ(!found.stuck.empty(), one.deadlocks()) << one.name();
    if (one.deadlocks()) {
      ++deadlocks;
      continue;
    }
    ++compared;
    EXPECT_NEAR(found.makespan, ref["makespan"].get<double>(), 1e-6) << one.name();
    for (std::size_t d = 0; d < one.p; ++d) {
      EXPECT_NEAR(found.stage_times[d], ref["stage_time"][d].get<double>(), 1e-6) << one.name();
      EXPECT_EQ(found.peaks[d], ref["peak_act_chunks"][d].get<double>()) << one.name();
    }
  }
  EXPECT_GT(compared + deadlocks, 15);
}

INSTANTIATE_TEST_SUITE_P(
    Files, RecordedOrders,
    testing::Values("sail_simple.jsonl.gz", "sail_zb_auto.jsonl.gz", "sail_zb_ilp.jsonl.gz",
                    "sail_zbv_heuristic.jsonl.gz", "sail_vhalf_vmin_greedy.jsonl.gz",
                    "sail_v_adaptive_search.jsonl.gz", "megatron_interleaved.jsonl.gz",
                    "torch_pipelining_2.14.1.jsonl.gz", "deepseek_dualpipe.jsonl.gz"));

}  // namespace
}  // namespace penstock
