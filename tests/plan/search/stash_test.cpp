// SPDX-License-Identifier: Apache-2.0
// What devices hold by the order of their ops alone.
#include "plan/search/stash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace penstock::stash_test {
namespace {

/// Is there a time of the longer batch at which a device holds as much of every stage?
bool holds_as_much(const PlanFamily& fewer, const PlanFamily& family, bool until_weights) {
  OpLists few, all;
  fewer.schedule->generate(fewer.schedule_shape(), few);
  family.schedule->generate(family.schedule_shape(), all);
  const auto shares = shares_of(family);
  for (std::size_t d = 0; d < shares.size(); ++d) {
    const auto longer = most_held(all.of_device(static_cast<int>(d)), shares[d], until_weights);
    for (const auto& held : most_held(few.of_device(static_cast<int>(d)), shares[d], until_weights))
      if (std::ranges::none_of(longer, [&](const std::vector<int>& other) {
            return std::ranges::equal(held, other, std::ranges::less_equal{});
          }))
        return false;
  }
  return true;
}

TEST(Stash, OfFewerMicrobatchesIsHeldInTheWholeBatch) {
  int checked = 0;
  for (const Schedule& schedule : schedules())
    for (int p = 1; p <= 5; ++p)
      for (int v = 1; v <= 3; ++v)
        for (std::int64_t m = 1; m <= 16 * p; ++m) {
          const PlanFamily family{{p, 1, 1, 1, m}, &schedule, v, {}};
          if (schedule.looks_at_costs || !schedule.flushes() || !family.admitted()) continue;
          const PlanFamily fewer = with_fewer_microbatches(family);
          if (fewer.shape.microbatches == m || !fewer.admitted()) continue;
          ++checked;
          EXPECT_TRUE(holds_as_much(fewer, family, false)) << family.describe() << ", m " << m;
          if (schedule.splits_backward) {
            EXPECT_TRUE(holds_as_much(fewer, family, true)) << family.describe() << ", m " << m;
          }
        }
  EXPECT_GT(checked, 1000);
}

int most_of_all_stages(const PlanFamily& family) {
  OpLists order;
  family.schedule->generate(family.schedule_shape(), order);
  int most = 0;
  for (const auto& held : most_held(order.of_device(0), shares_of(family)[0], false))
    most = std::max(most, std::accumulate(held.begin(), held.end(), 0));
  return most;
}

TEST(Stash, OfFewerMicrobatchesIsAllThatIsHeldWhereNotAllAreHeldAtOnce) {
  for (const char* name : {"1f1b", "zb-h1", "v-half", "interleaved-1f1b", "dualpipev"}) {
    const Schedule* schedule = find_schedule(name);
    const int chunks = static_cast<int>(schedule->chunks.usual);
    const PlanFamily family{{4, 1, 1, 1, 64}, schedule, chunks, {}};
    const PlanFamily fewer = with_fewer_microbatches(family);
    EXPECT_LT(fewer.shape.microbatches, 64);
    EXPECT_EQ(most_of_all_stages(fewer), most_of_all_stages(family)) << name;
  }
  const PlanFamily gpipe{{4, 1, 1, 1, 64}, find_schedule("gpipe"), 1, {}};
  EXPECT_EQ(Stashes().stash_of(gpipe).until_input, std::vector<double>(4, 64));
}

}  // namespace
}  // namespace penstock::stash_test
