// SPDX-License-Identifier: Apache-2.0
#include "sweep/worker.hpp"

#include "base/child_process.hpp"
#include "base/error.hpp"
#include "base/say.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <deque>
#include <new>
#include <utility>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

/// So often a busy worker sends what it has, and looks at what it is told.
constexpr auto kRhythm = std::chrono::milliseconds(1);
/// So many bytes of rows are sent at once.
constexpr std::size_t kFull = 60000;
/// Who has no more points than this gets them one by one, as they take long: no row waits for the
/// end of the next.
constexpr std::size_t kFew = 4;

/// In the worker.
class Worker {
 public:
  Worker(const Evaluate& evaluate, double point_limit_s, MessageStream& coordinator,
         SharedNumber::Number& in_hand)
      : evaluate_(evaluate),
        point_limit_s_(point_limit_s),
        coordinator_(coordinator),
        in_hand_(in_hand) {}

  void answer_points() {
    while (listen()) {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      in_hand_ = task.point.number;
      const Row row = answer(task);
      in_hand_ = kNoPoint;
      coordinator_.add_message(MessageKind::row, encode(row));
    }
  }

 private:
  /// There is something to do. Waits for it; false: there is nothing more.
  bool listen() {
    const bool busy = tasks_.size() > kFew && coordinator_.unsent() < kFull;
    if (busy && Clock::now() - listened_ < kRhythm) return true;
    if (!coordinator_.send_all()) return false;
    do {
      pollfd ready{coordinator_.in(), POLLIN, 0};
      if (tasks_.empty()) ::poll(&ready, 1, -1);
      if (!coordinator_.receive()) return false;
      while (const auto message = coordinator_.next_message()) {
        if (message->kind == MessageKind::stop) return false;
        obey(*message);
      }
    } while (tasks_.empty());
    listened_ = Clock::now();
    return true;
  }

  void obey(const Message& message) {
    if (message.kind == MessageKind::point) tasks_.push_back(decode_task(message.bytes));
    if (message.kind != MessageKind::give_up) return;
    const std::uint64_t number = decode_number(message.bytes);
    std::erase_if(tasks_, [&](const Task& task) { return task.point.number == number; });
  }

  Row answer(const Task& task) {
    if (task.alone) return answer_in_child(task.point);
    if (point_limit_s_ <= 0) return caught(task.point);
    limit_time(point_limit_s_);
    Row row = caught(task.point);
    limit_time(0);
    return row;
  }

  /// In a process of its own.
  Row answer_in_child(const Point& point) {
    coordinator_.send_all();  // what is finished need not wait; listen() sees when that fails
    const ChildResult child = run_in_child(
        "a point", [&] { return encode(caught(point)); }, point_limit_s_);
    if (child.answer) return decode(*child.answer);
    return failed_row(point.number, why_failed(child.status, point_limit_s_));
  }

  Row caught(const Point& point) const {
    try {
      return evaluate_(point);
    } catch (const std::exception& error) {
      return failed_row(point.number, what_of(error));
    }
  }

  const Evaluate& evaluate_;
  double point_limit_s_;
  MessageStream& coordinator_;
  SharedNumber::Number& in_hand_;
  std::deque<Task> tasks_;
  Clock::time_point listened_;
};

/// Ctrl-C goes to all processes of a terminal, and launchers send SIGTERM to theirs: what a worker
/// has begun is finished first, and it ends when it is told to.
void leave_stopping_to_parent() {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
}

/// Where memory runs out, a worker goes first: that costs a point.
void go_first() {
  if (FILE* file = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("500", file);
    std::fclose(file);
  }
}

/// Results and the pipes of other workers are the parent's.
void close_all_but(int a, int b) {
  const auto low = static_cast<unsigned>(std::min(a, b)),
             high = static_cast<unsigned>(std::max(a, b));
  if (low > 3) ::close_range(3, low - 1, 0);
  if (high > low + 1) ::close_range(low + 1, high - 1, 0);
  ::close_range(high + 1, ~0U, 0);
}

struct Pipe {
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError::from_errno("open a pipe for", "a worker");
  }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int take_reading() { return std::exchange(ends[0], -1); }
  int take_writing() { return std::exchange(ends[1], -1); }
  int ends[2] = {-1, -1};
};

/// The whole life of a worker; returns its exit status.
int live(MessageStream& coordinator, const Evaluate& evaluate, double point_limit_s,
         SharedNumber::Number& in_hand) {
  try {
    go_first();
    Worker(evaluate, point_limit_s, coordinator, in_hand).answer_points();
    return 0;
  } catch (const std::exception& error) {
    say("penstock: a worker ended: {}\n", what_of(error));
    return 1;
  }
}

}  // namespace

SharedNumber::SharedNumber()
    : memory_(::mmap(nullptr, sizeof(Number), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0)) {
  if (memory_ == MAP_FAILED) throw SystemError::from_errno("share", "memory");
  new (memory_) Number(kNoPoint);
}

SharedNumber::~SharedNumber() { ::munmap(memory_, sizeof(Number)); }

WorkerProcess::WorkerProcess(const Evaluate& evaluate, double point_limit_s) {
  Pipe points, rows;
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    end_with_parent(parent);
    leave_stopping_to_parent();
    close_all_but(points.ends[0], rows.ends[1]);
    MessageStream coordinator(points.ends[0], rows.ends[1]);
    ::_exit(live(coordinator, evaluate, point_limit_s, in_hand_.get()));
  }
  if (pid_ < 0) throw SystemError::from_errno("start", "a worker process");
  stream_.emplace(rows.take_reading(), points.take_writing());
  kept_open_ = points.take_reading();
}

WorkerProcess::~WorkerProcess() {
  ::close(kept_open_);
  kill();
  wait();
}

void WorkerProcess::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

int WorkerProcess::wait() {
  int status = 0;
  while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  pid_ = -1;
  return status;
}

Row failed_row(std::uint64_t point, const std::string& why) {
  Row row;
  row.point = point;
  row.status = Row::Status::failed;
  row.why = why;
  return row;
}

std::string why_failed(int status, double point_limit_s) {
  if (out_of_time(status)) return fmt::format("took more than {:g} s", point_limit_s);
  return "worker ended " + how_it_ended(status);
}

}  // namespace penstock
