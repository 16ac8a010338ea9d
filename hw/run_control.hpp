// SPDX-License-Identifier: Apache-2.0
// What stops a run: the first error of any thread, or nothing moving for longer than the deadline.
//
// Threads that wait for each other look at `stopped()`; whoever blocks elsewhere (a socket, a GPU)
// leaves a function that wakes it. Every op that ends and every message that arrives is progress;
// the watchdog compares the time since the last one with the deadline and says, for every device of
// this process, which op it stands before and which channel it waits for.
#pragma once

#include "program/op_lists.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace penstock {

class RunControl {
 public:
  /// `deadline_s` without progress ends the run; 0: never.
  explicit RunControl(double deadline_s);
  ~RunControl();
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  /// Stops the run for this reason; only the first counts.
  void fail(const std::string& reason);
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  /// Throws SystemError with the reason when the run was stopped.
  void throw_if_stopped() const;
  std::string reason() const;

  /// Called once when the run stops, at once when it has; from any thread.
  void on_stop(std::function<void()> wake);

  /// Something moved.
  void progress() { moved_.fetch_add(1, std::memory_order_relaxed); }
  /// One line per device of this process for the report of a stall; called by the watchdog.
  void on_stall(std::function<std::string()> describe);
  double deadline_s() const { return deadline_s_; }

 private:
  void watch();

  double deadline_s_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> moved_{0};
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::string reason_;
  std::vector<std::function<void()>> wakers_;
  std::vector<std::function<std::string()>> describers_;
  std::thread watchdog_;
};

}  // namespace penstock
