// SPDX-License-Identifier: Apache-2.0
#include "hw/host/queue.hpp"

#include "base/error.hpp"

namespace penstock {

HostQueue::HostQueue(RunControl& control, std::function<bool()> idle, bool threads)
    : control_(control), idle_(std::move(idle)) {
  if (threads) thread_ = std::thread([this] { work(); });
}

HostQueue::~HostQueue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  pushed_.notify_one();
  thread_.join();
}

void HostQueue::push_waiting(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  pushed_.notify_one();
}

/// The next closure; false when there is none now.
bool HostQueue::take_next(std::function<void()>& next) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return false;
  next = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

/// Returns what the step does; an exception of it stops the run.
bool HostQueue::run(const std::function<bool()>& step) {
  try {
    return step();
  } catch (const std::exception& error) {
    control_.fail(what_of(error));
    return false;
  }
}

void HostQueue::work() {
  std::function<void()> next;
  while (true) {
    if (take_next(next)) {
      if (!control_.stopped()) run([&] { return next(), control_.progress(), true; });
      next = nullptr;
      continue;
    }
    if (idle_ && !control_.stopped() && run(idle_)) continue;
    std::unique_lock lock(mutex_);
    pushed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
  }
}

}  // namespace penstock
