#include "sweep/worker.hpp"

#include "base/child_process.hpp"
#include "base/error.hpp"
#include "base/say.hpp"

#include <fmt/format.h>

#include <poll.h>

#include <chrono>
#include <cmath>
#include <deque>

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

class Worker {
 public:
  Worker(const Team& team, int socket, std::atomic<std::uint64_t>& in_hand)
      : team_(team), rank_0_(socket), in_hand_(in_hand) {}

  void run(const Hello& hello) {
    rank_0_.add(Says::hello, encode(hello));
    while (listen()) {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      in_hand_ = task.point.number;
      const Row row = answer(task);
      in_hand_ = kNoPoint;
      rank_0_.add(Says::row, encode(row));
    }
  }

 private:
  /// There is something to do. Waits for it; false: there is nothing more, or rank 0 has ended.
  bool listen() {
    const bool busy = tasks_.size() > kFew && rank_0_.unsent() < kFull;
    if (busy && Clock::now() - listened_ < kRhythm) return true;
    if (!rank_0_.send_all()) return false;
    do {
      pollfd ready{rank_0_.socket(), POLLIN, 0};
      if (tasks_.empty()) ::poll(&ready, 1, -1);
      if (!rank_0_.receive()) return false;
      while (const auto message = rank_0_.next()) {
        if (message->says == Says::stop) return false;
        obey(*message);
      }
    } while (tasks_.empty());
    listened_ = Clock::now();
    return true;
  }

  void obey(const Message& message) {
    if (message.says == Says::point) tasks_.push_back(decode_task(message.bytes));
    if (message.says != Says::give_up) return;
    const std::uint64_t number = decode_number(message.bytes);
    std::erase_if(tasks_, [&](const Task& task) { return task.point.number == number; });
  }

  Row answer(const Task& task) {
    const double limit_s = team_.point_limit_s;
    if (task.alone) return alone(task.point, limit_s);
    if (limit_s > 0) limit_time(limit_s);
    Row row = caught(task.point);
    limit_time(0);
    return row;
  }

  /// Evaluated in a process of its own.
  Row alone(const Point& point, double limit_s) {
    rank_0_.send_all();  // what is finished need not wait; listen() sees when that fails
    const ChildResult child = run_in_child(
        "a point", [&] { return encode(caught(point)); }, limit_s);
    if (child.answer) return decode(*child.answer);
    return failed_row(point.number, why_failed(child.status, limit_s));
  }

  Row caught(const Point& point) const {
    try {
      return team_.evaluate(point);
    } catch (const std::exception& error) {
      return failed_row(point.number, what_of(error));
    }
  }

  const Team& team_;
  Stream rank_0_;
  std::atomic<std::uint64_t>& in_hand_;
  std::deque<Task> tasks_;
  Clock::time_point listened_;
};

}  // namespace

int work(const Team& team, const Door& door, int number, std::atomic<std::uint64_t>& in_hand) {
  const int socket = connect_to(door);
  if (socket < 0) return 0;
  try {
    Worker(team, socket, in_hand).run({door.key, team.rank, number});
  } catch (const std::exception& error) {
    say("penstock: a worker ended: {}\n", what_of(error));
    return 1;
  }
  return 0;
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
