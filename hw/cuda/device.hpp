// SPDX-License-Identifier: Apache-2.0
// A device of the CUDA backend: a GPU, or a partition of one.
//
// Every queue is a CUDA stream and a host thread that issues to it, so whoever issues to the device
// never waits: the thread of a queue waits where the stream could not (for another device to issue
// its send). Blocks get their memory when the queue's thread gets there. Streams only ever wait for
// events that were recorded before, so they cannot deadlock, even when ends share a stream.
#pragma once

#include "hw/cuda/events.hpp"
#include "hw/cuda/math.hpp"
#include "hw/cuda/memory.hpp"
#include "hw/host/queue.hpp"

namespace penstock::cuda {

struct DeviceSettings {
  int number = 0;  ///< of the Program
  int gpu = 0;
  int sms = 0;  ///< of its partition; 0: all
  cudaStream_t compute = nullptr;
  bool bf16 = false;
  bool pace = false;
  int receive_ahead = 4;
  RenewBases* renew_bases = nullptr;
};

class CudaDevice : public Device {
 public:
  CudaDevice(const DeviceSettings& settings, const std::vector<int>& peers,
             std::shared_ptr<EventPool> events, RunControl& control);
  ~CudaDevice() override;

  Event record(Queue queue) override;
  void wait(Queue queue, const Event& event) override;
  Block* allocate(Queue queue, std::int64_t bytes) override;
  void release(Queue queue, Block* block) override;
  void pace(Queue queue, const Event& begin, double duration_s, double part) override;
  void upload(Tensor to, const void* from, std::int64_t bytes) override;
  void download(void* to, Tensor from, std::int64_t bytes) override;
  Math& math() override { return *math_; }
  void finish() override;
  bool loads_on_first_use() const override { return true; }
  int issue_ahead() const override { return 8; }
  int receive_ahead() const override { return settings_.receive_ahead; }
  std::int64_t allocator_peak_bytes() override { return memory_->peak_bytes(); }

  // For the ends of channels, whose closures run on a queue's thread:
  Queue add_queue(cudaStream_t stream);
  void push(Queue queue, std::function<void()> work);
  cudaStream_t stream(Queue queue) const { return lane(queue).stream; }
  /// Something beside sends holds this queue up; for its own closures.
  bool waits(Queue queue) const { return lane(queue).waited; }
  EventSource& events() { return events_; }
  RunControl& control() const { return events_.control(); }
  int gpu() const { return settings_.gpu; }
  int number() const { return settings_.number; }
  DeviceMemory& memory() const { return *memory_; }
  /// Device memory for a %globaltimer stamp, used again after kSlots others.
  unsigned long long* next_slot();

  /// Ends the queues' threads; what is still waiting there runs first, unless the run was stopped.
  void close();
  /// Its memory stays: the GPU did not come to rest.
  void abandon();

 private:
  struct Lane {
    cudaStream_t stream;
    std::unique_ptr<HostQueue> queue;
    bool waited;  ///< wait() was called for it; only the queue's thread looks
  };
  const Lane& lane(Queue queue) const { return lanes_[static_cast<std::size_t>(queue)]; }
  void fill(Block* block, cudaStream_t stream);
  void give_back(Block* block, cudaStream_t stream);

  static constexpr std::size_t kSlots = 1 << 16;
  DeviceSettings settings_;
  EventSource events_;
  std::unique_ptr<DeviceMemory> memory_;
  unsigned long long* slots_ = nullptr;
  std::atomic<std::size_t> slots_used_{0};
  std::mutex mutex_;  // of blocks_
  std::map<Block*, std::unique_ptr<Block>> blocks_;
  std::vector<Lane> lanes_;
  std::unique_ptr<Math> math_;
};

}  // namespace penstock::cuda
