// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/kernels.hpp"

#include "hw/cuda/driver.hpp"

namespace penstock::cuda {
namespace {

__device__ unsigned long long now_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void stamp(unsigned long long* slot, unsigned long long zero_ns) {
  *slot = now_ns() - zero_ns;
}

__global__ void delay(const unsigned long long* begin, unsigned long long duration_ns) {
  const unsigned long long end = *begin + duration_ns;
  while (now_ns() < end) __nanosleep(200);
}

__global__ void ping_pong(const volatile unsigned long long* ping,
                          volatile unsigned long long* pong, volatile unsigned long long* times,
                          unsigned long long trips) {
  for (unsigned long long i = 1; i <= trips; ++i) {
    unsigned long long seen = *ping;
    while (seen < i) seen = *ping;
    if (seen > trips) return;
    times[i] = now_ns();
    __threadfence_system();
    *pong = i;
  }
}

__global__ void sm_numbers(unsigned* sms) {
  unsigned sm;
  asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
  if (threadIdx.x == 0) sms[blockIdx.x] = sm;
  const unsigned long long end = now_ns() + 50000;
  while (now_ns() < end) __nanosleep(1000);
}

__global__ void ticks(unsigned long long* times, int count) {
  unsigned long long last = now_ns();
  for (int i = 0; i < count; ++i) {
    unsigned long long now = last;
    while (now == last) now = now_ns();
    times[i] = last = now;
  }
}

}  // namespace

void launch_stamp(unsigned long long* slot, unsigned long long zero_ns, cudaStream_t stream) {
  stamp<<<1, 1, 0, stream>>>(slot, zero_ns);
  check(cudaGetLastError(), "launch the stamp kernel");
}

void launch_delay(const unsigned long long* begin, unsigned long long duration_ns,
                  cudaStream_t stream) {
  delay<<<1, 1, 0, stream>>>(begin, duration_ns);
  check(cudaGetLastError(), "launch the delay kernel");
}

void launch_ping_pong(const unsigned long long* ping, unsigned long long* pong,
                      unsigned long long* times, int trips, cudaStream_t stream) {
  ping_pong<<<1, 1, 0, stream>>>(ping, pong, times, static_cast<unsigned long long>(trips));
  check(cudaGetLastError(), "launch the ping-pong kernel");
}

void launch_sm_numbers(unsigned* sms, int blocks, cudaStream_t stream) {
  // 1024 threads: an SM holds one or two of these blocks, so one more finds another SM.
  sm_numbers<<<blocks, 1024, 0, stream>>>(sms);
  check(cudaGetLastError(), "launch the kernel of SM numbers");
}

void launch_ticks(unsigned long long* times, int count, cudaStream_t stream) {
  ticks<<<1, 1, 0, stream>>>(times, count);
  check(cudaGetLastError(), "launch the kernel of ticks");
}

}  // namespace penstock::cuda
