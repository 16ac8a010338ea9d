// SPDX-License-Identifier: Apache-2.0
#include "validate/kernel_fit.hpp"

#include "base/error.hpp"
#include "validate/least_squares.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace penstock {
namespace {

constexpr double kRange = 20;  // times and rates differ by less from those of the same kind of GPU

double mean_error(const std::vector<double>& logarithms) {
  double sum = 0;
  for (const double log : logarithms) sum += std::abs(std::exp(log) - 1);
  return logarithms.empty() ? 0 : sum / static_cast<double>(logarithms.size());
}

/// Fits numbers of a law in place; `residuals` are logarithms of predicted over measured.
FittedFamily fit_numbers(std::string name, const std::vector<double*>& numbers,
                         const std::function<std::vector<double>()>& residuals) {
  const std::vector<double> before = residuals();
  std::vector<FitRange> ranges;
  std::vector<double> first;
  for (const double* number : numbers) {
    ranges.push_back({*number, *number / kRange, *number * kRange});
    first.push_back(*number);
  }
  const auto with = [&](const std::vector<double>& values) {
    for (std::size_t i = 0; i < numbers.size(); ++i) *numbers[i] = values[i];
    return residuals();
  };
  const std::vector<double> best = fit_least_squares(with, ranges, first, {.scale = 0.1});
  return {std::move(name), before.size(), mean_error(before), mean_error(with(best))};
}

std::optional<FittedFamily> fit_products(KernelTimes& times, const MeasuredKernels& measured) {
  const auto law = std::ranges::find(times.products, "bf16", &ProductLaw::type);
  if (law == times.products.end()) return std::nullopt;
  const auto residuals = [&] {
    std::vector<double> logs;
    for (const MeasuredProduct& p : measured.products) {
      if (p.type != "bf16") continue;
      const ProductShape shape{p.m, p.n, p.k};
      const auto s = p.sums ? times.accumulated_s("bf16", shape) : times.product_s("bf16", shape);
      logs.push_back(std::log(s.value_or(p.seconds) / p.seconds));
    }
    return logs;
  };
  return fit_numbers("products, bf16", {&law->flops_per_s, &law->launch_s, &law->bytes_per_s},
                     residuals);
}

/// Adds a law of penstock's own attention, behind those of frameworks: it is none of theirs.
std::optional<FittedFamily> fit_attention(KernelTimes& times, const MeasuredKernels& measured) {
  constexpr const char* kOwn = "penstock";
  const auto like = std::ranges::find_if(times.attention, [](const AttentionLaw& a) {
    return a.kind == AttentionKind::causal && a.type == "bf16";
  });
  if (like == times.attention.end() || measured.attention.empty()) return std::nullopt;
  AttentionLaw own = *like;
  own.framework = kOwn;
  own.head_dims = {measured.attention.front().head_dim};
  const auto& dims = like->head_dims;
  const auto at = std::ranges::lower_bound(dims, own.head_dims[0]);
  own.flops_per_s = {like->flops_per_s[static_cast<std::size_t>(
      std::min<std::ptrdiff_t>(at - dims.begin(), std::ssize(dims) - 1))]};
  times.attention.push_back(std::move(own));
  AttentionLaw& law = times.attention.back();
  const auto residuals = [&] {
    std::vector<double> logs;
    for (const MeasuredAttention& a : measured.attention) {
      const auto s = times.attention_s(AttentionKind::causal, "bf16",
                                       {a.batch, a.seq, a.heads, a.heads, a.head_dim}, kOwn);
      logs.push_back(std::log(s.value_or(a.forward_s) / a.forward_s));
    }
    return logs;
  };
  return fit_numbers("attention, penstock's own", {&law.flops_per_s[0], &law.launch_s}, residuals);
}

void set_copies(KernelTimes& times, const MeasuredKernels& measured) {
  constexpr const char* kCopy = "copy";
  std::erase_if(times.streams, [](const KernelPoints& p) { return p.op == kCopy; });
  KernelPoints points;
  points.op = kCopy;
  for (const MeasuredCopy& copy : measured.copies) {
    points.bytes.push_back(2 * copy.bytes);  // read and written
    points.seconds.push_back(copy.seconds);
  }
  if (!points.bytes.empty()) times.streams.push_back(std::move(points));
}

std::vector<std::string> families_kept(const KernelTimes& times) {
  std::vector<std::string> kept;
  std::vector<std::string> types;
  for (const ProductLaw& law : times.products)
    if (law.type != "bf16") types.push_back(law.type);
  if (!types.empty())
    kept.push_back(
        fmt::format("products in {}, which it does not execute", fmt::join(types, ", ")));
  if (!times.experts.empty()) kept.emplace_back("layers of experts");
  if (!times.attention.empty()) kept.emplace_back("attention of frameworks");
  if (!times.collectives.empty())
    kept.emplace_back("collectives of NCCL, of which it executes none by itself");
  return kept;
}

}  // namespace

KernelFit fit_kernels(KernelTimes shipped, const MeasuredKernels& measured) {
  if (measured.products.empty()) throw InputError("kernels", "no product was measured");
  KernelFit fit;
  fit.times = std::move(shipped);
  fit.kept = families_kept(fit.times);
  for (const auto& family : {fit_products(fit.times, measured), fit_attention(fit.times, measured)})
    if (family) fit.families.push_back(*family);
  set_copies(fit.times, measured);
  const auto gpu = measured.machine.find("gpu");
  fit.times.source = fmt::format(
      "bf16 products, copies and penstock's own attention: {} shapes measured by "
      "`penstock calibrate --device` on {}. The shapes' corrections and {}: {}",
      measured.products.size() + measured.attention.size() + measured.copies.size(),
      gpu == measured.machine.end() ? "this machine" : gpu->second, fmt::join(fit.kept, "; "),
      fit.times.source);
  return fit;
}

}  // namespace penstock
