// SPDX-License-Identifier: Apache-2.0
#include "schedules/pipemare.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock::delayed {

std::uint32_t slots(std::uint32_t depth, std::uint32_t stage) {
  return 2 * (depth - 1 - stage) + 1;
}

double delay(std::uint32_t depth, std::uint32_t stage, std::uint32_t per_update) {
  return static_cast<double>(slots(depth, stage)) / per_update;
}

double learning_rate_factor(double delay, double update, double rescheduled_updates) {
  return std::pow(delay, std::min(update / rescheduled_updates, 1.0) - 1);
}

double correction_decay(double delay, double decay) {
  return delay > 0 ? std::pow(decay, 1 / delay) : 0;
}

double stable_learning_rate(double curvature, double delay) {
  return 2 / curvature * std::sin(std::numbers::pi / (4 * delay + 2));
}

Correction correction(double delay) {
  const double gamma = correction_decay(delay);
  const double taken = delay * (1 - gamma);
  return {gamma, taken - gamma, 1 - taken};
}

}  // namespace penstock::delayed
