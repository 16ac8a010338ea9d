// SPDX-License-Identifier: Apache-2.0
#include "program/iterations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

constexpr double kNotWhole = std::numeric_limits<double>::quiet_NaN();

/// Updates of device 0 made before its last forward: what follows is the drain.
std::uint32_t updates_before_drain(const Program& program) {
  std::uint32_t updates = 0, before = 0;
  for (const Op& op : program.ops.of_device(0)) {
    if (op.kind == OpKind::step) ++updates;
    if (op.kind == OpKind::forward) before = updates;
  }
  return before;
}

/// Updates of the first 2p microbatches, and those until a multiple of p microbatches.
std::pair<std::uint32_t, std::uint32_t> warm_up_and_step(const Program& program) {
  const std::uint32_t m = program.per_update(0);
  const auto p = static_cast<std::uint32_t>(program.placement.depth());
  return {(2 * p + m - 1) / m, p / std::gcd(p, m)};
}

}  // namespace

SteadyUpdates steady_updates(const Program& program, std::uint32_t warm_up) {
  const std::uint32_t n = program.updates(0);
  if (program.flushes) return {warm_up, n, 1, n == 1};
  const auto [filled, step] = warm_up_and_step(program);
  const std::uint32_t first = std::max(warm_up, filled);
  const std::uint32_t drain = updates_before_drain(program);
  for (const std::uint32_t end : {drain, program.placement.even() ? n : drain}) {
    if (first + step <= end) return {first, end, step, false};
  }
  return {0, n, n, true};
}

std::uint32_t steady_batches(std::uint32_t depth, std::uint32_t microbatches,
                             const std::vector<int>& widths) {
  const std::uint32_t p = depth, m = microbatches;
  std::uint32_t round = p;  // after which every replica has had its turn equally often
  for (const int width : widths) round = std::lcm(round, static_cast<std::uint32_t>(width));
  return (2 * p + m - 1) / m + 2 * (round / std::gcd(round, m)) + (p + m - 1) / m + 1;
}

std::vector<double> update_ends(const Program& program, const Timeline& timeline) {
  std::vector<double> at(program.batches + 1, -1.0);
  double start = std::numeric_limits<double>::infinity();
  const std::uint32_t last = program.flushes ? program.ops.size() : program.ops.end(0);
  for (std::uint32_t g = 0; g < last; ++g) {
    double& end = at[update_of(program, program.ops[g]) + 1];
    if (!happened(timeline, g)) {
      // Steps that take no time need not be recorded.
      if (is_compute(program.ops[g].kind)) end = kNotWhole;
      continue;
    }
    if (!std::isnan(end)) end = std::max(end, timeline.op(g).end_s);
    start = std::min(start, timeline.op(g).start_s);
  }
  at[0] = start;
  return at;
}

std::uint32_t updates_for_steady_state(const Program& program) {
  const auto [filled, step] = warm_up_and_step(program);
  if (program.placement.even()) return filled + step;
  // And what is in the pipeline at the end, in rounds of all replicas.
  const auto& widths = program.placement.widths();
  const auto inside = std::accumulate(widths.begin(), widths.end(), std::uint32_t{0});
  const std::uint32_t round = program.placement.round();
  return filled + step + (inside + round - 1) / round;
}

}  // namespace penstock
