// SPDX-License-Identifier: Apache-2.0
// Schedules without a flush whose forward and backward of a microbatch use different weights:
// PipeMare and the TiMePReSt family.
#include "program/check.hpp"
#include "program/dependencies.hpp"
#include "program/order_facts.hpp"
#include "schedules/lowering.hpp"
#include "schedules/pipemare.hpp"
#include "tests/parameter_name.hpp"
#include "tests/shared.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace penstock::async_test {
namespace {

Program make(const std::string& name, std::uint32_t p, std::uint32_t m, std::uint32_t batches,
             Transfers transfers = Transfers::overlapped, int width = 1) {
  ScheduleShape shape{p, m, batches};
  shape.replicas = width;
  return lower(*find_schedule(name), shape, {transfers});
}

std::vector<std::string> problems(const Program& program) {
  return check(program, DependencyTable(program.ops, program.placement, program.microbatches()));
}

Op forward(std::uint32_t stage, std::uint32_t k) { return make_op(OpKind::forward, stage, k); }
Op backward(std::uint32_t stage, std::uint32_t k) { return make_op(OpKind::backward, stage, k); }

// --- PipeMare
// -------------------------------------------------------------------------------------

TEST(PipeMare, EverySlotAfterTheWarmUpIsOneForwardAndOneBackward) {
  const Program program = make("pipemare", 3, 1, 12);
  for (int s = 0; s < 3; ++s) {
    std::string kinds;
    for (const Op& op : program.ops.of_device(s))
      kinds += is_compute(op.kind) ? token(op.kind) : "";
    const auto warmup = static_cast<std::size_t>(2 * (2 - s) + 1);
    EXPECT_EQ(kinds.substr(0, warmup), std::string(warmup, 'F'));
    for (std::size_t i = warmup; i + 1 < 24 - warmup; i += 2) EXPECT_EQ(kinds.substr(i, 2), "FB");
  }
}

// tau_fwd,i = (2(P-i)+1)/N updates, tau_bkwd,i = 0 (i = s + 1): the mean over the microbatches of
// an update, in steady state, of the updates between the weights of F and those B changes.
TEST(PipeMare, DelaysAreThePapersOnEveryStage) {
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t m = 1; m <= 24; ++m) {
      const std::uint32_t batches = 2 * p / m + 4;
      const Program program = make("pipemare", p, m, batches);
      for (std::uint32_t s = 0; s < p; ++s) {
        double forwards = 0;
        for (std::uint32_t k = (batches - 1) * m; k < batches * m; ++k) {
          forwards += batches - 1 - program.version(forward(s, k));
          EXPECT_EQ(program.version(backward(s, k)), batches - 1);
        }
        const double expected = (2.0 * (p - (s + 1)) + 1) / m;
        EXPECT_NEAR(forwards / m, expected, 1e-12) << p << " " << m << " " << s;
        EXPECT_NEAR(delayed::delay(p, s, m), expected, 1e-12);
        const OrderFacts facts = order_facts(program, static_cast<int>(s));
        EXPECT_EQ(facts.staleness_max, static_cast<std::uint32_t>(std::ceil(expected)));
        EXPECT_EQ(facts.weight_versions_peak, 1U);
        EXPECT_EQ(facts.stash_peak, 2 * (p - s));
      }
    }
  }
}

TEST(PipeMare, CorrectionTakesOneMoreBufferAsLargeAsTheWeights) {
  ScheduleShape shape{4, 2, 3};
  shape.correction = false;
  EXPECT_EQ(lower(*find_schedule("pipemare"), shape, {}).versions.extra_copies, 0U);
  shape.correction = true;
  const Program program = lower(*find_schedule("pipemare"), shape, {});
  EXPECT_EQ(program.versions.extra_copies, 1U);
  EXPECT_EQ(program.versions.backward, VersionRule::Backward::corrected);
  EXPECT_TRUE(problems(program).empty());
}

TEST(PipeMare, LearningRatesRiseFromOneOverTheDelayToFull) {
  EXPECT_NEAR(delayed::learning_rate_factor(7, 0, 100), 1.0 / 7, 1e-15);
  EXPECT_NEAR(delayed::learning_rate_factor(7, 50, 100), 1 / std::sqrt(7.0), 1e-15);
  EXPECT_EQ(delayed::learning_rate_factor(7, 100, 100), 1);
  EXPECT_EQ(delayed::learning_rate_factor(7, 1000, 100), 1);
}

TEST(PipeMare, CorrectionKeepsTheShareDOverOneDelay) {
  for (const double tau : {0.25, 1.0, 7.0}) {
    EXPECT_NEAR(std::pow(delayed::correction_decay(tau), tau), delayed::kDecay, 1e-12);
  }
  EXPECT_EQ(delayed::correction_decay(0), 0);
}

// x(t+1) = x(t) - alpha lambda x(t - tau) converges below the bound and diverges above it.
TEST(PipeMare, TheStabilityBoundIsWhereADelayedQuadraticStopsConverging) {
  EXPECT_NEAR(delayed::stable_learning_rate(4, 0), 2.0 / 4, 1e-12);  // gradient descent's 2/lambda
  for (const int tau : {1, 3, 7}) {
    for (const double factor : {0.97, 1.03}) {
      const double rate = factor * delayed::stable_learning_rate(2, tau);
      std::vector<double> x(static_cast<std::size_t>(tau) + 1, 1);
      for (int t = 0; t < 4000; ++t)
        x.push_back(x.back() - rate * 2 * x[x.size() - 1 - static_cast<std::size_t>(tau)]);
      double largest = 0;
      for (std::size_t i = x.size() - 100; i < x.size(); ++i)
        largest = std::max(largest, std::abs(x[i]));
      EXPECT_EQ(largest < 1, factor < 1) << tau << " " << factor;
    }
  }
}

TEST(PipeMare, OneBufferCorrectsAsThePapersDeltaDoes) {
  for (const double tau : {0.25, 1.0, 2.5, 15.0}) {
    const delayed::Correction c = delayed::correction(tau);
    const double gamma = delayed::correction_decay(tau);
    double w = 1.5, u = w, delta = 0;
    for (int t = 0; t < 60; ++t) {
      const double next = w + std::sin(3.0 * t) / (t + 1);
      delta = gamma * delta + (1 - gamma) * (next - w);
      u = c.keep * u + c.before * w + c.after * next;
      w = next;
      EXPECT_NEAR(u, w - tau * delta, 1e-11) << tau << " " << t;
    }
  }
}

// --- TiMePReSt
// ------------------------------------------------------------------------------------

/// Slots of the unit-slot pipeline, op by op, found by going through all stages in every slot.
class Grid {
 public:
  Grid(std::uint32_t p, std::uint32_t n, std::uint32_t minibatches, std::uint32_t slots)
      : rows(p, std::vector<Op>(slots, kIdle)) {
    std::vector<std::uint32_t> f(p), b(p);
    for (std::uint32_t t = 0; t < slots; ++t) {
      const auto done_f = f, done_b = b;
      for (std::uint32_t s = 0; s < p; ++s) {
        const bool ready =
            b[s] < minibatches && (s + 1 == p ? done_f[s] >= (b[s] + 1) * n : done_b[s + 1] > b[s]);
        if (ready) {
          rows[s][t] = backward(s, ++b[s] * n - 1);
        } else if (f[s] < minibatches * n && (s == 0 || done_f[s - 1] > f[s])) {
          rows[s][t] = forward(s, f[s]++);
        }
      }
    }
  }
  static constexpr Op kIdle{.microbatch = kNoOp};
  std::vector<std::vector<Op>> rows;  // [stage][slot]
};

/// The ops of a device, without steps.
std::vector<Op> compute_ops(const Program& program, int device) {
  std::vector<Op> ops;
  for (Op op : program.ops.of_device(device)) {
    op.flags = 0;
    if (is_compute(op.kind)) ops.push_back(op);
  }
  return ops;
}

TEST(Timeprest, OrderIsThatOfAPipelineSteppedSlotBySlot) {
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t n = 1; n <= 24; n += n < 9 ? 1 : 5) {
      const std::uint32_t minibatches = 7, slots = 2 * (n + 1) * (minibatches + p) + 2 * p;
      const Grid grid(p, n, minibatches, slots);
      const Program program = make("timeprest", p, n, minibatches);
      for (std::uint32_t s = 0; s < p; ++s) {
        std::vector<Op> expected = grid.rows[s];
        std::erase(expected, Grid::kIdle);
        EXPECT_EQ(compute_ops(program, static_cast<int>(s)), expected) << p << " " << n << " " << s;
      }
    }
  }
}

/// `3C`: forward of the third microbatch of minibatch 3; `3`: its backward.
std::string cell(const Op& op, std::uint32_t n) {
  const std::uint32_t minibatch = op.microbatch / n + 1;
  if (op.kind == OpKind::backward) return fmt::format("{}", minibatch);
  return fmt::format("{}{}", minibatch, static_cast<char>('A' + op.microbatch % n));
}

TEST(Timeprest, OrderIsThatOfEveryPublishedGrid) {
  const auto path = shared_folder() / "oracles" / "timelines" / "timeprest_fig2.txt";
  SKIP_WITHOUT_SHARED(path);
  std::ifstream in(path);
  Program program;
  std::uint32_t p = 0, n = 0;
  int stage = 0, rows = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    if (std::sscanf(line.c_str(), "W=%u N=%u", &p, &n) == 2) {
      program = make("timeprest", p, n, 20);
      stage = 0;
      continue;
    }
    std::istringstream cells(line);
    const auto ops = compute_ops(program, stage);
    std::size_t next = 0;
    for (std::string expected; cells >> expected;) {
      if (expected == ".") continue;
      EXPECT_EQ(cell(ops.at(next++), n), expected) << p << " " << n;
    }
    EXPECT_GE(next, 12U);
    ++stage, ++rows;
  }
  EXPECT_EQ(rows, 4 + 4 + 3 + 5 + 5);
}

TEST(Timeprest, MicrobatchesOfAMinibatchMayEnterWithDifferentVersions) {
  const Program program = make("timeprest", 4, 4, 6);
  for (std::uint32_t s = 0; s < 4; ++s) {
    const std::uint32_t expected[] = {0, 0, 1, 1};  // 3A, 3B, 3C, 3D
    for (std::uint32_t i = 0; i < 4; ++i)
      EXPECT_EQ(program.version(forward(s, 8 + i)), expected[i]) << s;
  }
}

TEST(Timeprest, TwoStagesOfThreeMicrobatchesHoldOneAndTwoVersions) {
  const Program program = make("timeprest", 2, 3, 8);
  EXPECT_EQ(order_facts(program, 0).weight_versions_peak, 1U);
  EXPECT_EQ(order_facts(program, 1).weight_versions_peak, 2U);
}

/// Updates from the version a backward uses to the one it makes, in steady state.
std::uint32_t version_difference(std::uint32_t p, std::uint32_t n) {
  const std::uint32_t batches = 3 * p + 4;
  const Program program = make("timeprest", p, n, batches);
  return batches - program.version(backward(p - 1, batches * n - 1));
}

TEST(Timeprest, VersionDifferenceIsTheRoundTripInBackwardsPeriods) {
  for (std::uint32_t p = 1; p <= 16; ++p) {
    for (std::uint32_t n = 1; n <= 24; ++n) {
      EXPECT_EQ(version_difference(p, n), (p - 1) / (n + 1) + 1) << p << " " << n;
      EXPECT_EQ(version_difference(p, n) == 1, p <= n + 1) << p << " " << n;
    }
  }
}

// floor((P+N-2)/N) of the paper holds up to five stages; an independent simulation found 2, 3 and 2
// where it says 3, 4 and 3.
TEST(Timeprest, VersionDifferenceIsThePapersUpToFiveStagesAndSmallerBeyond) {
  for (std::uint32_t p = 2; p <= 5; ++p) {
    for (std::uint32_t n = 2; n <= 24; ++n)
      EXPECT_EQ(version_difference(p, n), (p + n - 2) / n) << p << " " << n;
  }
  EXPECT_EQ(version_difference(6, 2), 2U);
  EXPECT_EQ(version_difference(8, 2), 3U);
  EXPECT_EQ(version_difference(8, 3), 2U);
}

TEST(Timeprest, ABackwardUsesOneVersionOnAllStagesThatAllHaveApplied) {
  for (const std::uint32_t p : {2U, 5U, 8U}) {
    for (const std::uint32_t n : {1U, 2U, 3U, 7U}) {
      const Program program = make("timeprest", p, n, 9);
      for (std::uint32_t j = 0; j < 9; ++j) {
        const std::uint32_t k = (j + 1) * n - 1;
        const std::uint32_t version = program.version(backward(0, k));
        EXPECT_LE(version, j);
        for (std::uint32_t s = 0; s < p; ++s) EXPECT_EQ(program.version(backward(s, k)), version);
      }
    }
  }
}

TEST(VTimeprest, EveryOpUsesTheLatestWeightsAndNoOthersAreKept) {
  for (const std::uint32_t p : {1U, 3U, 8U}) {
    for (const std::uint32_t n : {1U, 2U, 5U}) {
      const Program program = make("v-timeprest", p, n, 6);
      for (int s = 0; s < static_cast<int>(p); ++s) {
        std::uint32_t made = 0;
        for (const Op& op : program.ops.of_device(s)) {
          if (op.kind == OpKind::step) ++made;
          if (!is_compute(op.kind)) continue;
          EXPECT_EQ(program.version(op), made);
        }
        EXPECT_EQ(order_facts(program, s).weight_versions_peak, 1U);
      }
    }
  }
}

TEST(ITimeprest, KeepsTheVersionItsMinibatchEnteredWithAndOneBufferForTheMix) {
  const Program program = make("i-timeprest", 4, 3, 6);
  EXPECT_EQ(program.versions.backward, VersionRule::Backward::mixed);
  EXPECT_EQ(program.versions.extra_copies, 1U);
  for (std::uint32_t s = 0; s < 4; ++s) {
    for (std::uint32_t j = 0; j < 6; ++j)
      EXPECT_EQ(program.version(backward(s, 3 * j + 2)), program.version(forward(s, 3 * j)));
    EXPECT_GE(order_facts(program, static_cast<int>(s)).weight_versions_peak, 2U);
  }
}

TEST(Timeprest, StashFallsByAMinibatchAtItsBackward) {
  // 1A 1B 1C 1 on the last stage, 1A 1B 1C 2A 2B 1 2C on the first.
  const Program program = make("timeprest", 2, 3, 4);
  EXPECT_EQ(order_facts(program, 1).stash_peak, 3U);
  EXPECT_EQ(order_facts(program, 0).stash_peak, 5U);
}

TEST(Timeprest, TheCheckNoticesABackwardBeforeAForwardOfItsMinibatch) {
  Program program = make("timeprest", 1, 3, 1);
  ASSERT_EQ(program.ops.size(), 5U);  // F0 F1 F2 B2 STEP
  std::swap(program.ops[1], program.ops[2]);
  std::swap(program.ops[2], program.ops[3]);  // F0 F2 B2 F1 STEP
  const auto found = problems(program);
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found[0].find("0B2 waits for 0F1, which stands after it"), std::string::npos)
      << found[0];
}

TEST(Timeprest, UnevenWidthsAreRefused) {
  for (const char* name : {"timeprest", "v-timeprest", "i-timeprest", "pipemare"}) {
    ScheduleShape shape{2, 2, 2};
    shape.replicas = PerStage<int>(std::vector<int>{2, 1});
    EXPECT_EQ(find_schedule(name)->refuse(shape).key, "width") << name;
  }
}

class Asynchronous : public testing::TestWithParam<std::string> {};

// All p <= 8, m <= 24, with few and many updates, replicas and every transfer rule that can
// deadlock; versions used are never newer than made nor older than held, exactly.
TEST_P(Asynchronous, PassesTheCheckWhateverItsShape) {
  for (std::uint32_t p = 1; p <= 8; ++p) {
    for (std::uint32_t m = 1; m <= 24; ++m) {
      for (const std::uint32_t batches : {1U, 2U, 7U}) {
        for (const int width : {1, 2}) {
          for (const Transfers transfers : {Transfers::overlapped, Transfers::coupled}) {
            const auto found = problems(make(GetParam(), p, m, batches, transfers, width));
            ASSERT_TRUE(found.empty()) << p << " " << m << " " << batches << " " << found[0];
          }
        }
      }
    }
  }
}

TEST_P(Asynchronous, HoldsNoVersionLongerThanAnOpNeedsIt) {
  for (std::uint32_t p = 2; p <= 8; ++p) {
    for (const std::uint32_t m : {1U, 2U, 3U, 9U}) {
      Program program = make(GetParam(), p, m, 9);
      if (program.versions.kind != VersionRule::Kind::listed) continue;
      for (std::uint32_t& held : program.versions.listed_held) {
        if (held == 1) continue;
        --held;
        EXPECT_FALSE(problems(program).empty()) << p << " " << m;
        ++held;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Asynchronous,
                         testing::Values("pipemare", "timeprest", "v-timeprest", "i-timeprest"),
                         ByName());

}  // namespace
}  // namespace penstock::async_test
