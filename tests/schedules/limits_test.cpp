// SPDX-License-Identifier: Apache-2.0
// What holds for every schedule that searches, for any times, transfers and limits.
#include "schedules/evaluate.hpp"
#include "tests/random_shape.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>
#include <string>
#include <tuple>

namespace penstock::limits_test {
namespace {

const int kCases = kBrief ? 10 : 30;

double between(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution(low, high)(random);
}

/// Any legal shape with other times and activations on each stage.
ScheduleShape uneven_shape(const Schedule& schedule, std::mt19937_64& random) {
  ScheduleShape shape = random_shape(schedule, random, 6, 12);
  shape.batches = 1;
  for (std::uint32_t s = 0; s < stages_of(schedule, shape); ++s) {
    const double activation = between(random, 0.5, 1.5);
    shape.times.push_back({between(random, 0.1, 3), between(random, 0.1, 3), between(random, 0, 3),
                           activation, activation * between(random, 0, 1)});
  }
  shape.transfer = random() % 2 == 0 ? 0 : between(random, 0, 1);
  return shape;
}

/// A limit for all, one for each device, or none said; whatever the schedule admits.
void limit_memory(const Schedule& schedule, ScheduleShape& shape, std::mt19937_64& random) {
  const auto refused = [&] { return !schedule.refuse(shape).empty(); };
  for (int tries = 0; tries < 20; ++tries) {
    shape.memory_limit = 0;
    shape.memory_limits.clear();
    const auto how = random() % 3;
    if (how == 0) shape.memory_limit = between(random, 0.2, 2.5);
    if (how == 1) {
      for (std::uint32_t d = 0; d < shape.depth; ++d)
        shape.memory_limits.push_back(between(random, 0.2, 2.5));
    }
    if (!refused()) return;
  }
  shape.memory_limit = 0;
  shape.memory_limits.clear();
}

/// When nothing is said: what the row says, or what one microbatch needs where that is more.
double usual_limit(const Schedule& schedule, const ScheduleShape& shape, const Placement& where) {
  double most = 0;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    double one = 0;
    for (const std::uint32_t s : where.stages_at(d)) one += shape.time(s).activation;
    most = std::max(most, one);
  }
  constexpr double kRounded = 1e-4;  // least limits are told to four digits, rounded up
  return std::max(schedule.usual_limit, most / one_f_one_b_peak(shape) + kRounded);
}

double limit_of(const Schedule& schedule, const ScheduleShape& shape, const Placement& where,
                std::size_t device) {
  if (!shape.memory_limits.empty()) return shape.memory_limits[device];
  return shape.memory_limit > 0 ? shape.memory_limit : usual_limit(schedule, shape, where);
}

std::vector<std::vector<Op>> listed(const OpLists& order) {
  std::vector<std::vector<Op>> lists;
  for (int d = 0; d < order.devices(); ++d)
    lists.emplace_back(order.of_device(d).begin(), order.of_device(d).end());
  return lists;
}

OpLists order_of(const Schedule& schedule, const ScheduleShape& shape) {
  OpLists order;
  schedule.generate(shape, order);
  return order;
}

std::string words(const Schedule& schedule, const ScheduleShape& shape, int i) {
  return std::string(schedule.name) + " case " + std::to_string(i) + " p " +
         std::to_string(shape.depth) + " m " + std::to_string(shape.microbatches_per_update);
}

std::size_t ops_of(const Schedule& schedule, const ScheduleShape& shape) {
  return std::size_t{schedule.splits_backward ? 3U : 2U} * stages_of(schedule, shape) *
         shape.microbatches_per_update;
}

TEST(EverySearch, KeepsTheLimitOfEveryDeviceWhateverTheTimes) {
  std::set<std::string_view> searched;
  std::mt19937_64 random(17);
  for (const Schedule& schedule : schedules()) {
    if (schedule.usual_limit == 0) continue;
    int limited = 0;
    for (int i = 0; i < kCases; ++i) {
      ScheduleShape shape = uneven_shape(schedule, random);
      limit_memory(schedule, shape, random);
      if (!schedule.refuse(shape).empty()) continue;
      const std::string what = words(schedule, shape, i);
      const OpLists order = order_of(schedule, shape);
      const Placement where = placement_of(schedule, shape);
      const Evaluation found = evaluate(order, where, shape);
      ASSERT_TRUE(found.stuck.empty()) << what;
      ASSERT_EQ(order.size(), ops_of(schedule, shape)) << what;
      for (std::size_t d = 0; d < shape.depth; ++d) {
        ASSERT_LE(found.peaks[d],
                  limit_of(schedule, shape, where, d) * one_f_one_b_peak(shape) * (1 + 1e-8))
            << what << " device " << d;
      }
      searched.insert(schedule.name);
      ++limited;
    }
    EXPECT_GE(limited, kCases / 2) << schedule.name << ": too few shapes are admitted";
  }
  for (const char* name : {"zb", "zb-1p", "zb-2p", "zb-v-search", "v-search", "search"})
    EXPECT_TRUE(searched.contains(name)) << name;
}

TEST(EverySearch, GivesTheSameOrderForTheSameInput) {
  std::set<std::string_view> looked;
  std::mt19937_64 random(18);
  for (const Schedule& schedule : schedules()) {
    if (!schedule.looks_at_costs) continue;
    for (int i = 0; i < kCases / 4; ++i) {
      ScheduleShape shape = uneven_shape(schedule, random);
      limit_memory(schedule, shape, random);
      if (!schedule.refuse(shape).empty()) continue;
      // Each thread remembers what it searched for lately, another one searches again.
      auto again = std::async(std::launch::async, [&] { return order_of(schedule, shape); });
      ASSERT_EQ(listed(order_of(schedule, shape)), listed(again.get()))
          << words(schedule, shape, i);
      looked.insert(schedule.name);
    }
  }
  EXPECT_GE(looked.size(), 6U);
}

}  // namespace
}  // namespace penstock::limits_test
