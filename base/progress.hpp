// SPDX-License-Identifier: Apache-2.0
// A progress line on stderr: done/total and time left; silent unless stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace penstock {

class Progress {
 public:
  /// Nothing is shown during the first half second, so short work stays quiet.
  Progress(std::string what, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `note` stands behind it where the line has room.
  void update(std::int64_t done, const std::string& note = "");
  /// So many of the total are no work after all.
  void leave_out(std::int64_t count) { total_ -= count; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_ = started_;
};

/// True when colour may be used on this stream: a terminal, and NO_COLOR is not set.
bool colour_allowed(int file_descriptor);

}  // namespace penstock
