// SPDX-License-Identifier: Apache-2.0
#include "sweep/watch.hpp"

#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

SweepWatch::SweepWatch(std::uint64_t points)
    : progress_(std::in_place, "sweep", static_cast<std::int64_t>(points)) {}

void SweepWatch::saw_another(const Overview& overview) {
  ++visited_;
  const std::string best = overview.best();
  progress_->update(static_cast<std::int64_t>(visited_),
                    fmt::format("{:.0f}/s{}{}", rate(), best.empty() ? "" : "; best ", best));
}

void SweepWatch::end() {
  progress_.reset();
  seconds_ = elapsed_s();
}

std::string SweepWatch::summary() const {
  if (visited_ == 0 || seconds_ <= 0) return "";
  return fmt::format("; {} ({:.0f} points/s)", format_time(seconds_),
                     static_cast<double>(visited_) / seconds_);
}

double SweepWatch::elapsed_s() const {
  return std::chrono::duration<double>(Clock::now() - started_).count();
}

double SweepWatch::rate() const {
  return static_cast<double>(visited_) / std::max(elapsed_s(), 1e-9);
}

}  // namespace penstock
