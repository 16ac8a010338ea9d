// SPDX-License-Identifier: Apache-2.0
// A GPU made of threads, so that the CUDA backend runs, and is tested, where there is none.
//
// It stands in for the libraries the backend is linked with (CUDA's runtime, cuBLASLt, NCCL), with
// the semantics their documents promise and no others: a stream is an in-order queue of work, and
// nothing else orders two streams but events. So what the backend forgets to order is a data race
// here, which the thread sanitizer reports; memory that is used before its allocation holds
// not-a-numbers, and after its release the address sanitizer reports it. What it says nothing
// about: the kernels' device code, speed, and what a real driver does beyond its documents.
//
// Environment, read once:
//   PENSTOCK_EMULATED_GPUS       how many, 1
//   PENSTOCK_EMULATED_BYTES      memory of each, 8 GiB
//   PENSTOCK_EMULATED_JITTER_US  every piece of work first sleeps up to that long, 0: other orders
//   PENSTOCK_EMULATED_FAULT      the piece of work at which GPU 0 fails for good, never
//   PENSTOCK_EMULATED_HANG       the piece of work of GPU 0 that never ends, none
//   PENSTOCK_EMULATED_TICK_NS    of %globaltimer, 32
//   PENSTOCK_EMULATED_SPLIT      `none`: SMs cannot be split; `overlap`: partitions share SMs
//   PENSTOCK_EMULATED_EPILOGUES  `none`: cuBLASLt has no algorithm for a product with one
//   CUDA_VISIBLE_DEVICES         numbers of those of the GPUs that a process sees, all
//   CUDA_DEVICE_MAX_CONNECTIONS  hardware queues of a GPU, 8: streams beyond them share some
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace penstock::emulated {

using Work = std::function<void()>;

/// A thread that does work in order. It is never joined: work that waits for ever keeps it.
class HardwareQueue {
 public:
  HardwareQueue();
  void push(Work work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<Work> waiting_;
};

/// What has been issued to a stream and has been done.
struct Progress {
  std::mutex mutex;
  std::condition_variable moved;
  std::uint64_t issued = 0, done = 0;

  bool idle() {
    const std::lock_guard lock(mutex);
    return issued == done;
  }
  /// For what has been issued so far; others may go on issuing.
  void wait() {
    std::unique_lock lock(mutex);
    moved.wait(lock, [&, until = issued] { return done >= until; });
  }
};

/// One moment of a stream that an event stands for.
struct Moment {
  std::mutex mutex;
  std::condition_variable came;
  bool over = false;
  std::int64_t time_ns = 0;
};

/// Nanoseconds, as events know them.
std::int64_t now_ns();
/// As the GPUs' timer, %globaltimer, shows them: it ticks.
std::int64_t timer_ns();

inline constexpr int kMostGpus = 8;
int gpus();
/// Code is loaded when it is first used, and only while the GPU is idle: with
/// CUDA_MODULE_LOADING=LAZY, the default, a load may wait for kernels that are running, so one that
/// spins until others have come makes a deadlock (CUDA Programming Guide, "Lazy Loading").
void load_code();
/// The calling thread's.
int current_gpu();
/// Did this GPU fail? Then every call says so, for ever.
bool failed(int gpu);
cudaError_t make_stream(int gpu, unsigned first_sm, unsigned sms, cudaStream_t* stream);
/// Returns cudaErrorLaunchFailure when the GPU failed.
cudaError_t enqueue(cudaStream_t stream, Work work);

}  // namespace penstock::emulated

struct CUstream_st {
  int gpu;
  unsigned first_sm, sms;  ///< it runs on
  penstock::emulated::HardwareQueue* queue;
  std::shared_ptr<penstock::emulated::Progress> progress;
};
