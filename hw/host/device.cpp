// SPDX-License-Identifier: Apache-2.0
#include "hw/host/device.hpp"

#include "base/error.hpp"
#include "hw/host/wire.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>

namespace penstock {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line; OpenBLAS likes it, too

/// Sizes are rounded up so that blocks can serve again; a message's header has room behind them.
std::int64_t capacity(std::int64_t bytes) {
  const std::int64_t needed = bytes + kTrailerBytes;
  constexpr auto kUnit = static_cast<std::int64_t>(kAlignment);
  return (needed + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

void HostClock::sleep_until(double wall, const RunControl& control) const {
  constexpr double kSpin = 200e-6;  // the scheduler may wake us this late
  constexpr double kSlice = 0.05;   // between looks at whether the run was stopped
  for (double left; !control.stopped() && (left = wall - wall_s()) > kSpin;)
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left - kSpin, kSlice)));
  while (!control.stopped() && wall_s() < wall) std::this_thread::yield();
}

void HostEvent::fire(double time_s) {
  {
    const std::lock_guard lock(mutex_);
    fired_ = true;
    time_s_ = time_s;
  }
  changed_.notify_all();
  control_.progress();
}

double HostEvent::time_s() {
  std::unique_lock lock(mutex_);
  while (!fired_) {
    control_.throw_if_stopped();
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  return time_s_;
}

bool HostEvent::fired() {
  const std::lock_guard lock(mutex_);
  return fired_;
}

HostPool::~HostPool() {
  for (const auto& block : blocks_) std::free(block->data);
  for (auto& [bytes, blocks] : free_) {
    for (void* data : blocks) std::free(data);
  }
}

Block* HostPool::announce(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) {
    blocks_.push_back(std::make_unique<Block>());
    spare_.push_back(blocks_.back().get());
  }
  Block* block = spare_.back();
  spare_.pop_back();
  *block = {nullptr, bytes};
  return block;
}

bool HostPool::fill(Block* block) {
  const std::int64_t bytes = capacity(block->bytes);
  const std::lock_guard lock(mutex_);
  auto& same = free_[bytes];
  if (same.empty()) {
    block->data = std::aligned_alloc(kAlignment, static_cast<std::size_t>(bytes));
  } else {
    block->data = same.back();
    same.pop_back();
  }
  if (block->data == nullptr) return false;
  in_use_ += block->bytes;
  peak_ = std::max(peak_, in_use_);
  return true;
}

void HostPool::give_back(Block* block) {
  const std::lock_guard lock(mutex_);
  in_use_ -= block->bytes;
  free_[capacity(block->bytes)].push_back(block->data);
  block->data = nullptr;
  spare_.push_back(block);
}

std::int64_t HostPool::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

HostDevice::HostDevice(int number, RunControl& control, const HostClock& clock, bool threads)
    : number_(number),
      threads_(threads),
      control_(control),
      clock_(clock),
      math_(threads ? HostMath([this](std::function<void()> work) {
        queue(kComputeQueue).push(std::move(work));
      })
                    : HostMath(control)) {
  add_queue();
}

HostDevice::~HostDevice() = default;

Queue HostDevice::add_queue(std::function<bool()> idle) {
  queues_.push_back(std::make_unique<HostQueue>(control_, std::move(idle), threads_));
  return static_cast<Queue>(queues_.size()) - 1;
}

Event HostDevice::record(Queue number) {
  auto event = std::make_shared<HostEvent>(control_);
  HostQueue& q = queue(number);
  q.push([this, &q, event] { event->fire(clock_.now_s(q)); });
  return event;
}

double HostDevice::wait_here(HostQueue& q, const Event& event) const {
  const double time = event->time_s();
  q.time_s = std::max(q.time_s, time);
  return time;
}

void HostDevice::wait(Queue number, const Event& event) {
  HostQueue& q = queue(number);
  q.push([this, &q, event] { wait_here(q, event); });
}

void HostDevice::wait_for(Queue number) {
  if (threads_) return Device::wait_for(number);
  control_.throw_if_stopped();
  control_.progress();
}

Block* HostDevice::allocate(Queue number, std::int64_t bytes) {
  Block* block = pool_.announce(bytes);
  queue(number).push([this, block] {
    if (pool_.fill(block)) return;
    throw SystemError(fmt::format("device {} cannot allocate {} bytes", number_, block->bytes));
  });
  return block;
}

void HostDevice::release(Queue number, Block* block) {
  queue(number).push([this, block] { pool_.give_back(block); });
}

void HostDevice::pace(Queue number, const Event& begin, double duration_s, double part) {
  HostQueue& q = queue(number);
  q.push([this, &q, begin, duration_s, part] {
    const double start = begin->time_s(), end = start + duration_s;
    const double until = part < 1 ? start + part * (end - start) : end;  // to exact's last bit
    if (clock_.logical()) {
      q.time_s = until;
    } else {
      clock_.sleep_until(until, control_);
    }
  });
}

template <class Work>
void HostDevice::run_here(Work work) {
  if (threads_) {
    auto over = std::make_shared<std::promise<void>>();
    const std::future<void> ended = over->get_future();
    // A stopped run drops the closure and with it the promise, which ends the wait, too.
    queue(kComputeQueue).push([work, over = std::move(over)] { work(); });
    ended.wait();
  } else {
    queue(kComputeQueue).push(work);
  }
  control_.throw_if_stopped();
  control_.progress();
}

void HostDevice::upload(Tensor to, const void* from, std::int64_t bytes) {
  run_here([=] { std::memcpy(to.data<void>(), from, static_cast<std::size_t>(bytes)); });
}

void HostDevice::download(void* to, Tensor from, std::int64_t bytes) {
  run_here([=] { std::memcpy(to, from.data<void>(), static_cast<std::size_t>(bytes)); });
}

void HostDevice::finish() {
  std::vector<Event> ends;
  for (std::size_t q = 0; q < queues_.size(); ++q) ends.push_back(record(static_cast<Queue>(q)));
  for (const Event& end : ends) end->time_s();
}

}  // namespace penstock
