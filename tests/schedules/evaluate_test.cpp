// SPDX-License-Identifier: Apache-2.0
// Every recorded order, whoever made it, takes and holds what an independent evaluation says, or
// is diagnosed as the deadlock it is.
#include "schedules/evaluate.hpp"
#include "tests/schedules/recorded.hpp"

namespace penstock::evaluate_test {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Files, RecordedOrders, testing::ValuesIn(kRecordedFiles));

}  // namespace
}  // namespace penstock::evaluate_test
