// SPDX-License-Identifier: Apache-2.0
// Keeps the event that times are measured from close behind the events that are measured.
//
// cudaEventElapsedTime returns a float of milliseconds: 10 s after the base its last bit is 1 us.
// So every `every_s` seconds one of the recorded events becomes the next base, once it has fired;
// an event's time is that of its base plus the distance, and so on back to the start of the run.
#pragma once

#include <mutex>
#include <utility>

namespace penstock::cuda {

/// `Recorded` is a shared pointer to something with fired(). Safe for several threads.
template <class Recorded>
class BaseChain {
 public:
  explicit BaseChain(double every_s) : every_s_(every_s) {}

  /// Measures from `base` on, adopted at `now_s` of the host's clock.
  void restart(Recorded base, double now_s) {
    const std::lock_guard lock(mutex_);
    base_ = std::move(base);
    next_ = nullptr;
    adopted_s_ = now_s;
  }
  /// The base of an event that is recorded now; it has fired.
  Recorded base(double now_s) {
    const std::lock_guard lock(mutex_);
    if (next_ && next_->fired()) {
      base_ = std::move(next_);
      next_ = nullptr;
      adopted_s_ = now_s;
    }
    return base_;
  }
  /// `event` was recorded; it may become the next base.
  void recorded(const Recorded& event, double now_s) {
    const std::lock_guard lock(mutex_);
    if (!next_ && now_s - adopted_s_ >= every_s_) next_ = event;
  }

 private:
  double every_s_;
  std::mutex mutex_;
  Recorded base_{}, next_{};
  double adopted_s_ = 0;
};

}  // namespace penstock::cuda
