// SPDX-License-Identifier: Apache-2.0
// Kernel times fitted to kernels of a made-up machine: a shipped GPU's with another rate, launch
// and memory are found again, and what was not measured stays.
#include "validate/kernel_fit.hpp"

#include "base/error.hpp"
#include "scenarios/scenario.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::kernel_fit_test {
namespace {

ProductLaw& bf16_of(KernelTimes& times) {
  return *std::ranges::find(times.products, "bf16", &ProductLaw::type);
}

/// Returns what a machine whose kernels take these times would measure.
MeasuredKernels measured_on(const KernelTimes& machine) {
  MeasuredKernels out;
  out.machine["gpu"] = "made up";
  for (const double m : {256.0, 1024.0, 8192.0})
    for (const double n : {256.0, 4096.0, 8192.0})
      for (const double k : {256.0, 4096.0}) {
        out.products.push_back({"bf16", m, n, k, false, *machine.product_s("bf16", {m, n, k})});
        out.products.push_back({"bf16", m, n, k, true, *machine.accumulated_s("bf16", {m, n, k})});
      }
  for (const double seq : {1024.0, 4096.0})
    out.attention.push_back(
        {"bf16", 1, seq, 16, 128,
         3 * *machine.attention_s(AttentionKind::causal, "bf16", {1, seq, 16, 16, 128}), 1});
  out.copies = {{1e6, 2e-6}, {1e9, 1e-3}};
  return out;
}

TEST(KernelFit, FindsAMachinesRateLaunchAndMemoryAgain) {
  const KernelTimes shipped = load_kernel_file("h100");
  KernelTimes machine = shipped;
  bf16_of(machine).flops_per_s *= 0.7;
  bf16_of(machine).launch_s *= 2;
  bf16_of(machine).bytes_per_s *= 1.3;
  KernelFit fit = fit_kernels(shipped, measured_on(machine));
  EXPECT_NEAR(bf16_of(fit.times).flops_per_s / bf16_of(machine).flops_per_s, 1, 0.01);
  EXPECT_NEAR(bf16_of(fit.times).launch_s / bf16_of(machine).launch_s, 1, 0.01);
  EXPECT_NEAR(bf16_of(fit.times).bytes_per_s / bf16_of(machine).bytes_per_s, 1, 0.01);
  ASSERT_EQ(fit.families.size(), 2U);
  EXPECT_EQ(fit.families[0].shapes, 36U);
  EXPECT_GT(fit.families[0].before, 0.2);
  EXPECT_LT(fit.families[0].after, 0.005);
}

TEST(KernelFit, KeepsWhatWasNotMeasuredAndFrameworksAttentionFirst) {
  const KernelTimes shipped = load_kernel_file("h100");
  const KernelFit fit = fit_kernels(shipped, measured_on(shipped));
  const AttentionShape shape{1, 4096, 16, 16, 128};
  const auto own = fit.times.attention_s(AttentionKind::causal, "bf16", shape, "penstock");
  const auto first = fit.times.attention_s(AttentionKind::causal, "bf16", shape);
  EXPECT_EQ(first, shipped.attention_s(AttentionKind::causal, "bf16", shape));
  EXPECT_NEAR(own.value() / first.value(), 3, 0.1);
  EXPECT_EQ(fit.times.collective_s("all_reduce", 8, 1e6),
            shipped.collective_s("all_reduce", 8, 1e6));
  EXPECT_NEAR(fit.times.stream_s("copy", 2e9).value(), 1e-3, 1e-9);
  EXPECT_NE(fit.times.source.find("made up"), std::string::npos);
  EXPECT_NE(fit.times.source.find("layers of experts"), std::string::npos);
  const KernelTimes again = parse_kernel_times(to_json(fit.times), "again.json");
  EXPECT_EQ(to_json(again), to_json(fit.times));
}

TEST(KernelFit, RefusesNothing) {
  EXPECT_THROW(fit_kernels(load_kernel_file("h100"), {}), InputError);
  EXPECT_THROW(parse_measured_kernels("{}", "a.json"), InputError);
  const std::string text = to_json(measured_on(load_kernel_file("h100")));
  EXPECT_EQ(to_json(parse_measured_kernels(text, "a.json")), text);
}

}  // namespace
}  // namespace penstock::kernel_fit_test
