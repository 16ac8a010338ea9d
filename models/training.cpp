// SPDX-License-Identifier: Apache-2.0
#include "models/training.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {

double rate_factor(const TrainingSpec& t, std::uint32_t update) {
  if (update < t.warmup) return (update + 1.0) / t.warmup;
  if (t.decay == TrainingSpec::Decay::none || t.updates <= t.warmup + 1) return 1;
  const double done = std::min(1.0, (update - t.warmup) / (t.updates - t.warmup - 1.0));
  const double left = t.decay == TrainingSpec::Decay::linear
                          ? 1 - done
                          : (1 + std::cos(std::numbers::pi * done)) / 2;
  return t.final_rate + (1 - t.final_rate) * left;
}

}  // namespace penstock
