// SPDX-License-Identifier: Apache-2.0
// One worker process: answers the points that it is handed, in their order, one at a time.
//
// It notes the point that it has in hand in memory that it shares with who started it, so that
// after a crash the guilty point is known, though many had been handed over.
#pragma once

#include "sweep/messages.hpp"
#include "sweep/workers.hpp"

#include <sys/types.h>

namespace penstock {

inline constexpr std::uint64_t kNoPoint = UINT64_MAX;

/// One number that this process and those forked from it share.
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

/// A worker as who started it sees it: a fork of this process that has neither its files nor the
/// pipes of the others, and ends with it.
class WorkerProcess {
 public:
  /// Throws SystemError when there can be none.
  WorkerProcess(const Evaluate& evaluate, double point_limit_s);
  /// Ends it.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  MessageStream& stream() { return *stream_; }
  std::uint64_t point_in_hand() const { return in_hand_.get(); }
  void kill();
  /// Until it has ended; returns how, as waitpid() says it.
  int wait();

 private:
  SharedNumber in_hand_;
  pid_t pid_ = -1;
  /// The worker's end of the pipe of points, open here too: a write to one that has crashed is no
  /// SIGPIPE.
  int kept_open_ = -1;
  std::optional<MessageStream> stream_;
};

/// Of a point that could not be evaluated.
Row failed_row(std::uint64_t point, const std::string& why);

/// "took more than 60 s", "worker ended by signal 11 (Segmentation fault)".
std::string why_failed(int status, double point_limit_s);

}  // namespace penstock
