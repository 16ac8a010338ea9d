// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

namespace penstock::cuda {
namespace {

/// The pools of each GPU, whose stages are partitions with a pool each.
class Pools {
 public:
  void add_pool(int gpu, cudaMemPool_t pool) {
    const std::lock_guard lock(mutex_);
    of_gpu_[gpu].insert(pool);
  }
  void remove_pool(int gpu, cudaMemPool_t pool) {
    const std::lock_guard lock(mutex_);
    of_gpu_[gpu].erase(pool);
  }
  /// Gives back what the pools of a GPU have reserved and nobody uses.
  void trim(int gpu) {
    const std::lock_guard lock(mutex_);
    for (const cudaMemPool_t pool : of_gpu_[gpu])
      check(cudaMemPoolTrimTo(pool, 0), "give memory of a pool back");
  }

 private:
  std::mutex mutex_;
  std::map<int, std::set<cudaMemPool_t>> of_gpu_;
};
Pools& pools() {
  static Pools all;
  return all;
}

class PoolMemory : public DeviceMemory {
 public:
  PoolMemory(int gpu, cudaMemPool_t pool) : gpu_(gpu), pool_(pool) { pools().add_pool(gpu, pool); }
  ~PoolMemory() override {
    pools().remove_pool(gpu_, pool_);
    cudaMemPoolDestroy(pool_);
  }

  void* allocate(cudaStream_t stream, std::int64_t bytes) override {
    void* data = nullptr;
    const auto size = static_cast<std::size_t>(bytes);
    cudaError_t result = cudaMallocFromPoolAsync(&data, size, pool_, stream);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      // Rather wait for another stream's release than fail.
      set(cudaMemPoolReuseAllowInternalDependencies, 1);
      result = cudaMallocFromPoolAsync(&data, size, pool_, stream);
      set(cudaMemPoolReuseAllowInternalDependencies, 0);
    }
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      // Pools keep what they have; another partition's may be what is missing here.
      pools().trim(gpu_);
      result = cudaMallocFromPoolAsync(&data, size, pool_, stream);
    }
    if (result == cudaErrorMemoryAllocation) return cudaGetLastError(), nullptr;
    check(result, "allocate from a memory pool");
    return data;
  }
  void release(cudaStream_t stream, void* data, std::int64_t) override {
    check(cudaFreeAsync(data, stream), "free memory of a pool");
  }
  std::int64_t peak_bytes() override { return read(cudaMemPoolAttrUsedMemHigh); }
  std::int64_t reserved_peak_bytes() override { return read(cudaMemPoolAttrReservedMemHigh); }
  void reset_peaks() override {
    for (const auto attribute : {cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrReservedMemHigh}) {
      std::uint64_t zero = 0;
      check(cudaMemPoolSetAttribute(pool_, attribute, &zero), "reset a memory pool's peak");
    }
  }
  const char* name() const override { return "memory pool"; }

  void keep_everything() {
    std::uint64_t everything = ~std::uint64_t{0};
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &everything),
          "keep a memory pool's memory");
    // Waits between streams that the schedule does not know would show up in the timings.
    set(cudaMemPoolReuseAllowInternalDependencies, 0);
  }
  void open_to(const std::vector<int>& peers) {
    for (const int peer : peers) {
      cudaMemAccessDesc access{};
      access.location.type = cudaMemLocationTypeDevice;
      access.location.id = peer;
      access.flags = cudaMemAccessFlagsProtReadWrite;
      check(cudaMemPoolSetAccess(pool_, &access, 1), "open a memory pool to another GPU");
    }
  }

 private:
  void set(cudaMemPoolAttr attribute, int value) {
    check(cudaMemPoolSetAttribute(pool_, attribute, &value), "set up a memory pool");
  }
  std::int64_t read(cudaMemPoolAttr attribute) const {
    std::uint64_t bytes = 0;
    check(cudaMemPoolGetAttribute(pool_, attribute, &bytes), "read a memory pool's peak");
    return static_cast<std::int64_t>(bytes);
  }
  int gpu_;
  cudaMemPool_t pool_;
};

std::unique_ptr<DeviceMemory> try_pool(int gpu, const std::vector<int>& peers,
                                       cudaStream_t stream) {
  int supported = 0;
  check(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, gpu),
        "ask for memory pools");
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = gpu;
  cudaMemPool_t pool = nullptr;
  if (supported == 0 || cudaMemPoolCreate(&pool, &properties) != cudaSuccess) return nullptr;
  auto memory = std::make_unique<PoolMemory>(gpu, pool);
  memory->keep_everything();
  memory->open_to(peers);
  void* trial = memory->allocate(stream, 1 << 20);
  if (trial == nullptr) return nullptr;
  memory->release(stream, trial, 1 << 20);
  check(cudaStreamSynchronize(stream), "try out a memory pool");
  memory->reset_peaks();
  return memory;
}

}  // namespace

std::unique_ptr<DeviceMemory> open_memory(int gpu, const std::vector<int>& peers,
                                          EventSource& events, cudaStream_t stream) {
  try {
    if (auto pool = try_pool(gpu, peers, stream)) return pool;
  } catch (const SystemError&) {  // pools are refused in some virtual machines
  }
  cudaGetLastError();
  return std::make_unique<CachedMemory>(events);
}

CachedMemory::~CachedMemory() {
  for (void* data : all_) cudaFree(data);
}

/// A block released on this stream, or one whose release is over; with `wait`, the oldest.
void* CachedMemory::reuse(cudaStream_t stream, std::vector<Free>& same_size, bool wait) {
  auto found = std::ranges::find_if(
      same_size, [&](Free& f) { return f.stream == stream || f.released->fired(); });
  if (found == same_size.end() && wait) found = same_size.begin();
  if (found == same_size.end()) return nullptr;
  if (found->stream != stream) wait_on(stream, *found->released);
  void* data = found->data;
  same_size.erase(found);
  return data;
}

void* CachedMemory::allocate(cudaStream_t stream, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& same_size = free_[bytes];
  if (void* data = reuse(stream, same_size, false)) return data;
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return reuse(stream, same_size, true);
  }
  check(result, "allocate memory");
  all_.push_back(data);
  taken_bytes_ += bytes;
  return data;
}

void CachedMemory::release(cudaStream_t stream, void* data, std::int64_t bytes) {
  StampPtr released = events_.record(stream);
  const std::lock_guard lock(mutex_);
  free_[bytes].push_back({data, stream, std::move(released)});
}

std::int64_t CachedMemory::peak_bytes() {
  const std::lock_guard lock(mutex_);
  return taken_bytes_;
}

}  // namespace penstock::cuda
