// SPDX-License-Identifier: Apache-2.0
// A queue of the host backend: a thread that runs closures in order.
#pragma once

#include "hw/run_control.hpp"

#include <deque>

namespace penstock {

class HostQueue {
 public:
  /// `idle` is called by the queue's thread when there is nothing to run; it returns false when
  /// it did nothing.
  explicit HostQueue(RunControl& control, std::function<bool()> idle = {}, bool threads = true);
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// An error thrown by `work` stops the run; once the run is stopped nothing is run any more.
  /// Without a thread of its own the caller runs it at once and gets the error, and no memory is
  /// allocated for it.
  template <class Work>
  void push(Work work) {
    if (thread_.joinable()) {
      push_waiting(std::move(work));
    } else if (!control_.stopped()) {
      work();
    }
  }

  double time_s = 0;  ///< logical time of the queue; only for its own closures

 private:
  void push_waiting(std::function<void()> work);
  void work();
  bool run(const std::function<bool()>& step);
  bool take_next(std::function<void()>& next);

  RunControl& control_;
  std::function<bool()> idle_;
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<std::function<void()>> waiting_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace penstock
