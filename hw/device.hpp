// SPDX-License-Identifier: Apache-2.0
// A pipeline device as the executor sees it: in-order queues, events between them, memory.
//
// Everything is *issued* by one thread and runs later, in the order of its queue: queue 0 computes,
// every end of a channel has a queue of its own. An event fires when all that was issued on its
// queue before it has run, and carries the time of that moment on the clock of the run. A GPU is
// the model (streams, events, a stream-ordered pool); the host backend does the same with threads.
#pragma once

#include "program/vocabulary.hpp"

#include <memory>

namespace penstock {

class Math;

/// Memory. `data` is valid for work on the queue that allocated it, and after an event recorded
/// there; issuing code only passes blocks on.
struct Block {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

/// A place in a block, `offset_bytes` from its start.
struct Tensor {
  const Block* block = nullptr;
  std::int64_t offset_bytes = 0;

  Tensor at(std::int64_t more_bytes) const { return {block, offset_bytes + more_bytes}; }
  explicit operator bool() const { return block != nullptr; }
  /// Only where `block->data` is valid.
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(static_cast<char*>(block->data) + offset_bytes);
  }
};

class EventState {
 public:
  virtual ~EventState() = default;
  /// Seconds on the run's clock. Waits for the event; throws what stopped the run.
  virtual double time_s() = 0;
  /// Has it fired? Never waits.
  virtual bool fired() = 0;
};
using Event = std::shared_ptr<EventState>;

using Queue = int;
inline constexpr Queue kComputeQueue = 0;

class Device {
 public:
  virtual ~Device() = default;

  virtual Event record(Queue queue) = 0;
  /// Work issued on `queue` from now on runs after `event`.
  virtual void wait(Queue queue, const Event& event) = 0;

  /// Waits until all that was issued on `queue` has run. Throws what stopped the run.
  virtual void wait_for(Queue queue) { record(queue)->time_s(); }

  /// Stream-ordered: valid on `queue` from here on. Contents are undefined. Running out of memory
  /// stops the run with a SystemError that names the device and the bytes.
  virtual Block* allocate(Queue queue, std::int64_t bytes) = 0;
  /// The block may be used again once `queue` has got here.
  virtual void release(Queue queue, Block* block) = 0;

  /// Makes the work since `begin` last until `part` of duration_s has passed: waits on a wall
  /// clock, sets the time on a virtual one.
  virtual void pace(Queue queue, const Event& begin, double duration_s, double part = 1) = 0;

  /// Copies between host memory and a block, and waits for it. For loading and reading weights.
  virtual void upload(Tensor to, const void* from, std::int64_t bytes) = 0;
  virtual void download(void* to, Tensor from, std::int64_t bytes) = 0;

  /// Arithmetic on the compute queue.
  virtual Math& math() = 0;
  /// Waits until everything issued so far has run. Throws what stopped the run.
  virtual void finish() = 0;

  /// Does the first use of an arithmetic op stop what else runs, so that each should be tried
  /// before the run?
  virtual bool loads_on_first_use() const { return false; }

  /// Compute ops the issuing thread may be ahead, and messages a receiving end may be posted ahead.
  virtual int issue_ahead() const = 0;
  virtual int receive_ahead() const = 0;
  /// Peak of the memory really taken from the allocator since the start, bytes; -1: unknown.
  virtual std::int64_t allocator_peak_bytes() = 0;
};

}  // namespace penstock
