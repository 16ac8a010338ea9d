// SPDX-License-Identifier: Apache-2.0
// Zero-bubble schedules: the handcrafted orders have the bubble and the memory of their formulas,
// the search is never worse than what other tools found, than what is proven, and than 1F1B.
#include "program/check.hpp"
#include "program/dependencies.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/lowering.hpp"
#include "schedules/search/linear.hpp"
#include "schedules/search/replay.hpp"
#include "tests/effort.hpp"
#include "tests/schedules/recorded.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace penstock::zero_bubble_test {
namespace {

ScheduleShape even_shape(std::uint32_t p, std::uint32_t m, const StageTimes& times,
                         double transfer = 0) {
  ScheduleShape shape{.depth = p, .microbatches_per_update = m};
  shape.times.assign(p, times);
  shape.transfer = transfer;
  return shape;
}

OpLists order_of(const Schedule& schedule, const ScheduleShape& shape) {
  OpLists order;
  schedule.generate(shape, order);
  return order;
}

Evaluation run(const OpLists& order, const ScheduleShape& shape) {
  return evaluate(order, loop_placement(static_cast<int>(shape.depth), 1, 1), shape);
}

/// Is every F, I and W of every microbatch there once, on its device?
bool complete(const OpLists& order, const ScheduleShape& shape) {
  const std::uint32_t m = shape.microbatches_per_update;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    std::array<std::vector<int>, 4> seen;
    for (auto& of_kind : seen) of_kind.resize(m);
    for (const Op& op : order.of_device(static_cast<int>(d))) {
      if (op.stage != d || op.microbatch >= m) return false;
      ++seen[static_cast<std::size_t>(op.kind)][op.microbatch];
    }
    for (const OpKind kind : {OpKind::forward, OpKind::backward_input, OpKind::backward_weight}) {
      const auto& counts = seen[static_cast<std::size_t>(kind)];
      if (std::ranges::any_of(counts, [](int n) { return n != 1; })) return false;
    }
    if (order.of_device(static_cast<int>(d)).size() != std::size_t{3} * m) return false;
  }
  return true;
}

const Schedule& named(const char* name) { return *find_schedule(name); }

TEST(ZbH1, RunsAsFarAheadAsOneFOneBAndKeepsWeightsBackByTheRank) {
  const ScheduleShape shape{.depth = 3, .microbatches_per_update = 4};
  const OpLists order = order_of(named("zb-h1"), shape);
  EXPECT_EQ(tokens_of(order, 0), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(tokens_of(order, 2), "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
}

TEST(ZbH2, RunsTwiceAsFarAhead) {
  const ScheduleShape shape{.depth = 3, .microbatches_per_update = 6};
  const OpLists order = order_of(named("zb-h2"), shape);
  EXPECT_EQ(tokens_of(order, 0).substr(0, 31), "0F0 0F1 0F2 0F3 0F4 0I0 0W0 0F5");
  EXPECT_EQ(tokens_of(order, 2).substr(0, 31), "2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3");
}

/// Times whose bubble the formulas give, and times for which they make no claim.
const std::vector<StageTimes>& various_times() {
  static const std::vector<StageTimes> kTimes = {
      {1, 1, 1, 1, 1},    {10, 12, 8, 1, 1}, {10, 12, 11, 1, 1},
      {20, 17, 15, 1, 1}, {5, 6, 4, 1, 1},   {3, 1, 1, 1, 1},
      {1, 3, 2, 1, 1},    {1, 1, 3, 1, 1},   {18522, 18086, 9337, 1, 1}};
  return kTimes;
}

TEST(ZbHandcrafted, HasTheBubbleAndTheMemoryOfItsFormula) {
  for (const char* name : {"zb-h1", "zb-h2"}) {
    const Schedule& schedule = named(name);
    int claims = 0;
    for (std::uint32_t p = 1; p <= 8; ++p) {
      for (std::uint32_t m = 1; m <= 24; ++m) {
        for (const StageTimes& times : various_times()) {
          const ScheduleShape shape = even_shape(p, m, times);
          ASSERT_TRUE(schedule.refuse(shape).empty());
          const OpLists order = order_of(schedule, shape);
          const Evaluation found = run(order, shape);
          ASSERT_TRUE(complete(order, shape)) << name << " p=" << p << " m=" << m;
          ASSERT_TRUE(found.stuck.empty()) << name << " p=" << p << " m=" << m;
          for (std::uint32_t d = 0; d < p; ++d)
            ASSERT_EQ(found.peaks[d], schedule.peak(shape, d)) << name << " p=" << p << " m=" << m;
          const double claim = schedule.ideal_bubble(shape);
          if (std::isnan(claim)) continue;
          ++claims;
          const double work = m * (times.forward + times.backward());
          ASSERT_NEAR(1 - work / found.stage_time, claim, 1e-12)
              << name << " p=" << p << " m=" << m << " f=" << times.forward
              << " b=" << times.backward_input << " w=" << times.backward_weight;
        }
      }
    }
    EXPECT_GT(claims, 400) << name;
  }
}

/// The published tables: times in microseconds, activations per layer (the paper's section on
/// memory): 34 h + 5 a s kept by F, 32 h of it on from I to W.
TEST(ZeroBubbleTables, AreReproducedToFourDigits) {
  const auto file = shared_folder() / "oracles" / "zbpaper_bubble_tables.json";
  SKIP_WITHOUT_SHARED(file);
  const auto tables = nlohmann::json::parse(read_file(file.string()));
  int rows = 0;
  for (const char* table : {"iclr_bubble_rates", "arxiv_bubble_rates"}) {
    for (const auto& row : tables[table]["rows"]) {
      const double h = row["h"], a = row["a"], s = row["seq"];
      const ScheduleShape shape = even_shape(
          row["p"], row["m"], {row["f"], row["b"], row["w"], 34 * h + 5 * a * s, 32 * h}, row["c"]);
      const double work = row["expected_time"];
      const auto rate = [&](const char* name) {
        return 1 - work / run(order_of(named(name), shape), shape).stage_time;
      };
      const auto where =
          fmt::format("{} p={} m={}", table, shape.depth, shape.microbatches_per_update);
      EXPECT_NEAR(rate("1f1b"), row["bubble_1f1b"].get<double>(), 5e-5) << where;
      EXPECT_NEAR(rate("zb-h1"), row["h1_bubble"].get<double>(), 5e-5) << where;
      EXPECT_NEAR(rate("zb-1p"), row["p1_bubble"].get<double>(), 5e-5) << where;
      // The published search does not find all that there is to find.
      EXPECT_LE(rate("zb-2p"), row["p2_bubble"].get<double>() + 5e-5) << where;
      // ZB-H2's column is the stage time of the formula, (p-1)(f + b + 2c - 2w).
      EXPECT_NEAR(rate("zb-h2"), row["h2_bubble"].get<double>(), 5e-5) << where;
      ++rows;
    }
  }
  EXPECT_EQ(rows, 21);
}

OrderProblem problem_of(const RecordedCase& one) {
  OrderProblem problem{.devices = one.p, .microbatches = one.m, .transfer = one.number("c")};
  const auto& memory = one.all["mem"];
  const double kept = memory["f"], after_input = -memory["w"].get<double>();
  problem.times.assign(one.p,
                       {one.number("f"), one.number("b"), one.number("w"), kept, after_input});
  problem.limits.assign(one.p, memory["limit"].get<double>());
  return problem;
}

class RecordedSearches : public testing::TestWithParam<const char*> {};

TEST_P(RecordedSearches, AreNeverBetterThanOurs) {
  SKIP_WITHOUT_RECORDED(GetParam());
  int compared = 0;
  for (const RecordedCase& one : recorded_cases(GetParam())) {
    const OrderProblem problem = problem_of(one);
    const Order found = search_linear(problem);
    const auto& ref = one.all["ref"];
    const double theirs = ref["max_stage_time"];
    const auto where = one.name() + " limit " + one.all["mem"]["limit_x"].dump();
    EXPECT_LE(found.cost.stage_time, theirs * (1 + 1e-9)) << where;
    if (found.cost.stage_time >= theirs * (1 - 1e-9)) {
      EXPECT_LE(found.cost.makespan, ref["makespan"].get<double>() * (1 + 1e-9)) << where;
    }
    EXPECT_LE(least_cost(problem).stage_time, theirs * (1 + 1e-9)) << where;
    ScheduleShape shape = one.shape(one.p);
    shape.times = problem.times;
    OpLists order;
    append_order(problem, found.word, order);
    const Evaluation evaluated = run(order, shape);
    ASSERT_TRUE(complete(order, shape)) << where;
    EXPECT_NEAR(evaluated.stage_time, found.cost.stage_time, 1e-6) << where;
    EXPECT_NEAR(evaluated.makespan, found.cost.makespan, 1e-6) << where;
    for (std::size_t d = 0; d < one.p; ++d)
      EXPECT_LE(evaluated.peaks[d], problem.limits[d] * (1 + 1e-9)) << where;
    ++compared;
  }
  EXPECT_GT(compared, 15);
}

TEST_P(RecordedSearches, ProvenOptimaAreReached) {
  SKIP_WITHOUT_RECORDED(GetParam());
  for (const RecordedCase& one : recorded_cases(GetParam())) {
    if (one.all.value("status", "") != "Optimal") continue;
    EXPECT_NEAR(search_linear(problem_of(one)).cost.stage_time, one.all["ilp_best"].get<double>(),
                1e-6)
        << one.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RecordedSearches,
                         testing::Values("sail_zb_auto.jsonl.gz", "sail_zb_ilp.jsonl.gz"));

TEST(ZbSearch, MeetsTheClosedFormsWhereTheyClaim) {
  int claims = 0;
  for (const char* name : {"zb", "zb-1p", "zb-2p"}) {
    for (std::uint32_t p = 1; p <= 8; ++p) {
      for (std::uint32_t m = 1; m <= 24; ++m) {
        for (const StageTimes& times : various_times()) {
          const ScheduleShape shape = even_shape(p, m, times);
          const double claim = named(name).ideal_bubble(shape);
          if (std::isnan(claim)) continue;
          ++claims;
          const double work = m * (times.forward + times.backward());
          const double bubble = 1 - work / run(order_of(named(name), shape), shape).stage_time;
          ASSERT_NEAR(bubble, claim, 1e-12) << name << " p=" << p << " m=" << m;
        }
      }
    }
  }
  EXPECT_GT(claims, 600);
}

void expect_no_problem(const Schedule& schedule, const ScheduleShape& shape) {
  ASSERT_EQ(schedule.refuse(shape).why, "");
  const Program program = lower(schedule, shape, {Transfers::overlapped});
  const DependencyTable table(program.ops, program.placement, program.microbatches());
  const auto problems = check(program, table);
  ASSERT_TRUE(problems.empty()) << schedule.name << " p=" << shape.depth << " "
                                << shape.microbatches_per_update << " " << problems[0];
}

TEST(ZeroBubble, PassesTheCheckerWithinEveryLimit) {
  for (std::uint32_t p = 1; p <= (kBrief ? 4 : 8); ++p) {
    for (std::uint32_t m = 1; m <= 24; ++m) {
      ScheduleShape shape{.depth = p, .microbatches_per_update = m};
      for (const char* name : {"zb-h1", "zb-h2", "zb-1p", "zb-2p"})
        expect_no_problem(named(name), shape);
      const std::array limits = {1.0 / p, 0.5 + 0.5 / p, 1.25, 1.5, 3.0};
      shape.memory_limit = limits[(p + m) % limits.size()];
      expect_no_problem(named("zb"), shape);
      for (const double peak : run(order_of(named("zb"), shape), shape).peaks)
        ASSERT_LE(peak, p * shape.memory_limit * (1 + 1e-9)) << p << " " << m;
    }
  }
}

/// Uneven times, activations and limits, from one microbatch on.
OrderProblem random_problem(std::mt19937& random) {
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution(low, high)(random);
  };
  const auto p = static_cast<std::uint32_t>(between(1, 9));
  OrderProblem problem{.devices = p,
                       .microbatches = static_cast<std::uint32_t>(between(1, 25)),
                       .transfer = random() % 2 == 0 ? 0 : between(0, 4)};
  const bool even = random() % 3 == 0;
  const double room = random() % 4 == 0 ? 1 : between(1, 2.5 * p);
  for (std::uint32_t d = 0; d < p; ++d) {
    const double kept = between(1, 3);
    problem.times.push_back({between(1, 10), between(1, 10), between(0, 10), kept,
                             random() % 5 == 0 ? 0 : between(0, kept)});
    if (even && d > 0) problem.times[d] = problem.times[0];
    problem.limits.push_back(problem.times[d].activation * room);
    if (random() % 8 == 0) problem.limits[d] = problem.times[d].activation;
  }
  return problem;
}

/// 1F1B with I and W for B, with fewer forwards ahead where they would not fit.
OpLists split_one_f_one_b(const OrderProblem& problem) {
  OpLists order;
  const std::uint32_t m = problem.microbatches;
  std::uint32_t ahead = m;
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    const double fits = problem.limits[d] * (1 + 1e-9) / problem.times[d].activation;
    ahead = std::min(ahead, problem.devices - d);
    ahead = static_cast<std::uint32_t>(std::min<double>(ahead, fits));
    for (std::uint32_t k = 0; k + 1 < ahead; ++k) order.add_op(make_op(OpKind::forward, d, k));
    for (std::uint32_t k = 0; k < m; ++k) {
      if (k + ahead <= m) order.add_op(make_op(OpKind::forward, d, k + ahead - 1));
      order.add_op(make_op(OpKind::backward_input, d, k));
      order.add_op(make_op(OpKind::backward_weight, d, k));
    }
    order.end_device();
  }
  return order;
}

TEST(ZbSearch, IsValidWithinTheLimitsAndNeverWorseThanOneFOneB) {
  std::mt19937 random(20241121);
  for (int n = 0; n < 2000; ++n) {
    const OrderProblem problem = random_problem(random);
    const Order found = search_linear(problem, 200000);
    ScheduleShape shape{.depth = problem.devices, .microbatches_per_update = problem.microbatches};
    shape.times = problem.times;
    shape.transfer = problem.transfer;
    OpLists order;
    append_order(problem, found.word, order);
    const Evaluation ours = run(order, shape), plain = run(split_one_f_one_b(problem), shape);
    ASSERT_TRUE(complete(order, shape)) << n;
    ASSERT_TRUE(ours.stuck.empty()) << n;
    for (std::size_t d = 0; d < problem.devices; ++d)
      ASSERT_LE(ours.peaks[d], problem.limits[d] * (1 + 1e-9)) << n;
    ASSERT_TRUE(plain.stuck.empty()) << n;
    ASSERT_LE(ours.stage_time, plain.stage_time * (1 + 1e-9)) << n;
    ASSERT_GE(ours.stage_time, least_cost(problem).stage_time * (1 - 1e-9)) << n;
  }
}

/// All orders of small problems, one device's word after the other.
class Exhaustively {
 public:
  explicit Exhaustively(const OrderProblem& problem) : problem_(problem), replay_(problem) {
    extend(0, 0, 0, 0);
  }
  double best() const { return best_; }

 private:
  void extend(std::uint32_t d, std::uint32_t f, std::uint32_t i, std::uint32_t w) {
    const std::uint32_t m = problem_.microbatches;
    if (w == m) {
      if (d + 1 < problem_.devices) return extend(d + 1, 0, 0, 0);
      if (replay_.run_word(word_, times_)) best_ = std::min(best_, times_.cost.stage_time);
      return;
    }
    const StageTimes& t = problem_.times[d];
    const double held = f * t.activation - i * (t.activation - t.activation_after_input) -
                        w * t.activation_after_input;
    const auto with = [&](Pass pass, std::uint32_t nf, std::uint32_t ni, std::uint32_t nw) {
      word_.push_back(pass);
      extend(d, nf, ni, nw);
      word_.pop_back();
    };
    if (f < m && held + t.activation <= problem_.limit(d)) with(kF0, f + 1, i, w);
    if (i < f) with(kI0, f, i + 1, w);
    if (w < i) with(kW0, f, i, w + 1);
  }

  const OrderProblem& problem_;
  Replay replay_;
  Replay::Times times_;
  std::vector<Pass> word_;
  double best_ = std::numeric_limits<double>::infinity();
};

TEST(ZbSearch, IsOptimalWhereEveryOrderCanBeTried) {
  std::mt19937 random(5);
  for (int n = 0; n < 60; ++n) {
    OrderProblem problem = random_problem(random);
    const std::uint32_t p = 2 + n % 2, m = p == 3 ? 2 : 2 + n % 3;
    problem.devices = p;
    problem.microbatches = m;
    problem.times.resize(p, problem.times[0]);
    problem.limits.resize(p, problem.limits[0]);
    EXPECT_LE(search_linear(problem).cost.stage_time, Exhaustively(problem).best() * (1 + 1e-9))
        << n;
  }
}

TEST(ZbSearch, GivesTheSameOrderEveryTime) {
  const OrderProblem problem = order_problem(even_shape(6, 17, {10, 12, 8, 1, 0.5}, 1), 1.25);
  EXPECT_EQ(search_linear(problem).word, search_linear(problem).word);
}

TEST(ZbSearch, WithoutActivationsCountsMicrobatches) {
  const ScheduleShape shape = even_shape(4, 12, {1, 1, 1, 0, 0});
  const OpLists order = order_of(named("zb-1p"), shape);
  for (const double peak : run(order, even_shape(4, 12, {1, 1, 1, 1, 1})).peaks) EXPECT_LE(peak, 4);
}

TEST(ZbSearch, RefusesLimitsBelowOneMicrobatchAndNamesTheLeast) {
  ScheduleShape shape = even_shape(4, 8, {1, 1, 1, 2, 1});
  shape.memory_limit = 0.2;
  const Refusal refusal = named("zb").refuse(shape);
  EXPECT_EQ(refusal.key, "memory_limit");
  EXPECT_NE(refusal.why.find("the least legal value is 0.25"), std::string::npos) << refusal.why;
  shape.memory_limit = 0.25;
  EXPECT_EQ(named("zb").refuse(shape).why, "");
  shape.times[2].activation = 5;
  EXPECT_NE(named("zb").refuse(shape).why.find("device 2"), std::string::npos);
  EXPECT_NE(named("zb").refuse(shape).why.find("0.5"), std::string::npos);
  shape.memory_limits = {1, 1};
  EXPECT_NE(named("zb").refuse(shape).why.find("2 values for 4 devices"), std::string::npos);
}

TEST(ZbSearch, NamesThatStateALimitTakeNoOther) {
  ScheduleShape shape = even_shape(4, 8, {1, 1, 1, 1, 1});
  EXPECT_EQ(named("zb-1p").refuse(shape).why, "");
  shape.memory_limit = 1.5;
  EXPECT_NE(named("zb-1p").refuse(shape).why.find("take zb for any other limit"),
            std::string::npos);
  EXPECT_EQ(named("zb").refuse(shape).why, "");
}

}  // namespace
}  // namespace penstock::zero_bubble_test
