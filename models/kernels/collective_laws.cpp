// SPDX-License-Identifier: Apache-2.0
#include "models/kernels/collective_laws.hpp"

#include "models/kernels/kernel_times.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock {
namespace {

constexpr double kLeastFitted = 1 << 20;  // bytes

constexpr std::pair<std::string_view, Collective> kMeasured[] = {
    {"all_reduce", Collective::all_reduce},
    {"reduce_scatter", Collective::reduce_scatter},
    {"all_gather", Collective::all_gather},
    {"all_to_all", Collective::all_to_all}};

/// Returns how often a GPU sends a buffer's bytes in a collective among so many.
double sent(Collective what, double ranks) {
  return (what == Collective::all_reduce ? 2 : 1) * (ranks - 1) / ranks;
}

/// Returns the law through the smallest and the largest size.
CollectivePrice law_of(const KernelPoints& points, double join) {
  const double call_s = points.seconds.front(), largest_s = points.seconds.back();
  const double flow_s = std::pow(std::pow(largest_s, join) - std::pow(call_s, join), 1 / join);
  return {call_s, flow_s / points.bytes.back(), join};
}

double squares(const CollectivePrice& law, const KernelPoints& points) {
  double sum = 0;
  for (std::size_t i = 0; i < points.bytes.size(); ++i) {
    const double error = std::log(law.seconds(points.bytes[i]) / points.seconds[i]);
    if (points.bytes[i] >= kLeastFitted) sum += error * error;
  }
  return sum;
}

CollectivePrice best_law(const KernelPoints& points) {
  CollectivePrice best = law_of(points, 1);
  for (int percent = 40; percent < 100; ++percent) {
    const CollectivePrice law = law_of(points, percent / 100.0);
    if (squares(law, points) < squares(best, points)) best = law;
  }
  return best;
}

}  // namespace

std::vector<MeasuredCollective> collective_laws(const KernelTimes& times, double bytes_per_s) {
  std::vector<MeasuredCollective> laws;
  if (!times.link_bytes_per_s || bytes_per_s <= 0 || std::isinf(bytes_per_s)) return laws;
  for (const KernelPoints& points : times.collectives) {
    const auto kind = std::ranges::find(kMeasured, std::string_view(points.op),
                                        &std::pair<std::string_view, Collective>::first);
    if (kind == std::end(kMeasured) || points.ranks < 2 || points.bytes.size() < 2 ||
        points.seconds.front() >= points.seconds.back())
      continue;
    MeasuredCollective& law = laws.emplace_back();
    law = {kind->second, points.ranks, best_law(points)};
    law.price.s_per_byte *= *times.link_bytes_per_s / bytes_per_s;
  }
  return laws;
}

std::optional<CollectivePrice> measured_price(const std::vector<MeasuredCollective>& measured,
                                              Collective what, int ranks) {
  const MeasuredCollective *low = nullptr, *high = nullptr;  // numbers of ranks beside this one
  for (const MeasuredCollective& one : measured) {
    if (one.what != what) continue;
    if (one.ranks <= ranks && (low == nullptr || one.ranks > low->ranks)) low = &one;
    if (one.ranks >= ranks && (high == nullptr || one.ranks < high->ranks)) high = &one;
  }
  if (low == nullptr && high == nullptr) return std::nullopt;
  const MeasuredCollective& nearest = low != nullptr ? *low : *high;
  CollectivePrice price = nearest.price;
  if (nearest.ranks == ranks) return price;
  price.s_per_byte *= sent(what, ranks) / sent(what, nearest.ranks);
  const MeasuredCollective* other = low != nullptr ? high : nullptr;
  for (const MeasuredCollective& one : measured)  // beyond the largest: as between the last two
    if (high == nullptr && one.what == what && one.ranks < nearest.ranks &&
        (other == nullptr || one.ranks > other->ranks))
      other = &one;
  if (other != nullptr) {
    const double per_rank =
        (other->price.call_s - nearest.price.call_s) / (other->ranks - nearest.ranks);
    price.call_s += std::max(0.0, per_rank) * (ranks - nearest.ranks);
  }
  return price;
}

}  // namespace penstock
