// SPDX-License-Identifier: Apache-2.0
#include "tests/hw/emulated_gpu/gpu.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

namespace penstock::emulated {
namespace {

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

struct Gpu {
  std::mutex mutex;
  std::deque<std::unique_ptr<HardwareQueue>> queues;
  std::size_t streams = 0;  // made so far
  std::atomic<std::int64_t> pieces{0};
  std::atomic<bool> failed{false};
};

/// Never destroyed: queues may be at work when the process ends.
Gpu& gpu_of(int number) {
  static auto* all = new std::array<Gpu, kMostGpus>;
  return all->at(static_cast<std::size_t>(number));
}

void jitter() {
  static const auto most = setting("PENSTOCK_EMULATED_JITTER_US", 0);
  thread_local std::minstd_rand random(
      static_cast<unsigned>(std::hash<std::thread::id>{}(std::this_thread::get_id())));
  if (most > 0)
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, most)(random)));
}

/// One more piece of work; false when this GPU fails, or did.
bool survives(int number) {
  static const auto fault = setting("PENSTOCK_EMULATED_FAULT", -1);
  static const auto hang = setting("PENSTOCK_EMULATED_HANG", -1);
  Gpu& gpu = gpu_of(number);
  const std::int64_t piece = gpu.pieces.fetch_add(1, std::memory_order_relaxed);
  if (number == 0 && piece == fault) gpu.failed = true;
  while (number == 0 && piece == hang) std::this_thread::sleep_for(std::chrono::hours(1));
  return !gpu.failed;
}

}  // namespace

HardwareQueue::HardwareQueue() {
  std::thread([this] { run(); }).detach();
}

void HardwareQueue::push(Work work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  pushed_.notify_one();
}

void HardwareQueue::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    pushed_.wait(lock, [&] { return !waiting_.empty(); });
    const Work next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
  }
}

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::int64_t timer_ns() {
  static const auto tick = setting("PENSTOCK_EMULATED_TICK_NS", 32);
  return now_ns() / tick * tick;
}

int gpus() {
  static const auto count = setting("PENSTOCK_EMULATED_GPUS", 1);
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, kMostGpus));
}

bool failed(int gpu) { return gpu_of(gpu).failed; }

cudaError_t make_stream(int number, unsigned first_sm, unsigned sms, cudaStream_t* stream) {
  static const auto connections = static_cast<std::size_t>(
      std::max<std::int64_t>(setting("CUDA_DEVICE_MAX_CONNECTIONS", 8), 1));
  Gpu& gpu = gpu_of(number);
  const std::lock_guard lock(gpu.mutex);
  const std::size_t q = gpu.streams++ % connections;
  if (q == gpu.queues.size()) gpu.queues.push_back(std::make_unique<HardwareQueue>());
  *stream =
      new CUstream_st{number, first_sm, sms, gpu.queues[q].get(), std::make_shared<Progress>()};
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (failed(stream->gpu)) return cudaErrorLaunchFailure;
  const auto progress = stream->progress;
  {
    const std::lock_guard lock(progress->mutex);
    ++progress->issued;
  }
  stream->queue->push([progress, gpu = stream->gpu, work = std::move(work)] {
    jitter();
    if (survives(gpu)) work();
    const std::lock_guard lock(progress->mutex);
    ++progress->done;
    progress->moved.notify_all();
  });
  return cudaSuccess;
}

}  // namespace penstock::emulated
