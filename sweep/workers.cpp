// SPDX-License-Identifier: Apache-2.0
#include "sweep/workers.hpp"

#include "base/child_process.hpp"
#include "base/clock.hpp"
#include "sweep/bytes.hpp"
#include "sweep/output.hpp"
#include "sweep/worker.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace penstock {
namespace {

/// A worker holds the points of so many seconds, within limits: enough that messages cost nothing.
constexpr double kHeldS = 0.02;
constexpr std::size_t kLeast = 2, kMost = 4096;
/// Crashes of a worker at the same point; from the second on it is in a child, so that a third
/// means that somebody kills workers.
constexpr int kCrashes = 3;
/// Workers that end without a point in hand, one after the other without any row in between.
constexpr int kIdleDeaths = 50;
constexpr int kLookMs = 100;  // at the stop flag, which a signal may set just before poll()

struct Member {
  Member(const Evaluate& evaluate, double point_limit_s) : process(evaluate, point_limit_s) {}

  WorkerProcess process;
  std::deque<std::uint64_t> holds;  ///< points that are handed out to it, in their order
  std::size_t target = kLeast;      ///< how many it is to hold
  std::size_t rows = 0;             ///< since it was last handed some
  double handed_s = steady_s();
};

/// A point that is handed out, or is to be again.
struct Open {
  Point point;
  Member* holder = nullptr;
  int crashes = 0;
};

/// Hands out points, takes rows, and knows who holds what.
class Coordinator {
 public:
  Coordinator(const Evaluate& evaluate, const NextPoint& next, const TakeRow& take,
              const WorkerOptions& options)
      : evaluate_(evaluate), next_(next), take_(take), options_(options) {}

  void serve_jobs(int jobs) {
    for (int i = 0; i < jobs && start_worker(); ++i) continue;
    wake_idle();
    while (!done()) {
      serve_workers();
      if (options_.tick) options_.tick();
      if (options_.stop != nullptr && *options_.stop && !stopping_) stop();
    }
  }

 private:
  bool done() const { return stopping_ ? workers_.empty() : no_more_ && points_.empty(); }
  bool full() const { return options_.full && options_.full(); }

  void stop() {
    stopping_ = true;
    for (const auto& worker : workers_) {
      worker->process.stream().add_message(MessageKind::stop, "");
      worker->process.stream().send();
    }
  }

  /// False: there can be no more, and those that are there will do.
  bool start_worker() {
    try {
      workers_.push_back(std::make_unique<Member>(evaluate_, options_.point_limit_s));
    } catch (const SystemError&) {
      if (workers_.empty()) throw;
      return false;
    }
    return true;
  }

  void serve_workers() {
    std::vector<pollfd> ready;
    std::vector<Member*> asked;
    for (const auto& worker : workers_) {
      MessageStream& stream = worker->process.stream();
      ready.push_back({stream.in(), POLLIN, 0});
      asked.push_back(worker.get());
      if (stream.unsent() == 0) continue;
      ready.push_back({stream.out(), POLLOUT, 0});
      asked.push_back(worker.get());
    }
    const bool looks = options_.stop != nullptr || options_.tick;
    if (::poll(ready.data(), ready.size(), looks ? kLookMs : -1) <= 0) return;
    for (std::size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      if (ready[i].events == POLLOUT)
        asked[i]->process.stream().send();
      else
        serve(*asked[i]);
      // Two entries of one worker stand together: the second is not of one that has just gone.
      if (i + 1 < ready.size() && asked[i + 1] == asked[i]) ++i;
    }
  }

  void serve(Member& worker) {
    const bool open = worker.process.stream().receive();
    take_rows(worker);
    if (!open) return replace(worker);
    fill(worker);
    worker.process.stream().send();
    if (held_back_ && !full()) {
      held_back_ = false;
      wake_idle();
    }
  }

  /// One that says what is none of our messages has gone wrong, and is replaced.
  void take_rows(Member& worker) {
    try {
      while (const auto message = worker.process.stream().next_message())
        if (message->kind == MessageKind::row) take_row(worker, decode(message->bytes));
    } catch (const Garbled&) {
      worker.process.kill();
    }
  }

  // ---- points

  /// Hands over what it needs to have enough for a while, given how fast it has been.
  void fill(Member& worker) {
    if (stopping_ || worker.holds.size() * 2 > worker.target) return;
    const double now_s = steady_s();
    const double rows_per_s =
        static_cast<double>(worker.rows) / std::max(now_s - worker.handed_s, 1e-6);
    const auto wanted = static_cast<std::size_t>(rows_per_s * kHeldS);
    worker.target = std::clamp(std::min(wanted, worker.target * 4), kLeast, kMost);
    worker.rows = 0;
    worker.handed_s = now_s;
    while (worker.holds.size() < worker.target) {
      Open* const open = next_open();
      if (open == nullptr) break;
      give(worker, *open);
    }
    if (worker.holds.empty()) share_with(worker);
  }

  void give(Member& worker, Open& open) {
    open.holder = &worker;
    worker.holds.push_back(open.point.number);
    worker.process.stream().add_message(MessageKind::point,
                                        encode(Task{open.point, open.crashes > 0}));
  }

  /// Null: all are handed out, or no more are wanted now.
  Open* next_open() {
    while (!again_.empty()) {
      const auto found = points_.find(again_.front());
      again_.pop_front();
      if (found != points_.end() && found->second.holder == nullptr) return &found->second;
    }
    if (no_more_) return nullptr;
    held_back_ = full();
    if (held_back_) return nullptr;
    std::optional<Point> point = next_();
    no_more_ = !point;
    if (no_more_) return nullptr;
    const std::uint64_t number = point->number;
    return &points_.insert_or_assign(number, Open{std::move(*point), nullptr, 0}).first->second;
  }

  /// Half of what the one who holds most has not begun.
  void share_with(Member& idle) {
    const auto most = std::ranges::max_element(
        workers_, {}, [](const auto& worker) { return worker->holds.size(); });
    if (most == workers_.end() || (*most)->holds.size() < 2) return;
    Member& other = **most;
    for (std::size_t n = other.holds.size() / 2; n > 0; --n) {
      const std::uint64_t number = other.holds.back();
      other.holds.pop_back();
      other.process.stream().add_message(MessageKind::give_up, encode(number));
      give(idle, points_.at(number));
    }
    other.process.stream().send();
  }

  void wake_idle() {
    for (const auto& worker : workers_) {
      if (!worker->holds.empty()) continue;
      fill(*worker);
      worker->process.stream().send();
    }
  }

  void take_row(Member& worker, Row row) {
    idle_deaths_ = 0;
    ++worker.rows;
    const auto found = points_.find(row.point);
    if (found == points_.end()) return;  // somebody else was faster
    finish(found, std::move(row));
  }

  void finish(std::unordered_map<std::uint64_t, Open>::iterator open, Row row) {
    if (Member* const holder = open->second.holder) {
      // The first, as a rule.
      const auto held = std::ranges::find(holder->holds, open->first);
      if (held != holder->holds.end()) holder->holds.erase(held);
    }
    points_.erase(open);
    take_(std::move(row));
  }

  // ---- ends

  /// It has ended, and all its rows have been read: its points go to others.
  void replace(Member& ended) {
    const auto at = std::ranges::find(workers_, &ended, &std::unique_ptr<Member>::get);
    const std::unique_ptr<Member> worker = std::move(*at);
    workers_.erase(at);
    const int status = worker->process.wait();
    const std::uint64_t in_hand = worker->process.point_in_hand();
    for (const std::uint64_t number : worker->holds) {
      points_.at(number).holder = nullptr;
      if (number != in_hand) again_.push_back(number);
    }
    if (stopping_) return;
    if (in_hand == kNoPoint && ++idle_deaths_ > kIdleDeaths)
      throw SystemError("workers end before they are given a point: the last " +
                        how_it_ended(status));
    const auto guilty = points_.find(in_hand);
    if (guilty != points_.end()) crashed(guilty, status);
    start_worker();
    wake_idle();
  }

  void crashed(std::unordered_map<std::uint64_t, Open>::iterator open, int status) {
    const auto& [number, point] = *open;
    const bool hopeless = out_of_time(status) || ++open->second.crashes == kCrashes;
    if (hopeless)
      return finish(open, failed_row(number, why_failed(status, options_.point_limit_s)));
    if (point.holder == nullptr) again_.push_front(number);
  }

  const Evaluate& evaluate_;
  const NextPoint& next_;
  const TakeRow& take_;
  const WorkerOptions& options_;
  std::vector<std::unique_ptr<Member>> workers_;

  std::unordered_map<std::uint64_t, Open> points_;  ///< by number
  std::deque<std::uint64_t> again_;                 ///< to be handed out before new ones
  bool held_back_ = false;  ///< somebody has got fewer points than there are
  bool no_more_ = false;
  bool stopping_ = false;
  int idle_deaths_ = 0;
};

/// Cores that this process may use.
int usable_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0
             ? CPU_COUNT(&cores)
             : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

void visit(const Evaluate& evaluate, const NextPoint& next, const TakeRow& take,
           const WorkerOptions& options) {
  allow_many_files();
  Coordinator(evaluate, next, take, options)
      .serve_jobs(options.jobs > 0 ? options.jobs : usable_cores());
}

}  // namespace penstock
