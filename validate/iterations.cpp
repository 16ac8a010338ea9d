#include "validate/iterations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

constexpr double kNotWhole = std::numeric_limits<double>::quiet_NaN();

}  // namespace

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

SteadyUpdates compared_updates(const Program& program) {
  const std::uint32_t n = program.batches;
  return steady_updates(program, n >= 4 ? 2 : n >= 2 ? 1 : 0);
}

std::vector<double> iteration_samples(const Program& program, const Timeline& timeline,
                                      const SteadyUpdates& steady) {
  const std::vector<double> at = update_ends(program, timeline);
  std::vector<double> samples;
  for (std::uint32_t u = steady.first; u + steady.step <= steady.end; u += steady.step) {
    const double length = at[u + steady.step] - at[u];
    if (!std::isnan(length)) samples.push_back(length / steady.step);
  }
  return samples;
}

}  // namespace penstock
