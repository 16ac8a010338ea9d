// SPDX-License-Identifier: Apache-2.0
// Stream-ordered device memory of one pipeline device.
//
// A memory pool of CUDA's own, so that its high-water mark is the device's alone; where pools do
// not work, a cache of blocks by exact size: schedules ask for the same few sizes again and again.
#pragma once

#include "hw/cuda/events.hpp"

#include <map>

namespace penstock::cuda {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Valid for work on `stream` from here on; null when there is not enough. Any thread.
  virtual void* allocate(cudaStream_t stream, std::int64_t bytes) = 0;
  /// Used again once `stream` has got here.
  virtual void release(cudaStream_t stream, void* data, std::int64_t bytes) = 0;
  virtual std::int64_t peak_bytes() = 0;
  /// What was taken from the GPU for it at most.
  virtual std::int64_t reserved_peak_bytes() = 0;
  /// The peaks from here on.
  virtual void reset_peaks() = 0;
  virtual const char* name() const = 0;
};

/// For a device on `gpu`; `stream` tries it out. `peers`: GPUs that copy from it.
std::unique_ptr<DeviceMemory> open_memory(int gpu, const std::vector<int>& peers,
                                          EventSource& events, cudaStream_t stream);

/// The fallback.
class CachedMemory : public DeviceMemory {
 public:
  explicit CachedMemory(EventSource& events) : events_(events) {}
  ~CachedMemory() override;
  void* allocate(cudaStream_t stream, std::int64_t bytes) override;
  void release(cudaStream_t stream, void* data, std::int64_t bytes) override;
  std::int64_t peak_bytes() override;
  std::int64_t reserved_peak_bytes() override { return peak_bytes(); }
  void reset_peaks() override {}  // it gives nothing back
  const char* name() const override { return "cache over cudaMalloc"; }

 private:
  struct Free {
    void* data;
    cudaStream_t stream;  ///< where it was released
    StampPtr released;
  };
  void* reuse(cudaStream_t stream, std::vector<Free>& same_size, bool wait);

  EventSource& events_;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<Free>> free_;
  std::vector<void*> all_;
  std::int64_t taken_bytes_ = 0;
};

}  // namespace penstock::cuda
