// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/clock.hpp"

#include "hw/cuda/kernels.hpp"
#include "hw/cuda/mapped.hpp"

#include <limits>
#include <numeric>

namespace penstock::cuda {
namespace {

constexpr int kTrips = 1000;      // a trip takes some microseconds
constexpr int kFewTrips = 20;     // where they take long, on a busy machine, these must do
constexpr double kTrips_s = 0.5;  // ... after so long
constexpr int kBrackets = 32;
constexpr int kSpins = 10000;  // some tens of microseconds; a trip takes a few

struct Offset {
  double timer_minus_steady_s = 0;
  double round_trip_s = std::numeric_limits<double>::infinity();
};

void wait_for_pong(const Mapped& m, unsigned long long trip, const RunControl& control) {
  for (int look = 0; m.word(1).load(std::memory_order_acquire) < trip; ++look) {
    if (look > kSpins) std::this_thread::yield();  // the GPU is slow, or this machine busy
    if (!control.stopped()) continue;
    m.word(0).store(kTrips + 1ULL, std::memory_order_release);  // lets the kernel go
    control.throw_if_stopped();
  }
}

Offset measure_offset(cudaStream_t stream, const RunControl& control) {
  const Mapped m(3 + kTrips);  // ping, pong, times
  launch_ping_pong(m.at(0), m.at(1), m.at(2), kTrips, stream);
  Offset best;
  const double began = steady_s();
  for (unsigned long long i = 1; i <= kTrips; ++i) {
    const double before = steady_s();
    if (i > kFewTrips && before - began > kTrips_s) {
      m.word(0).store(kTrips + 1ULL, std::memory_order_release);  // lets the kernel go
      break;
    }
    m.word(0).store(i, std::memory_order_release);
    wait_for_pong(m, i, control);
    const double after = steady_s();
    if (after - before >= best.round_trip_s) continue;
    const double timer_s = static_cast<double>(m.word(2 + i).load()) * 1e-9;
    best = {timer_s - (before + after) / 2, after - before};
  }
  check(cudaStreamSynchronize(stream), "align the clocks");
  return best;
}

}  // namespace

AlignedEvent align_clocks(int gpu, cudaStream_t stream, const std::shared_ptr<EventPool>& events,
                          const RunControl& control) {
  use_gpu(gpu);
  const Offset offset = measure_offset(stream, control);
  const Mapped stamps(2);
  AlignedEvent best;
  unsigned long long width_ns = ~0ULL;
  for (int i = 0; i < kBrackets; ++i) {
    auto event = std::make_shared<Stamp>(events, nullptr);
    launch_stamp(stamps.at(0), 0, stream);
    event->record(stream);
    launch_stamp(stamps.at(1), 0, stream);
    check(cudaStreamSynchronize(stream), "align the clocks");
    const unsigned long long first = stamps.word(0).load();
    const unsigned long long width = stamps.word(1).load() - first;
    if (width >= width_ns) continue;
    width_ns = width;
    best.event = std::move(event);
    best.timer_ns = first + width / 2;
  }
  best.event->fired();
  best.steady_s = static_cast<double>(best.timer_ns) * 1e-9 - offset.timer_minus_steady_s;
  best.uncertainty_s = offset.round_trip_s / 2 + static_cast<double>(width_ns) * 0.5e-9;
  return best;
}

unsigned long long measure_tick_ns(int gpu, cudaStream_t stream) {
  constexpr int kTicks = 64;
  use_gpu(gpu);
  const Mapped times(kTicks);
  launch_ticks(times.at(0), kTicks, stream);
  check(cudaStreamSynchronize(stream), "measure the timer's tick");
  unsigned long long tick = 0;
  for (std::size_t i = 1; i < kTicks; ++i)
    tick = std::gcd(tick, times.word(i).load() - times.word(i - 1).load());
  return tick;
}

}  // namespace penstock::cuda
