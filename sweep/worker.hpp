// SPDX-License-Identifier: Apache-2.0
// A worker process evaluates the points that it is handed, in their order, one at a time.
//
// It notes the point that it evaluates in memory that it shares with the process that started it.
// So the guilty point is known after a crash, although several had been handed over.
#pragma once

#include "sweep/messages.hpp"
#include "sweep/workers.hpp"

#include <sys/types.h>

namespace penstock {

inline constexpr std::uint64_t kNoPoint = UINT64_MAX;

/// A number that this process and those forked from it share.
class SharedNumber {
 public:
  using Number = std::atomic<std::uint64_t>;
  SharedNumber();
  ~SharedNumber();
  SharedNumber(const SharedNumber&) = delete;
  SharedNumber& operator=(const SharedNumber&) = delete;
  Number& get() const { return *static_cast<Number*>(memory_); }

 private:
  void* memory_;
};

/// A worker, as the process that started it sees it: a fork of this process that has neither its
/// files nor the pipes of the other workers, and ends when this process ends.
class WorkerProcess {
 public:
  /// Starts a worker. Throws SystemError when no process can be started.
  WorkerProcess(const Evaluate& evaluate, double point_limit_s);
  /// Ends it.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  MessageStream& stream() { return *stream_; }
  std::uint64_t point_in_hand() const { return in_hand_.get(); }
  void kill();
  /// Waits until it has ended, and returns its status as waitpid() does.
  int wait();

 private:
  SharedNumber in_hand_;
  pid_t pid_ = -1;
  /// The worker's end of the pipe of points, which is open here, too, so that a write to a worker
  /// that has crashed raises no SIGPIPE.
  int kept_open_ = -1;
  std::optional<MessageStream> stream_;
};

/// Returns the row of a point that could not be evaluated.
Row failed_row(std::uint64_t point, const std::string& why);

/// Returns why a worker ended: "took more than 60 s", "worker ended by signal 11 (Segmentation
/// fault)".
std::string why_failed(int status, double point_limit_s);

}  // namespace penstock
