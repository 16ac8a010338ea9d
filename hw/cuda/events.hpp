// SPDX-License-Identifier: Apache-2.0
// Events with a time on the run's clock.
//
// A Stamp is a CUDA event that has been recorded; its time is measured from an earlier stamp (see
// base_chain.hpp). A CudaEvent may be handed out before it is recorded: work of a channel's end is
// issued by a thread of its own. Waits poll, so that they end when the run stops.
#pragma once

#include "base/clock.hpp"
#include "hw/cuda/base_chain.hpp"
#include "hw/cuda/driver.hpp"
#include "hw/device.hpp"
#include "hw/run_control.hpp"

#include <atomic>
#include <optional>

namespace penstock::cuda {

/// CUDA events of one GPU, used again: making one costs as much as recording some.
class EventPool {
 public:
  explicit EventPool(int gpu) : gpu_(gpu) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  cudaEvent_t take_event();
  void give_back(cudaEvent_t event);
  /// Makes so many, so that none has to be made during the run.
  void reserve(std::size_t count);

 private:
  cudaEvent_t make() const;

  int gpu_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

class Stamp;
using StampPtr = std::shared_ptr<Stamp>;

class Stamp {
 public:
  /// `base` has fired; null: this one is a root, whose time is set by set_time().
  Stamp(std::shared_ptr<EventPool> pool, StampPtr base);
  ~Stamp();
  Stamp(const Stamp&) = delete;
  Stamp& operator=(const Stamp&) = delete;

  void record(cudaStream_t stream);
  void set_time(double time_s);
  cudaEvent_t handle() const { return handle_; }
  /// Has it fired? Throws SystemError when the GPU failed.
  bool fired();
  /// Seconds on the run's clock; only once it has fired.
  double time_s();

  /// Where a kernel left %globaltimer just before, in device memory; null: nowhere.
  unsigned long long* slot = nullptr;

 private:
  std::shared_ptr<EventPool> pool_;
  StampPtr base_;
  cudaEvent_t handle_;
  std::atomic<bool> fired_{false};
  std::mutex mutex_;
  std::optional<double> time_s_;
};

/// Records stamps for one device.
class EventSource {
 public:
  EventSource(std::shared_ptr<EventPool> pool, RunControl& control);
  /// Times are measured from this stamp, which has fired.
  void restart(const StampPtr& root);
  StampPtr record(cudaStream_t stream);
  RunControl& control() const { return control_; }

 private:
  std::shared_ptr<EventPool> pool_;
  RunControl& control_;
  BaseChain<StampPtr> chain_;
};

class CudaEvent : public EventState {
 public:
  explicit CudaEvent(RunControl& control) : control_(control) {}
  /// It has been recorded as this.
  void bind(StampPtr stamp);
  /// Waits until it has been recorded; throws what stopped the run.
  StampPtr stamp();
  double time_s() override;
  bool fired() override;

 private:
  void saw_it();

  RunControl& control_;
  std::mutex mutex_;
  std::condition_variable bound_;
  StampPtr stamp_;
  std::atomic<bool> seen_{false};
};

/// The stamp of an event of this backend; waits until it has been recorded.
StampPtr stamp_of(const Event& event);
/// Work issued on `stream` from now on runs after `stamp`.
void wait_on(cudaStream_t stream, Stamp& stamp);
/// Polls until it has fired; throws what stopped the run.
void wait_until_fired(Stamp& stamp, const RunControl& control);

}  // namespace penstock::cuda
