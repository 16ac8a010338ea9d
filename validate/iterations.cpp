// SPDX-License-Identifier: Apache-2.0
#include "validate/iterations.hpp"

#include <cmath>

namespace penstock {
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
