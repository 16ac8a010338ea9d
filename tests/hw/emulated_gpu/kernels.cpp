// SPDX-License-Identifier: Apache-2.0
// The backend's small kernels of the clock (hw/cuda/kernels.cu), by the emulated GPU's timer.
#include "hw/cuda/kernels.hpp"

#include "tests/hw/emulated_gpu/gpu.hpp"
#include "tests/hw/emulated_gpu/launches.hpp"

#include <chrono>
#include <thread>

namespace penstock::cuda {
namespace {

unsigned long long now_ns() { return static_cast<unsigned long long>(emulated::timer_ns()); }

void ping_pong(std::atomic_ref<const unsigned long long> ping,
               std::atomic_ref<unsigned long long> pong, unsigned long long* times,
               unsigned long long trips) {
  for (unsigned long long i = 1; i <= trips; ++i) {
    unsigned long long seen = 0;
    while ((seen = ping.load()) < i) std::this_thread::yield();
    if (seen > trips) return;
    times[i] = now_ns();
    pong.store(i);
  }
}

}  // namespace

void launch_stamp(unsigned long long* slot, unsigned long long zero_ns, cudaStream_t stream) {
  launch(
      stream, [=] { *slot = now_ns() - zero_ns; }, "launch the stamp kernel");
}

void launch_delay(const unsigned long long* begin, unsigned long long duration_ns,
                  cudaStream_t stream) {
  launch(
      stream,
      [=] {
        for (const auto end = *begin + duration_ns; now_ns() < end;)
          std::this_thread::sleep_for(std::chrono::nanoseconds(end - std::min(end, now_ns())));
      },
      "launch the delay kernel");
}

void launch_ping_pong(const unsigned long long* ping, unsigned long long* pong,
                      unsigned long long* times, int trips, cudaStream_t stream) {
  launch(
      stream,
      [=] {
        ping_pong(std::atomic_ref(*ping), std::atomic_ref(*pong), times,
                  static_cast<unsigned long long>(trips));
      },
      "launch the ping-pong kernel");
}

void launch_sm_numbers(unsigned* sms, int blocks, cudaStream_t stream) {
  const unsigned first = stream->first_sm, count = stream->sms;
  launch(
      stream,
      [=] {
        for (int i = 0; i < blocks; ++i) sms[i] = first + static_cast<unsigned>(i) % count;
      },
      "launch the kernel of SM numbers");
}

void launch_ticks(unsigned long long* times, int count, cudaStream_t stream) {
  launch(
      stream,
      [=] {
        unsigned long long last = now_ns();
        for (int i = 0; i < count; ++i) {
          unsigned long long now = last;
          while (now == last) now = now_ns();
          times[i] = last = now;
        }
      },
      "launch the kernel of ticks");
}

}  // namespace penstock::cuda
