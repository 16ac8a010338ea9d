// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/examination.hpp"

#include "base/clock.hpp"
#include "hw/cuda/clock.hpp"
#include "hw/cuda/kernels.hpp"
#include "hw/cuda/mapped.hpp"
#include "hw/cuda/partitions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace penstock::cuda {
namespace {

constexpr double kMiB = 1 << 20;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A stream, and what is asked of it with CUDA's words for what went wrong.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "wait for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class TimedEvent {
 public:
  TimedEvent() { check(cudaEventCreate(&event_), "create an event"); }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  operator cudaEvent_t() const { return event_; }
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "record an event"); }

 private:
  cudaEvent_t event_ = nullptr;
};

double between_s(cudaEvent_t first, cudaEvent_t second) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, first, second), "compare two events");
  return static_cast<double>(ms) * 1e-3;
}

using Say = std::function<void(const std::string&)>;

void look_at_partitions(int gpu, const Say& say) {
  for (const int count : {2, 4, 8, 16}) {
    const GpuPartitions partitions(gpu, count);
    const std::string& problem = partitions.problem();
    say(problem.empty() ? fmt::format("{} partitions: {}; their kernels ran on SMs {}", count,
                                      partitions.describe(), partitions.describe_sms())
                        : fmt::format("{} partitions: none: {}", count, problem));
  }
}

/// As many kernels that only wait as there are streams: one after the other they take as many times
/// as long.
void look_at_streams(int, const Say& say) {
  constexpr std::size_t kStreams = 32;
  constexpr double kDelay_s = 5e-3;
  const std::vector<Stream> streams(kStreams);
  const Mapped begins(kStreams);
  const auto wait_on_all = [&](double delay_s) {
    const double began = steady_s();
    for (std::size_t i = 0; i < kStreams; ++i) {
      launch_stamp(begins.at(i), 0, streams[i]);
      launch_delay(begins.at(i), static_cast<unsigned long long>(delay_s * 1e9), streams[i]);
    }
    for (const Stream& stream : streams) stream.wait();
    return steady_s() - began;
  };
  wait_on_all(0);  // loads the kernels
  const double took_s = wait_on_all(kDelay_s);
  say(fmt::format("{} streams: kernels of {:.0f} ms on each take {:.1f} ms, {:.1f} at once",
                  kStreams, kDelay_s * 1e3, took_s * 1e3, kStreams * kDelay_s / took_s));
}

void look_at_the_timer(int gpu, const Say& say) {
  const Stream stream;
  say(fmt::format("timer tick: {} ns", measure_tick_ns(gpu, stream)));
}

/// Two stamps of the timer around two events, the second of which waits for the first in another
/// partition: events cannot be farther apart than the stamps, and hardly nearer.
void look_at_events(int gpu, const Say& say) {
  constexpr int kTimes = 101;
  GpuPartitions partitions(gpu, 2);
  const cudaStream_t one = partitions.make_stream(0, false),
                     other = partitions.make_stream(1, false);
  const Mapped stamps(2);
  TimedEvent first, second;
  std::vector<double> apart, missing;
  for (int i = 0; i < kTimes; ++i) {
    launch_stamp(stamps.at(0), 0, one);
    first.record(one);
    check(cudaStreamWaitEvent(other, first, 0), "wait for another partition");
    second.record(other);
    launch_stamp(stamps.at(1), 0, other);
    check(cudaStreamSynchronize(other), "wait for a partition");
    apart.push_back(between_s(first, second));
    missing.push_back(static_cast<double>(stamps.word(1).load() - stamps.word(0).load()) * 1e-9 -
                      apart.back());
  }
  say(
      fmt::format("events across {}: {:.1f} us from one to the next, between stamps of the "
                  "timer {:.1f} us farther apart (at least {:.1f})",
                  partitions.problem().empty() ? "partitions" : "streams without partitions",
                  median(apart) * 1e6, median(missing) * 1e6, std::ranges::min(missing) * 1e6));
  constexpr int kEvents = 2000;
  std::vector<TimedEvent> events(kEvents);
  const double began = steady_s();
  for (TimedEvent& event : events) event.record(one);
  const double host_s = (steady_s() - began) / kEvents;
  check(cudaStreamSynchronize(one), "wait for a partition");
  std::vector<double> steps;
  for (std::size_t i = 1; i < events.size(); ++i)
    steps.push_back(between_s(events[i - 1], events[i]));
  say(fmt::format("events back to back: {:.2f} us of a thread, {:.2f} us apart on the GPU",
                  host_s * 1e6, median(steps) * 1e6));
}

/// Threads that do nothing but launch, each on a stream of its own.
void look_at_launches(int gpu, const Say& say) {
  constexpr int kLaunches = 2000;
  for (const int threads : {1, 2, 4, 8}) {
    const std::vector<Stream> streams(static_cast<std::size_t>(threads));
    const Mapped slots(static_cast<std::size_t>(threads));
    std::vector<double> issued_s(static_cast<std::size_t>(threads));
    std::vector<std::exception_ptr> problems(static_cast<std::size_t>(threads));
    std::barrier all_here(threads);
    const double began = steady_s();
    const auto launch = [&](std::size_t i) {
      all_here.arrive_and_wait();
      try {
        use_gpu(gpu);
        const double start = steady_s();
        for (int k = 0; k < kLaunches; ++k) launch_stamp(slots.at(i), 0, streams[i]);
        issued_s[i] = steady_s() - start;
        streams[i].wait();
      } catch (...) {
        problems[i] = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> launching;
      for (std::size_t i = 0; i < issued_s.size(); ++i) launching.emplace_back(launch, i);
    }
    for (const auto& problem : problems)
      if (problem) std::rethrow_exception(problem);
    say(fmt::format("launches by {} thread{}: {:.2f} us each of a thread, {:.0f} a second of all",
                    threads, threads == 1 ? "" : "s", median(issued_s) / kLaunches * 1e6,
                    threads * kLaunches / (steady_s() - began)));
  }
}

/// Freed behind a kernel that is still running.
void look_at_memory(int gpu, const Say& say) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  constexpr unsigned long long kDelay_ns = 50'000'000;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = gpu;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "create a memory pool");
  const auto of_pool = [&](cudaMemPoolAttr attribute) {
    std::uint64_t bytes = 0;
    check(cudaMemPoolGetAttribute(pool, attribute, &bytes), "read a memory pool");
    return static_cast<double>(bytes) / kMiB;
  };
  const auto state = [&] {
    std::size_t free = 0, all = 0;
    check(cudaMemGetInfo(&free, &all), "ask for free memory");
    return fmt::format("{:.0f} MiB used, {:.0f} reserved, {:.0f} in use on the GPU",
                       of_pool(cudaMemPoolAttrUsedMemCurrent),
                       of_pool(cudaMemPoolAttrReservedMemCurrent),
                       static_cast<double>(all - free) / kMiB);
  };
  {
    const Stream stream;
    const Mapped begin(1);
    void* data = nullptr;
    check(cudaMallocFromPoolAsync(&data, kBytes, pool, stream), "allocate from a memory pool");
    stream.wait();
    say(fmt::format("memory: {} allocated", state()));
    launch_stamp(begin.at(0), 0, stream);
    launch_delay(begin.at(0), kDelay_ns, stream);
    check(cudaFreeAsync(data, stream), "free memory of a pool");
    say(fmt::format("memory: {} once its release is issued, behind a kernel that runs", state()));
    stream.wait();
    say(fmt::format("memory: {} once that is over", state()));
  }
  check(cudaMemPoolDestroy(pool), "destroy a memory pool");
}

void look_at_copies(int, const Say& say) {
  constexpr std::size_t kMost = std::size_t{256} << 20;
  constexpr int kTimes = 7;
  const Stream stream;
  void *host = nullptr, *from = nullptr, *to = nullptr;
  check(cudaHostAlloc(&host, kMost, cudaHostAllocPortable), "allocate pinned memory");
  check(cudaMalloc(&from, kMost), "allocate memory");
  check(cudaMalloc(&to, kMost), "allocate memory");
  check(cudaMemsetAsync(from, 1, kMost, stream), "clear memory");
  const auto copy_s = [&](void* target, const void* source, std::size_t bytes,
                          cudaMemcpyKind kind) {
    TimedEvent first, second;
    std::vector<double> times;
    for (int i = 0; i < kTimes; ++i) {
      first.record(stream);
      check(cudaMemcpyAsync(target, source, bytes, kind, stream), "copy");
      second.record(stream);
      stream.wait();
      times.push_back(between_s(first, second));
    }
    return median(times);
  };
  for (const std::size_t bytes : {kMost >> 12, kMost >> 8, kMost >> 4, kMost}) {
    std::string line = fmt::format("copies of {} KiB:", bytes >> 10);
    const auto add = [&](const char* what, double s) {
      line += fmt::format(" {} {:.1f} us ({:.1f} GB/s)", what, s * 1e6,
                          static_cast<double>(bytes) / s * 1e-9);
    };
    add("to the host", copy_s(host, from, bytes, cudaMemcpyDeviceToHost));
    add("to the GPU", copy_s(to, host, bytes, cudaMemcpyHostToDevice));
    add("on the GPU", copy_s(to, from, bytes, cudaMemcpyDeviceToDevice));
    say(line);
  }
  cudaFree(from);
  cudaFree(to);
  cudaFreeHost(host);
}

}  // namespace

void examine_gpu(int gpu, const Say& say) {
  constexpr std::pair<const char*, void (*)(int, const Say&)> kParts[] = {
      {"partitions", look_at_partitions}, {"streams", look_at_streams},
      {"timer tick", look_at_the_timer},  {"events", look_at_events},
      {"launches", look_at_launches},     {"memory", look_at_memory},
      {"copies", look_at_copies}};
  for (const auto& [what, look] : kParts) {
    try {
      use_gpu(gpu);
      look(gpu, say);
    } catch (const SystemError& problem) {
      say(fmt::format("{}: FAILED: {}", what, problem.what()));
    }
  }
}

}  // namespace penstock::cuda
