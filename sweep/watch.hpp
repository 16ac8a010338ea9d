// SPDX-License-Identifier: Apache-2.0
// Watches a sweep: shows its progress on a terminal, and measures how long it takes.
#pragma once

#include "base/progress.hpp"
#include "sweep/overview.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

class SweepWatch {
 public:
  explicit SweepWatch(std::uint64_t points);

  /// Counts a point more, which `overview` has.
  void saw_another(const Overview& overview);
  void end();
  /// Returns "; 2.1 s (4760 points/s)", or "" without points.
  std::string summary() const;

 private:
  using Clock = std::chrono::steady_clock;
  double elapsed_s() const;
  double rate() const;

  std::optional<Progress> progress_;
  Clock::time_point started_ = Clock::now();
  std::uint64_t visited_ = 0;
  double seconds_ = 0;
};

}  // namespace penstock
