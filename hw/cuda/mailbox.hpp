// SPDX-License-Identifier: Apache-2.0
// A FIFO between two host threads whose wait ends when the run stops.
#pragma once

#include "hw/run_control.hpp"

#include <chrono>
#include <deque>
#include <utility>

namespace penstock::cuda {

inline constexpr std::chrono::milliseconds kLookAtControl{20};

template <class T>
class Mailbox {
 public:
  explicit Mailbox(const RunControl& control) : control_(control) {}

  void put(T item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    came_.notify_one();
  }
  /// Waits for the next item; throws what stopped the run.
  T take_message() {
    std::unique_lock lock(mutex_);
    while (!came_.wait_for(lock, kLookAtControl, [&] { return !items_.empty(); })) {
      control_.throw_if_stopped();
    }
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  const RunControl& control_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<T> items_;
};

/// Tickets of a ring of slots: piece n uses slot n % slots, filled after piece n - slots has been
/// drained, drained after it has been filled. Waits are for the *issue* of the other side's work.
class RingTickets {
 public:
  RingTickets(const RunControl& control, std::uint64_t slots) : control_(control), slots_(slots) {}

  std::size_t slot(std::uint64_t piece) const { return static_cast<std::size_t>(piece % slots_); }
  bool reuses(std::uint64_t piece) const { return piece >= slots_; }
  void wait_to_fill(std::uint64_t piece) {
    wait([&] { return piece < drained_ + slots_; });
  }
  void wait_to_drain(std::uint64_t piece) {
    wait([&] { return piece < filled_; });
  }
  void fill() { count(filled_); }
  void drain() { count(drained_); }

 private:
  template <class Ready>
  void wait(Ready ready) {
    std::unique_lock lock(mutex_);
    while (!moved_.wait_for(lock, kLookAtControl, ready)) control_.throw_if_stopped();
  }
  void count(std::uint64_t& counter) {
    {
      const std::lock_guard lock(mutex_);
      ++counter;
    }
    moved_.notify_all();
  }

  const RunControl& control_;
  std::uint64_t slots_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::uint64_t filled_ = 0, drained_ = 0;
};

}  // namespace penstock::cuda
