// SPDX-License-Identifier: Apache-2.0
#include "hw/run_control.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace penstock {
namespace {

std::string stall_report(double deadline_s,
                         const std::vector<std::function<std::string()>>& describers) {
  std::string report = fmt::format("nothing moved for {:g} s", deadline_s);
  for (const auto& describe : describers) {
    if (const std::string line = describe(); !line.empty()) report += "\n  " + line;
  }
  return report;
}

}  // namespace

RunControl::RunControl(double deadline_s) : deadline_s_(deadline_s) {
  if (deadline_s_ > 0) watchdog_ = std::thread([this] { watch(); });
}

RunControl::~RunControl() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
}

void RunControl::fail(const std::string& reason) {
  std::vector<std::function<void()>> wakers;
  {
    const std::lock_guard lock(mutex_);
    if (stopped()) return;
    reason_ = reason;
    stopped_.store(true, std::memory_order_release);
    wakers.swap(wakers_);
  }
  ended_.notify_all();
  for (const auto& wake : wakers) wake();
}

void RunControl::throw_if_stopped() const {
  if (stopped()) throw SystemError(reason());
}

std::string RunControl::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void RunControl::on_stop(std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped()) {
      wakers_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

void RunControl::on_stall(std::function<std::string()> describe) {
  const std::lock_guard lock(mutex_);
  describers_.push_back(std::move(describe));
}

void RunControl::watch() {
  const double slice_s = std::min(deadline_s_ / 8, 1.0);
  std::uint64_t seen = moved_.load(std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  // Slices are counted instead of reading a clock: a process that was suspended (SIGSTOP, a
  // debugger) has not been waiting in the meantime.
  for (double idle_s = 0; idle_s < deadline_s_;) {
    const auto ended = [this] { return done_ || stopped(); };
    if (ended_.wait_for(lock, std::chrono::duration<double>(slice_s), ended)) return;
    const std::uint64_t moved = moved_.load(std::memory_order_relaxed);
    idle_s = moved == seen ? idle_s + slice_s : 0;
    seen = moved;
  }
  const auto describers = describers_;
  lock.unlock();
  fail(stall_report(deadline_s_, describers));
}

}  // namespace penstock
