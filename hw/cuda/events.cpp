// SPDX-License-Identifier: Apache-2.0
#include "hw/cuda/events.hpp"

#include "hw/cuda/mailbox.hpp"

namespace penstock::cuda {

namespace {
constexpr double kRebaseEvery_s = 1;
constexpr int kSpins = 64;  // before a wait starts to sleep between its looks
constexpr std::chrono::microseconds kNap{20};
}  // namespace

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t EventPool::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  return make();
}

cudaEvent_t EventPool::make() const {
  use_gpu(gpu_);
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "create an event");
  return event;
}

void EventPool::reserve(std::size_t count) {
  const std::lock_guard lock(mutex_);
  while (free_.size() < count) free_.push_back(make());
}

void EventPool::give_back(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

Stamp::Stamp(std::shared_ptr<EventPool> pool, StampPtr base)
    : pool_(std::move(pool)), base_(std::move(base)), handle_(pool_->take_event()) {}

Stamp::~Stamp() { pool_->give_back(handle_); }

void Stamp::record(cudaStream_t stream) {
  check(cudaEventRecord(handle_, stream), "record an event");
}

void Stamp::set_time(double time_s) {
  const std::lock_guard lock(mutex_);
  time_s_ = time_s;
}

bool Stamp::fired() {
  if (fired_.load(std::memory_order_acquire)) return true;
  const cudaError_t state = cudaEventQuery(handle_);
  if (state == cudaErrorNotReady) return cudaGetLastError(), false;
  check(state, "run the work issued so far");
  fired_.store(true, std::memory_order_release);
  return true;
}

double Stamp::time_s() {
  const std::lock_guard lock(mutex_);
  if (time_s_) return *time_s_;
  invariant(base_ != nullptr, "an event without a base has no time");
  float distance_ms = 0;
  check(cudaEventElapsedTime(&distance_ms, base_->handle_, handle_), "read an event's time");
  time_s_ = base_->time_s() + static_cast<double>(distance_ms) * 1e-3;
  base_ = nullptr;
  return *time_s_;
}

EventSource::EventSource(std::shared_ptr<EventPool> pool, RunControl& control)
    : pool_(std::move(pool)), control_(control), chain_(kRebaseEvery_s) {}

void EventSource::restart(const StampPtr& root) { chain_.restart(root, steady_s()); }

StampPtr EventSource::record(cudaStream_t stream) {
  const double now = steady_s();
  auto stamp = std::make_shared<Stamp>(pool_, chain_.base(now));
  stamp->record(stream);
  chain_.recorded(stamp, now);
  return stamp;
}

void CudaEvent::bind(StampPtr stamp) {
  {
    const std::lock_guard lock(mutex_);
    stamp_ = std::move(stamp);
  }
  bound_.notify_all();
}

StampPtr CudaEvent::stamp() {
  std::unique_lock lock(mutex_);
  while (!bound_.wait_for(lock, kLookAtControl, [&] { return stamp_ != nullptr; })) {
    control_.throw_if_stopped();
  }
  return stamp_;
}

/// For the watchdog.
void CudaEvent::saw_it() {
  if (!seen_.exchange(true)) control_.progress();
}

double CudaEvent::time_s() {
  const StampPtr recorded = stamp();
  wait_until_fired(*recorded, control_);
  saw_it();
  return recorded->time_s();
}

bool CudaEvent::fired() {
  StampPtr recorded;
  {
    const std::lock_guard lock(mutex_);
    recorded = stamp_;
  }
  try {
    if (!recorded || !recorded->fired()) return false;
  } catch (const SystemError&) {  // the watchdog asks, too; whoever waits will say it
    return false;
  }
  saw_it();
  return true;
}

StampPtr stamp_of(const Event& event) {
  auto* own = dynamic_cast<CudaEvent*>(event.get());
  invariant(own != nullptr, "an event of another backend");
  return own->stamp();
}

void wait_on(cudaStream_t stream, Stamp& stamp) {
  check(cudaStreamWaitEvent(stream, stamp.handle(), 0), "wait for an event");
}

void wait_until_fired(Stamp& stamp, const RunControl& control) {
  for (int look = 0; !stamp.fired(); ++look) {
    control.throw_if_stopped();
    if (look >= kSpins) std::this_thread::sleep_for(kNap);
  }
}

}  // namespace penstock::cuda
