// SPDX-License-Identifier: Apache-2.0
// A training allocates nothing in an update, once there have been some like it. What is counted is
// each call of a replaceable operator new (plain, array, nothrow or aligned) by the thread that
// trains, which computes, too; malloc of OpenBLAS and of other C code is not counted.
#include "hw/training_run.hpp"
#include "tests/effort.hpp"
#include "tests/hw/plan_rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

thread_local std::int64_t allocations = 0;

[[maybe_unused]] void* counted(void* memory) {
  ++allocations;
  if (memory != nullptr) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Sanitizers have an operator new of their own.
#if !defined(PENSTOCK_ADDRESS_SANITIZED) && !defined(PENSTOCK_THREAD_SANITIZED)
// The array and nothrow forms of the standard library call these.
void* operator new(std::size_t bytes) {
  return counted(std::malloc(std::max<std::size_t>(bytes, 1)));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, std::max(unit, (bytes + unit - 1) / unit * unit)));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace penstock {
namespace {

/// Returns how often each update of a training allocates, with its point of the curve.
std::vector<std::int64_t> allocations_of(const RunPlan& plan) {
  std::vector<std::int64_t> all(plan.program.batches);
  std::int64_t before = allocations;
  TrainingOptions options;
  options.progress = [&](const CurvePoint& point) {
    EXPECT_GT(point.loss, 0);
    all[point.update - 1] = allocations - before;
    before = allocations;
  };
  train(plan, RunOptions{}, options);
  return all;
}

TEST(Allocations, AlignedOnesAreCounted) {
  if (kSanitized) GTEST_SKIP() << "operator new is a sanitizer's";
  struct alignas(64) Line {
    char bytes[64];
  };
  const std::int64_t before = allocations;
  std::vector<Line> lines(3);
  EXPECT_EQ(lines.size(), 3U);
  EXPECT_EQ(allocations - before, 1);
}

TEST(Allocations, AnUpdateHasNone) {
  if (kSanitized) GTEST_SKIP() << "operator new is a sanitizer's";
  constexpr std::uint32_t kUpdates = 32, kSettled = 12;  // two of basis rotation's renewals follow
  for (const char* schedule : {"pipedream-2bw", "pipedream", "1f1b"}) {
    for (const auto kind : {OptimizerSpec::Kind::adamw, OptimizerSpec::Kind::muon,
                            OptimizerSpec::Kind::basis_rotation}) {
      RunPlan plan = plan_of({schedule, shape_of(schedule, 3, 3, kUpdates)});
      make_transformer(plan, Recompute::none);
      plan.optimizer.kind = kind;
      plan.training.data = TrainingSpec::Data::markov;
      plan.training.clip = 0.5;
      plan.training.evaluation_microbatches = 0;
      const std::vector<std::int64_t> all = allocations_of(plan);
      EXPECT_GT(all[0], 0) << "nothing is counted";
      for (std::uint32_t u = kSettled; u < kUpdates; ++u)
        EXPECT_EQ(all[u], 0) << schedule << ", update " << u;
    }
  }
}

}  // namespace
}  // namespace penstock
