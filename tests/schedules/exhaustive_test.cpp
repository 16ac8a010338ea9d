// SPDX-License-Identifier: Apache-2.0
// Every schedule of the table on all p <= 8, m <= 24, v <= 3: the checker finds nothing wrong with
// what it admits, the formulas of its row hold where they are claimed, and what it refuses names
// values that it admits.
#include "program/check.hpp"
#include "program/dependencies.hpp"
#include "schedules/evaluate.hpp"
#include "schedules/lowering.hpp"
#include "tests/effort.hpp"
#include "tests/parameter_name.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

namespace penstock::exhaustive_test {
namespace {

constexpr std::uint32_t kMostDevices = 8, kMostMicrobatches = 24, kMostChunks = 3;

std::string describe(const ScheduleShape& shape) {
  return fmt::format("p={} m={} v={} batches={} group={}", shape.depth,
                     shape.microbatches_per_update, shape.chunks, shape.batches, shape.group);
}

ScheduleShape with_times(ScheduleShape shape, const StageTimes& times) {
  shape.times.assign(shape.stages(), times);
  return shape;
}

/// In-order channels, as NCCL's: what a device sends another one, of F and of B, is consumed in the
/// order in which it is sent.
void expect_messages_in_order(const Program& program, const DependencyTable& table) {
  std::map<std::tuple<int, int, bool>, std::uint32_t> last;
  for (int d = 0; d < program.ops.devices(); ++d) {
    for (const Op& op : program.ops.of_device(d)) {
      if (!op.has(Op::sends)) continue;
      const std::uint32_t to = table.consumer(op);
      const auto channel = std::tuple(d, table.consumer_device(op), op.kind == OpKind::forward);
      const auto [before, first] = last.try_emplace(channel, to);
      EXPECT_TRUE(first || before->second < to)
          << to_string(program.ops[to]) << " overtakes " << to_string(program.ops[before->second]);
      before->second = to;
    }
  }
}

void expect_valid(const Schedule& schedule, const ScheduleShape& shape, int width,
                  Transfers transfers) {
  ScheduleShape replicated = shape;
  if (replicated.replicas.alike()) replicated.replicas = width;
  const Program program = lower(schedule, replicated, {transfers});
  const DependencyTable table(program.ops, program.placement, program.microbatches());
  const auto problems = check(program, table);
  ASSERT_TRUE(problems.empty()) << schedule.name << " " << describe(shape) << " width " << width
                                << " " << to_string(transfers) << ": " << problems.front();
  expect_messages_in_order(program, table);
}

/// Can every message be a rendezvous? Where forwards also flow from the last device to the first, a
/// device may have to send to one that has to send to it, and both wait: such schedules need
/// senders that go on (see LoopedBfs.NeedsSendersThatGoOn). So does a W between an F and the I
/// whose gradient the receiver of the F must make first.
bool unidirectional(const Schedule& schedule, const ScheduleShape& shape) {
  return schedule.layout == Layout::loop && shape.chunks == 1 && !schedule.splits_backward;
}

void expect_peaks(const Schedule& schedule, const ScheduleShape& shape, const Evaluation& found) {
  for (std::uint32_t d = 0; schedule.peak != nullptr && d < shape.depth; ++d) {
    const double claimed = schedule.peak(shape, d);
    if (std::isnan(claimed)) continue;
    // A search keeps a limit, and need not use it up.
    if (schedule.looks_at_costs) {
      EXPECT_LE(found.peaks[d], claimed + 1e-9) << describe(shape) << " device " << d;
    } else {
      EXPECT_EQ(found.peaks[d], claimed) << describe(shape) << " device " << d;
    }
  }
}

/// Equal stages, free transfers: what the row says of the time.
void expect_bubble(const Schedule& schedule, const ScheduleShape& shape, int stages,
                   const Evaluation& found) {
  const double claimed = schedule.ideal_bubble(shape);
  if (std::isnan(claimed)) return;
  const StageTimes t = shape.time(0);
  const double of_all = shape.microbatches_per_update * stages * (t.forward + t.backward());
  const double work = of_all / shape.depth;
  const double whole = schedule.of_stage_time ? found.stage_time : found.makespan;
  EXPECT_NEAR((whole - work) / whole, claimed, 1e-12) << describe(shape);
}

/// The order of the whole run of a schedule that does not flush, else of one batch.
void expect_claims(const Schedule& schedule, const ScheduleShape& shape) {
  if (schedule.whole_backward) return;  // evaluate() knows one backward per microbatch only
  if (schedule.looks_at_costs && schedule.peak == nullptr &&
      std::isnan(schedule.ideal_bubble(shape)))
    return;  // a search that claims nothing here; the checker has seen its order
  OpLists order;
  schedule.generate(shape, order);
  ScheduleShape run = shape;
  if (!schedule.flushes()) run.microbatches_per_update = shape.total();
  const Placement where = placement_of(schedule, run);
  const Evaluation found = evaluate(order, where, run);
  ASSERT_TRUE(found.stuck.empty()) << describe(shape) << ": " << to_string(found.stuck.front());
  expect_peaks(schedule, shape, found);
  if (schedule.flushes()) expect_bubble(schedule, shape, where.stages(), found);
}

/// The whole numbers in a text, in order, but for factors as in "2p".
std::vector<std::uint32_t> numbers_in(std::string_view text) {
  std::vector<std::uint32_t> found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
    found.push_back(0);
    for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0; ++i)
      found.back() = found.back() * 10 + static_cast<std::uint32_t>(text[i] - '0');
    if (i < text.size() && std::isalpha(static_cast<unsigned char>(text[i])) != 0) found.pop_back();
  }
  return found;
}

/// The legal values that a refusal names: "the nearest legal values are 4 and 8; ...", or "must be
/// 1, not 3".
std::vector<std::uint32_t> legal_values(const Refusal& refusal) {
  if (const std::size_t at = refusal.why.find("nearest legal"); at != std::string::npos)
    return numbers_in(refusal.why.substr(at, refusal.why.find(';', at) - at));
  const std::size_t at = refusal.why.find("must be ");
  if (at == std::string::npos) return {};
  std::vector<std::uint32_t> values = numbers_in(refusal.why.substr(at));
  if (!values.empty()) values.resize(1);
  return values;
}

std::optional<ScheduleShape> with(ScheduleShape shape, std::string_view key, std::uint32_t value) {
  if (key == "microbatches")
    shape.microbatches_per_update = value;
  else if (key == "stages")
    shape.depth = value;
  else if (key == "chunks")
    shape.chunks = value;
  else if (key == "group")
    shape.group = value;
  else
    return std::nullopt;
  return shape;
}

/// Following what a refusal says leads to a shape that is admitted, or refused for another key at
/// most twice more.
void expect_good_advice(const Schedule& schedule, const ScheduleShape& refused, int more = 2) {
  const Refusal refusal = schedule.refuse(refused);
  const std::vector<std::uint32_t> values = legal_values(refusal);
  EXPECT_FALSE(values.empty()) << describe(refused) << " names no legal value: " << refusal.why;
  for (const std::uint32_t value : values) {
    const auto advised = with(refused, refusal.key, value);
    ASSERT_TRUE(advised) << "unknown key '" << refusal.key << "': " << refusal.why;
    const Refusal next = schedule.refuse(*advised);
    if (next.empty()) continue;
    EXPECT_NE(next.key, refusal.key) << describe(refused) << ": " << refusal.why << "\n"
                                     << describe(*advised) << ": " << next.why;
    ASSERT_GT(more, 0) << describe(refused) << ": " << refusal.why;
    expect_good_advice(schedule, *advised, more - 1);
  }
}

template <class Visit>
void for_each_shape(const Visit& visit) {
  for (std::uint32_t p = 1; p <= kMostDevices; ++p) {
    for (std::uint32_t m = 1; m <= kMostMicrobatches; ++m) {
      for (std::uint32_t v = 1; v <= kMostChunks; ++v) {
        ScheduleShape shape{.depth = p, .microbatches_per_update = m};
        shape.chunks = v;
        visit(shape);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

/// Searches take sanitizers hours; these see small shapes alone.
bool left_out(const Schedule& schedule, const ScheduleShape& shape) {
  return kBrief && schedule.looks_at_costs &&
         (shape.depth > 4 || shape.microbatches_per_update > 5);
}

template <class Visit>
void for_each_admitted(const Schedule& schedule, const Visit& visit) {
  int admitted = 0;
  for_each_shape([&](const ScheduleShape& shape) {
    if (left_out(schedule, shape) || !schedule.refuse(shape).empty()) return;
    ++admitted;
    visit(shape);
  });
  EXPECT_TRUE(admitted > 0 || testing::Test::HasFailure());
}

/// The schedule with the order that it makes of this shape, made once.
Schedule with_order_made(const Schedule& schedule, const ScheduleShape& shape) {
  static OpLists order;
  order = {};
  schedule.generate(shape, order);
  Schedule made = schedule;
  made.generate = [](const ScheduleShape&, OpLists& to) {
    for (int d = 0; d < order.devices(); ++d) {
      for (const Op& op : order.of_device(d)) to.add_op(op);
      to.end_device();
    }
  };
  return made;
}

class EverySchedule : public testing::TestWithParam<std::string_view> {
 protected:
  const Schedule& schedule() const { return *find_schedule(GetParam()); }
};

TEST_P(EverySchedule, PassesTheCheckerInEveryShapeItAdmits) {
  for_each_admitted(schedule(), [&](ScheduleShape shape) {
    // A search is slow, and its order is that of one batch.
    const Schedule made =
        schedule().looks_at_costs ? with_order_made(schedule(), shape) : schedule();
    for (const Transfers transfers : {Transfers::overlapped, Transfers::coupled}) {
      if (transfers == Transfers::coupled && !unidirectional(schedule(), shape)) continue;
      for (const std::uint32_t batches : {1U, 3U}) {
        shape.batches = batches;
        for (const int width : {1, 2}) expect_valid(made, shape, width, transfers);
      }
    }
  });
}

TEST_P(EverySchedule, TakesAndHoldsWhatItsRowClaims) {
  // Unit times; forwards dearer than W; W dearest.
  for (const StageTimes& times : {StageTimes{}, StageTimes{3, 4, 2}, StageTimes{1, 2, 4}}) {
    for_each_admitted(schedule(), [&](ScheduleShape shape) {
      if (!schedule().flushes()) shape.batches = 3;
      expect_claims(schedule(), with_times(shape, times));
    });
  }
}

TEST_P(EverySchedule, NamesLegalValuesForWhatItRefuses) {
  for_each_shape([&](const ScheduleShape& shape) {
    if (!schedule().refuse(shape).empty()) expect_good_advice(schedule(), shape);
  });
}

TEST_P(EverySchedule, FillsInItsRow) {
  for (const std::string_view text :
       {schedule().paper, schedule().summary, schedule().bubble, schedule().stash, schedule().when})
    EXPECT_FALSE(text.empty());
  EXPECT_NE(schedule().ideal_bubble, nullptr);
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const Schedule& one : schedules()) all.push_back(one.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Table, EverySchedule, testing::ValuesIn(names()), ByName());

}  // namespace
}  // namespace penstock::exhaustive_test
