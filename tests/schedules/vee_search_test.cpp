// SPDX-License-Identifier: Apache-2.0
// The searches over two chunks there and back: valid for any shape, never above a limit, never
// worse than recorded searches and published orders of the same memory.
#include "schedules/search/vee.hpp"

#include "program/check.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/search/pair_cycles.hpp"
#include "schedules/search/remembered.hpp"
#include "schedules/search/pair_rounds.hpp"
#include "schedules/search/replay.hpp"
#include "tests/effort.hpp"
#include "tests/schedules/recorded.hpp"

#include <map>
#include <random>
#include <set>
#include <tuple>

namespace penstock::vee_search_test {
namespace {

Placement placement(const ScheduleShape& shape) {
  return layout(Layout::snake, std::vector<int>(shape.depth, 1), 2, shape.microbatches_per_update);
}

OpLists generated(std::string_view name, const ScheduleShape& shape) {
  OpLists order;
  find_schedule(name)->generate(shape, order);
  return order;
}

Evaluation evaluated(const OpLists& order, const ScheduleShape& shape) {
  return evaluate(order, placement(shape), shape);
}

double limit_of(const ScheduleShape& shape, double multiple) {
  return multiple * one_f_one_b_peak(shape);
}

/// F, I and W of every microbatch once on its device, in an order that can run and keeps the limit.
void expect_valid(const OpLists& order, const ScheduleShape& shape,
                  const std::vector<double>& limits, const std::string& what) {
  const Placement where = placement(shape);
  std::set<std::tuple<OpKind, std::uint32_t, std::uint32_t>> seen;
  for (int d = 0; d < order.devices(); ++d) {
    for (const Op& op : order.of_device(d)) {
      EXPECT_EQ(where.device_of(op.stage, op.microbatch), d) << what;
      EXPECT_TRUE(seen.emplace(op.kind, op.stage, op.microbatch).second) << what;
      EXPECT_TRUE(is_compute(op.kind) && op.kind != OpKind::backward) << what;
    }
  }
  EXPECT_EQ(seen.size(), std::size_t{3} * shape.stages() * shape.microbatches_per_update) << what;
  const Evaluation result = evaluate(order, where, shape);
  EXPECT_TRUE(result.stuck.empty()) << what;
  for (std::size_t d = 0; d < limits.size(); ++d)
    EXPECT_LE(result.peaks[d], limits[d] * (1 + 2e-9)) << what << " device " << d;
}

ScheduleShape even_shape(std::uint32_t p, std::uint32_t m, double limit) {
  ScheduleShape shape{.depth = p, .microbatches_per_update = m, .chunks = 2};
  shape.memory_limit = limit;
  return shape;
}

ScheduleShape recorded_shape(const RecordedCase& one) {
  ScheduleShape shape = one.shape(2 * one.p);
  shape.chunks = 2;
  const auto& memory = one.all["mem"];
  if (memory.contains("limit_chunks")) {
    shape.memory_limit = memory["limit_chunks"].get<double>() / (2 * one.p);
    return shape;
  }
  shape.memory_limit = memory["limit_x"];
  for (StageTimes& t : shape.times) {
    t.activation = memory["f"];
    t.activation_after_input = -memory["w"].get<double>();
  }
  return shape;
}

void expect_as_good_as_recorded(const RecordedCase& one, std::string_view name) {
  const ScheduleShape shape = recorded_shape(one);
  ASSERT_TRUE(find_schedule(name)->refuse(shape).empty()) << one.name();
  const OpLists order = generated(name, shape);
  const double limit = limit_of(shape, shape.memory_limit);
  expect_valid(order, shape, std::vector<double>(one.p, limit), one.name());
  if (!one.all.contains("ref")) return;  // the recorded search failed
  const Evaluation ours = evaluated(order, shape);
  EXPECT_LE(ours.stage_time, one.all["ref"]["max_stage_time"].get<double>()) << one.name();
  EXPECT_LE(ours.makespan, one.all["ref"]["makespan"].get<double>()) << one.name();
}

constexpr std::size_t kParts = 8;  // of the recorded cases, so that tests can run side by side
const std::size_t kPartsRun = kBrief ? 1 : kParts;

class RecordedVeeSearch : public testing::TestWithParam<std::size_t> {
 protected:
  static void expect_as_good(const std::string& file, std::string_view name, std::size_t cases) {
    const std::vector<RecordedCase> all = recorded_cases(file);
    EXPECT_EQ(all.size(), cases);
    for (std::size_t i = GetParam(); i < all.size(); i += kParts)
      expect_as_good_as_recorded(all[i], name);
  }
};

TEST_P(RecordedVeeSearch, IsNeverWorseThanTheHeuristicOfZbV) {
  SKIP_WITHOUT_RECORDED("sail_zbv_heuristic.jsonl.gz");
  expect_as_good("sail_zbv_heuristic.jsonl.gz", "zb-v-search", 300);
}

TEST_P(RecordedVeeSearch, IsNeverWorseThanTheAdaptiveSearch) {
  SKIP_WITHOUT_RECORDED("sail_v_adaptive_search.jsonl.gz");
  expect_as_good("sail_v_adaptive_search.jsonl.gz", "v-search", 20);
}

INSTANTIATE_TEST_SUITE_P(Parts, RecordedVeeSearch, testing::Range(std::size_t{0}, kPartsRun));

TEST(VeeSearch, RoundsAreTheRecordedHeuristicOfZbV) {
  SKIP_WITHOUT_RECORDED("sail_zbv_heuristic.jsonl.gz");
  for (const RecordedCase& one : recorded_cases("sail_zbv_heuristic.jsonl.gz")) {
    const ScheduleShape shape = recorded_shape(one);
    const Order rounds = round_order(order_problem(shape, 1));
    EXPECT_EQ(rounds.cost.stage_time, one.all["ref"]["max_stage_time"].get<double>()) << one.name();
  }
}

TEST(VeeSearch, ReachesThePublishedBubblesOfZbV) {
  const auto file = shared_folder() / "oracles" / "zbpaper_bubble_tables.json";
  SKIP_WITHOUT_SHARED(file);
  const auto rows = nlohmann::json::parse(read_file(file.string()))["arxiv_bubble_rates"]["rows"];
  ASSERT_EQ(rows.size(), 9);
  for (const auto& row : rows) {
    ScheduleShape shape = even_shape(row["p"], row["m"], 1);
    const double hidden = row["h"], heads = row["a"], sequence = row["seq"];
    // Chunks are half a device; activations per layer: 34 h + 5 a s, of which W keeps 32 h.
    const StageTimes chunk{row["f"].get<double>() / 2, row["b"].get<double>() / 2,
                           row["w"].get<double>() / 2, 34 * hidden + 5 * heads * sequence,
                           32 * hidden};
    shape.times.assign(shape.stages(), chunk);
    shape.transfer = row["c"];
    const double taken = evaluated(generated("zb-v-search", shape), shape).stage_time;
    const double work = 2 * row["m"].get<double>() * (chunk.forward + chunk.backward());
    EXPECT_LE(1 - work / taken, row["zbv_bubble"].get<double>() + 5e-5) << row.dump();
  }
}

/// The least memory of a V at equal times is V-Min's; where a device may hold an odd number of
/// activations, an order within two slots of the bound is found.
TEST(VeeSearch, ReachesTheLowerBoundAtEveryEvenLimitFromVMinOn) {
  for (const std::uint32_t p : {2U, 4U, 6U, 7U, 9U, 12U, 16U}) {
    if (kBrief && p > 7) break;
    for (std::uint32_t k = 2 * ((p + 4) / 3); k <= 2 * p; ++k) {
      const std::uint32_t m = k % 4 == 0 ? k : 3 * p;
      const ScheduleShape shape = even_shape(p, m, k / (2.0 * p));
      const double idle = evaluated(generated("v-search", shape), shape).stage_time - 6.0 * m;
      const double bound = std::max(0.0, 6.0 * p - 1 - 3.0 * k);
      EXPECT_GE(idle, bound) << "p " << p << " k " << k;
      EXPECT_LE(idle, bound + (k % 2 == 0 ? 0 : 2)) << "p " << p << " k " << k;
    }
  }
}

/// Times and activations of every stage at random, of some half of the cases all alike.
ScheduleShape random_shape(std::mt19937_64& random) {
  const auto any = [&](double least, double most) {
    return least + (most - least) * static_cast<double>(random() % 1000) / 1000;
  };
  ScheduleShape shape = even_shape(static_cast<std::uint32_t>(1 + random() % 7),
                                   static_cast<std::uint32_t>(1 + random() % 20), 0);
  const auto one = [&] {
    const double activation = any(0.5, 3);
    return StageTimes{any(0.5, 2), any(0.5, 2), any(0.2, 2), activation, activation * any(0, 1)};
  };
  shape.times.assign(shape.stages(), one());
  if (random() % 2 == 0) {
    for (StageTimes& t : shape.times) t = one();
  }
  shape.transfer = random() % 2 == 0 ? 0 : any(0, 0.5);
  return shape;
}

TEST(VeeSearch, AnyTimesActivationsAndLimitsGiveAValidOrderWithinTheLimits) {
  std::mt19937_64 random(1);
  for (int i = 0; i < fewer(60); ++i) {
    ScheduleShape shape = random_shape(random);
    std::vector<double> limits;
    for (std::uint32_t d = 0; d < shape.depth; ++d) {
      const double both = shape.time(d).activation + shape.time(shape.stages() - 1 - d).activation;
      const double more = 1 + static_cast<double>(random() % 8) * shape.depth / 8;
      limits.push_back(both * more);
      shape.memory_limits.push_back(limits.back() / limit_of(shape, 1));
    }
    ASSERT_TRUE(find_schedule("v-search")->refuse(shape).empty()) << i;
    expect_valid(generated("v-search", shape), shape, limits, fmt::format("case {}", i));
  }
}

TEST(VeeSearch, EverySmallShapeIsValidAtItsLeastLimit) {
  for (std::uint32_t p = 1; p <= (kBrief ? 4 : 8); ++p) {
    for (const std::uint32_t m : {1U, 2U, 3U, 7U, 13U, 24U}) {
      const ScheduleShape shape = even_shape(p, m, 1.0 / p);
      const OpLists order = generated("v-search", shape);
      expect_valid(order, shape, std::vector<double>(p, 2), fmt::format("p {} m {}", p, m));
    }
  }
}

TEST(VeeSearch, IsNoWorseThanPublishedOrdersThatFit) {
  std::mt19937_64 random(2);
  for (int i = 0; i < fewer(24); ++i) {
    ScheduleShape shape = random_shape(random);
    shape.microbatches_per_update = 1 + 5 * shape.microbatches_per_update;
    for (const char* name : {"v-min", "v-half", "v-zb", "zb-v"}) {
      const Evaluation published = evaluated(generated(name, shape), shape);
      shape.memory_limits.clear();
      for (const double peak : published.peaks)
        shape.memory_limits.push_back(peak / limit_of(shape, 1));
      const Evaluation ours = evaluated(generated("v-search", shape), shape);
      EXPECT_LE(ours.stage_time, published.stage_time * (1 + 1e-9)) << name << " case " << i;
    }
  }
}

TEST(VeeSearch, MoreMemoryIsUsedToSaveTime) {
  std::map<std::uint32_t, double> taken;
  for (const std::uint32_t k : {6U, 8U, 10U, 12U}) {
    const ScheduleShape shape = even_shape(6, 24, k / 12.0);
    taken[k] = evaluated(generated("v-search", shape), shape).stage_time;
  }
  EXPECT_GT(taken[6], taken[8]);
  EXPECT_GT(taken[8], taken[10]);
  EXPECT_GT(taken[10], taken[12]);
}

/// 8 devices of 5 + 5 layers of 14.7, 16.7 and 12.7 ms, but 6 + 5 and 5 + 4 with an LM head.
ScheduleShape large_model(std::uint32_t m, double limit) {
  ScheduleShape shape = even_shape(8, m, limit);
  for (const int layers : {5, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4}) {
    const double n = layers;
    shape.times.push_back({14.7 * n, 16.7 * n, 12.7 * n, 1.05 * n, 1.05 * n});
  }
  StageTimes& last = shape.times.back();
  last = {last.forward + 15.7, last.backward_input + 15.6, last.backward_weight + 15.6,
          last.activation + 2, last.activation_after_input};
  shape.transfer = 1.4;
  return shape;
}

TEST(VeeSearch, ManyMicrobatchesOfUnlikeStagesLeaveLittleBubbleInHalfTheMemory) {
  const ScheduleShape shape = large_model(256, 0.5);
  const OpLists order = generated("v-search", shape);
  expect_valid(order, shape, std::vector<double>(8, limit_of(shape, 0.5)), "large model");
  const double busiest = 256 * 11 * (14.7 + 16.7 + 12.7);
  EXPECT_LT(evaluated(order, shape).makespan, 1.08 * busiest);
}

TEST(PairCycles, OrdersTakeNoLongerThanTheirPeriodAndHoldNoMoreThanTheCycle) {
  std::mt19937_64 random(3);
  for (const double limit : {0.45, 0.6, 1.0}) {
    const ScheduleShape shape = large_model(64, limit);
    const OrderProblem problem = order_problem(shape, limit);
    const auto published = cycle_in(problem, word_of(problem, generated("v-min", shape)));
    ASSERT_TRUE(published);
    const auto cycle = improved(problem, *published, 20'000, random).within;
    ASSERT_TRUE(cycle) << limit;
    EXPECT_EQ(excess_of(problem, *cycle), 0);
    const std::vector<Pass> word = word_of(problem, *cycle);
    EXPECT_TRUE(admissible(problem, word)) << limit;
    const auto again = cycle_in(problem, word);
    ASSERT_TRUE(again);
    EXPECT_EQ(word_of(problem, *again), word);
    OrderProblem longer = problem;
    longer.microbatches = 128;
    const double one = penstock::evaluated(problem, word).cost.makespan;
    const double two = penstock::evaluated(longer, word_of(longer, *cycle)).cost.makespan;
    EXPECT_GE((two - one) / 64, problem.work(1) / 64 * (1 - 1e-9)) << limit;
    EXPECT_LE((two - one) / 64, period_of(problem, *cycle) * (1 + 1e-9)) << limit;
  }
}

/// Does no pass wait longer than `period`? By its definition, every wait of every pass again and
/// again, until nothing starts later.
bool repeats_within(const OrderProblem& problem, const PairCycle& cycle, double period) {
  const std::vector<PassLine> lines = pass_lines(problem);
  std::vector<double> start(lines.size(), 0);
  for (std::size_t round = 0; round <= lines.size(); ++round) {
    bool later = false;
    const auto wait = [&](std::size_t n, std::size_t input, double message, int cycles) {
      const double until = start[input] + lines[input].duration + message - period * cycles;
      if (until <= start[n] + 1e-9) return;
      start[n] = until;
      later = true;
    };
    for (std::size_t d = 0; d < problem.devices; ++d)
      for (std::size_t i = 0; i < kPasses; ++i) {
        const std::size_t n = d * kPasses + index(cycle.order[d][i]);
        const std::size_t last = (i + kPasses - 1) % kPasses, from = lines[n].from;
        wait(n, d * kPasses + index(cycle.order[d][last]), 0, i == 0 ? 1 : 0);
        if (from >= lines.size()) continue;
        wait(n, from, is_weight(cycle.order[d][i]) ? 0 : lines[from].message,
             cycle.first[d][n % kPasses] - cycle.first[from / kPasses][from % kPasses]);
      }
    if (!later) return true;
  }
  return false;
}

/// Of so many devices, every stage's passes taking any `time`.
template <typename Time>
ScheduleShape any_shape(std::uint32_t devices, std::mt19937_64& random, const Time& time) {
  ScheduleShape shape = even_shape(devices, 40, 1);
  shape.transfer = static_cast<double>(random() % 4);
  for (std::uint32_t s = 0; s < shape.stages(); ++s)
    shape.times.push_back({time(), time(), time(), 1, 0.5});
  return shape;
}

/// The pass there and the one after it, the last one and the first of the next cycle.
void change_places(PairCycle& cycle, std::size_t d, std::size_t at) {
  auto& order = cycle.order[d];
  if (at + 1 == kPasses) {
    ++cycle.first[d][index(order.back())];
    --cycle.first[d][index(order.front())];
  }
  std::swap(order[at], order[(at + 1) % kPasses]);
}

TEST(PairCycles, NoPeriodIsShorterOrLongerThanItsPassesWait) {
  std::mt19937_64 random(20261128);
  constexpr double kNear = 1e-6;
  int periods = 0, never = 0;
  for (int i = 0; i < fewer(400); ++i) {
    const ScheduleShape shape =
        any_shape(2 + i % 5, random, [&] { return static_cast<double>(1 + random() % 20); });
    const OrderProblem problem = order_problem(shape, 1);
    std::optional<PairCycle> cycle =
        cycle_in(problem, word_of(problem, generated("v-half", shape)));
    ASSERT_TRUE(cycle);
    for (int move = 0; move < 60; ++move) {
      const std::size_t d = random() % problem.devices, at = random() % kPasses;
      const PairCycle before = *cycle;
      change_places(*cycle, d, at);
      const double period = period_of(problem, *cycle);
      if (period == kNever) {
        EXPECT_FALSE(repeats_within(problem, *cycle, 1e6));
        ++never;
        cycle = before;
        continue;
      }
      ++periods;
      EXPECT_TRUE(repeats_within(problem, *cycle, period * (1 + kNear)));
      EXPECT_FALSE(repeats_within(problem, *cycle, period * (1 - kNear)));
    }
  }
  EXPECT_GT(periods, never);
  EXPECT_GT(never, 0);
}

/// Every other order of a device is taken exactly where its period from nothing is at most that.
TEST(PairCycles, PeriodsOfChangedOrdersAreThoseFromNothing) {
  std::mt19937_64 random(20261129);
  constexpr double kNear = 1e-6;
  int taken = 0, refused = 0;
  for (int i = 0; i < fewer(200); ++i) {
    const ScheduleShape shape = any_shape(2 + i % 5, random, [&] {
      // Every other time circles are as long as others but for rounding.
      const double nearly = i % 2 == 0 ? 1 : 1 + 2e-10 * static_cast<double>(random() % 8);
      return nearly * static_cast<double>(1 + random() % (i % 2 == 0 ? 20 : 3));
    });
    const OrderProblem problem = order_problem(shape, 1);
    const auto published = cycle_in(problem, word_of(problem, generated("v-half", shape)));
    ASSERT_TRUE(published);
    PairCycle cycle = *published;
    CyclePeriod known(problem);
    ASSERT_TRUE(known.take(cycle));
    for (int move = 0; move < 100; ++move) {
      const auto d = static_cast<std::uint32_t>(random() % problem.devices);
      const std::size_t at = random() % kPasses;
      PairCycle changed = cycle;
      change_places(changed, d, at);
      const double period = period_of(problem, changed), before = known.period();
      const double at_most = before * (0.9 + 0.05 * static_cast<double>(random() % 8));
      if (std::abs(period / at_most - 1) < kNear) continue;  // either, by rounding
      if (known.take(d, changed.order[d], changed.first[d], at_most)) {
        EXPECT_LE(period, at_most);
        EXPECT_NEAR(known.period() / period, 1, kNear);
        cycle = std::move(changed);
        ++taken;
      } else {
        EXPECT_GT(period, at_most);
        EXPECT_EQ(known.period(), before);
        ++refused;
      }
    }
    EXPECT_NEAR(known.period() / period_of(problem, cycle), 1, kNear);
  }
  EXPECT_GT(taken, fewer(200));
  EXPECT_GT(refused, fewer(200));
}

TEST(PairCycles, ALimitThatNoCycleKeepsHasNone) {
  std::mt19937_64 random(3);
  const ScheduleShape shape = large_model(64, 0.5);
  OrderProblem problem = order_problem(shape, 0.5);
  const auto published = cycle_in(problem, word_of(problem, generated("v-min", shape)));
  problem.limits[3] = 10;  // of 5.25 each chunk: not one of both
  const FoundCycles found = improved(problem, *published, 2'000, random);
  EXPECT_FALSE(found.within);
  ASSERT_TRUE(found.nearest);
  EXPECT_GT(excess_of(problem, *found.nearest), 0);
  const auto cost = [&](const PairCycle& cycle) {
    return period_of(problem, cycle) * (1 + kPriceOfExcess * excess_of(problem, cycle));
  };
  EXPECT_LE(cost(*found.nearest), cost(*published));
}

TEST(VeeSearch, TooLittleMemoryIsRefusedWithTheLeastThatIsEnough) {
  for (const std::uint32_t p : {1U, 3U, 7U, 8U}) {
    for (const char* name : {"v-search", "zb-v-search"}) {
      const Refusal refusal = find_schedule(name)->refuse(even_shape(p, 8, 0.9 / p));
      ASSERT_EQ(refusal.key, "memory_limit");
      const std::size_t at = refusal.why.find(" is ");
      ASSERT_NE(at, std::string::npos) << refusal.why;
      const ScheduleShape least = even_shape(p, 8, std::stod(refusal.why.substr(at + 4)));
      EXPECT_TRUE(find_schedule(name)->refuse(least).empty()) << refusal.why;
      expect_valid(generated(name, least), least, std::vector<double>(p, 3), refusal.why);
    }
  }
}

TEST(RememberedOrders, AreSearchedForOnceAndForgottenAfterEightOthers) {
  RememberedOrders orders;
  int searches = 0;
  const auto ask = [&](std::uint32_t microbatches) {
    const OrderProblem problem = order_problem(even_shape(2, microbatches, 1), 1);
    return orders.word(problem, [&](const OrderProblem& asked) {
      ++searches;
      return Order{{}, std::vector(asked.microbatches, kF0)};
    });
  };
  EXPECT_EQ(ask(1), ask(1));
  EXPECT_EQ(searches, 1);
  EXPECT_NE(ask(2), ask(1));
  EXPECT_EQ(searches, 2);
  for (std::uint32_t m = 3; m <= 9; ++m) ask(m);
  EXPECT_EQ(searches, 9);
  ask(2);
  EXPECT_EQ(searches, 9);
  ask(1);
  EXPECT_EQ(searches, 10);
}

TEST(VeeSearch, FindsTheSameOrderEveryTime) {
  const OrderProblem problem = order_problem(even_shape(4, 9, 0.75), 1);
  EXPECT_EQ(search_vee(problem).word, search_vee(problem).word);
}

TEST(VeeSearch, FindsWhatRepeatsOnAnyNumberOfDevices) {
  for (const std::uint32_t devices : {2U, 3U, 24U, 25U, 32U, 64U}) {
    const OrderProblem problem = order_problem(even_shape(devices, 2 * devices, 1), 1);
    const auto cycle = repeating_vee(problem);
    ASSERT_TRUE(cycle) << devices;
    EXPECT_LE(period_of(problem, *cycle), problem.work(0) / problem.microbatches * 1.001);
  }
}

}  // namespace
}  // namespace penstock::vee_search_test
