// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/device.hpp"

#include "hw/cuda/kernels.hpp"

#include <fmt/format.h>

namespace penstock::cuda {

CudaDevice::CudaDevice(const DeviceSettings& settings, const std::vector<int>& peers,
                       std::shared_ptr<EventPool> events, RunControl& control)
    : settings_(settings), events_(std::move(events), control) {
  use_gpu(settings.gpu);
  memory_ = open_memory(settings.gpu, peers, events_, settings.compute);
  void* slots = nullptr;
  check(cudaMalloc(&slots, kSlots * sizeof *slots_), "allocate room for time stamps");
  slots_ = static_cast<unsigned long long*>(slots);
  add_queue(settings.compute);
  math_ =
      make_cuda_math({settings.compute, settings.sms, settings.bf16, settings.renew_bases,
                      [this] {
                        const StampPtr last = events_.record(settings_.compute);
                        wait_until_fired(*last, events_.control());
                      }},
                     [this](std::function<void()> work) { push(kComputeQueue, std::move(work)); });
}

CudaDevice::~CudaDevice() {
  close();
  if (memory_ == nullptr) return;  // abandoned
  try {
    use_gpu(settings_.gpu);
    math_ = nullptr;
    for (const auto& [block, owned] : blocks_) {
      if (block->data != nullptr) memory_->release(settings_.compute, block->data, block->bytes);
    }
    cudaStreamSynchronize(settings_.compute);
    cudaFree(slots_);
  } catch (const std::exception&) {  // the GPU failed; the run has already said so
  }
}

void CudaDevice::close() {
  for (Lane& lane : lanes_) lane.queue = nullptr;
}

void CudaDevice::abandon() {
  close();
  // Leaked: their destructors would wait for the GPU.
  static_cast<void>(math_.release());
  static_cast<void>(memory_.release());
}

Queue CudaDevice::add_queue(cudaStream_t stream) {
  lanes_.push_back({stream, std::make_unique<HostQueue>(control()), false});
  return static_cast<Queue>(lanes_.size()) - 1;
}

void CudaDevice::push(Queue queue, std::function<void()> work) {
  lane(queue).queue->push([gpu = settings_.gpu, work = std::move(work)] {
    use_gpu(gpu);
    work();
  });
}

unsigned long long* CudaDevice::next_slot() {
  return slots_ + slots_used_.fetch_add(1, std::memory_order_relaxed) % kSlots;
}

Event CudaDevice::record(Queue queue) {
  auto event = std::make_shared<CudaEvent>(control());
  push(queue, [this, event, on = stream(queue)] {
    unsigned long long* slot = settings_.pace ? next_slot() : nullptr;
    if (slot != nullptr) launch_stamp(slot, 0, on);
    StampPtr stamp = events_.record(on);
    stamp->slot = slot;
    event->bind(std::move(stamp));
  });
  return event;
}

void CudaDevice::wait(Queue queue, const Event& event) {
  push(queue, [this, queue, event, on = stream(queue)] {
    wait_on(on, *stamp_of(event));
    lanes_[static_cast<std::size_t>(queue)].waited = true;
  });
}

Block* CudaDevice::allocate(Queue queue, std::int64_t bytes) {
  auto owned = std::make_unique<Block>(Block{nullptr, bytes});
  Block* block = owned.get();
  {
    const std::lock_guard lock(mutex_);
    blocks_[block] = std::move(owned);
  }
  push(queue, [this, block, on = stream(queue)] { fill(block, on); });
  return block;
}

void CudaDevice::fill(Block* block, cudaStream_t on) {
  if (block->bytes == 0) return;
  block->data = memory_->allocate(on, block->bytes);
  if (block->data == nullptr)
    throw SystemError(fmt::format("device {} cannot allocate {} bytes on GPU {}: out of memory",
                                  settings_.number, block->bytes, settings_.gpu));
}

void CudaDevice::release(Queue queue, Block* block) {
  push(queue, [this, block, on = stream(queue)] { give_back(block, on); });
}

void CudaDevice::give_back(Block* block, cudaStream_t on) {
  if (block->data != nullptr) memory_->release(on, block->data, block->bytes);
  const std::lock_guard lock(mutex_);
  blocks_.erase(block);
}

void CudaDevice::pace(Queue queue, const Event& begin, double duration_s, double part) {
  invariant(settings_.pace, "a run is paced that was not opened so");
  push(queue, [begin, duration_s = duration_s * part, on = stream(queue)] {
    const StampPtr stamp = stamp_of(begin);
    invariant(stamp->slot != nullptr, "an event without a time stamp on the GPU");
    wait_on(on, *stamp);
    launch_delay(stamp->slot, static_cast<unsigned long long>(duration_s * 1e9), on);
  });
}

void CudaDevice::upload(Tensor to, const void* from, std::int64_t bytes) {
  push(kComputeQueue, [=, on = stream(kComputeQueue)] {
    check(cudaMemcpyAsync(to.data<void>(), from, static_cast<std::size_t>(bytes),
                          cudaMemcpyHostToDevice, on),
          "copy to the GPU");
  });
  record(kComputeQueue)->time_s();
}

void CudaDevice::download(void* to, Tensor from, std::int64_t bytes) {
  push(kComputeQueue, [=, on = stream(kComputeQueue)] {
    check(cudaMemcpyAsync(to, from.data<void>(), static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToHost, on),
          "copy from the GPU");
  });
  record(kComputeQueue)->time_s();
}

void CudaDevice::finish() {
  std::vector<Event> ends;
  for (std::size_t q = 0; q < lanes_.size(); ++q) ends.push_back(record(static_cast<Queue>(q)));
  for (const Event& end : ends) end->time_s();
}

}  // namespace penstock::cuda
