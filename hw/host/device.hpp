// SPDX-License-Identifier: Apache-2.0
// A device of the host backend: a thread computes, each end of a channel has a thread of its own.
//
// With a virtual clock every queue carries a logical time: an op moves it on by its stated
// duration, an event or a message brings it forward. The work, the threads and the messages are as
// real as with the wall clock.
#pragma once

#include "base/clock.hpp"
#include "hw/backend.hpp"
#include "hw/host/math.hpp"
#include "hw/host/queue.hpp"

#include <map>

namespace penstock {

/// Seconds since the run's start.
class HostClock {
 public:
  explicit HostClock(bool logical) : logical_(logical) {}
  bool logical() const { return logical_; }
  /// Makes now 0, on a steady clock that is `offset_s` behind rank 0's.
  void start_at(double steady_s) { zero_s_ = steady_s; }
  double wall_s() const { return steady_s() - zero_s_; }
  /// Now, as work on this queue sees it.
  double now_s(const HostQueue& queue) const { return logical_ ? queue.time_s : wall_s(); }
  /// Returns at this wall time, precise to some microseconds, or when the run stops.
  void sleep_until(double wall_s, const RunControl& control) const;

 private:
  bool logical_;
  double zero_s_ = 0;
};

class HostEvent : public EventState {
 public:
  explicit HostEvent(RunControl& control) : control_(control) {}
  void fire(double time_s);
  double time_s() override;
  bool fired() override;

 private:
  RunControl& control_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool fired_ = false;
  double time_s_ = 0;
};

/// Blocks that are used again, their memory apart: fresh pages cost as much as an op. Counts what
/// is in use.
class HostPool {
 public:
  ~HostPool();
  /// A block without memory yet.
  Block* announce(std::int64_t bytes);
  /// Gives it memory; false when there is none.
  bool fill(Block* block);
  void give_back(Block* block);
  std::int64_t peak_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> spare_;  // of blocks_
  std::map<std::int64_t, std::vector<void*>> free_;
  std::int64_t in_use_ = 0, peak_ = 0;
};

class HostDevice : public Device {
 public:
  /// `threads`: its queues have threads; otherwise who issues work does it.
  HostDevice(int number, RunControl& control, const HostClock& clock, bool threads = true);
  ~HostDevice() override;

  Event record(Queue queue) override;
  void wait(Queue queue, const Event& event) override;
  void wait_for(Queue queue) override;
  Block* allocate(Queue queue, std::int64_t bytes) override;
  void release(Queue queue, Block* block) override;
  void pace(Queue queue, const Event& begin, double duration_s, double part) override;
  void upload(Tensor to, const void* from, std::int64_t bytes) override;
  void download(void* to, Tensor from, std::int64_t bytes) override;
  Math& math() override { return math_; }
  void finish() override;
  int issue_ahead() const override { return 8; }
  int receive_ahead() const override { return 1 << 30; }
  std::int64_t allocator_peak_bytes() override { return pool_.peak_bytes(); }

  // For the ends of channels:
  Queue add_queue(std::function<bool()> idle = {});
  /// Ends the queues' threads; what is still waiting there runs first, unless the run was stopped.
  void close() { queues_.clear(); }
  HostQueue& queue(Queue number) { return *queues_[static_cast<std::size_t>(number)]; }
  RunControl& control() { return control_; }
  const HostClock& clock() const { return clock_; }
  /// Brings the queue forward to the event; for closures that run on `queue`.
  double wait_here(HostQueue& queue, const Event& event) const;

 private:
  /// Returns when the compute queue has run `work` or has dropped it, so `work` may use what its
  /// caller has. Throws SystemError when the run was stopped.
  template <class Work>
  void run_here(Work work);

  int number_;
  bool threads_;
  RunControl& control_;
  const HostClock& clock_;
  HostPool pool_;
  std::vector<std::unique_ptr<HostQueue>> queues_;
  HostMath math_;
};

}  // namespace penstock
