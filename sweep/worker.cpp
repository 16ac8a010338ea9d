#include "sweep/worker.hpp"

#include "base/child_process.hpp"
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
    const std::uint64_t number = task.point.number;
    try {
      const double limit_s = team_.point_limit_s;
      if (task.alone)
        return alone(
            number, [&] { return whole(task.point); }, limit_s, 1);
      if (limit_s > 0) limit_time(limit_s);
      const Evaluated evaluated = team_.evaluate(task.point);
      const double left_s = limit_s > 0 ? limit_time(0) : 0;
      if (!evaluated.rest) return evaluated.row;
      return alone(number, evaluated.rest, left_s, 2);
    } catch (const std::exception& error) {
      limit_time(0);
      return failed_row(number, error.what());
    }
  }

  Row whole(const Point& point) const {
    Evaluated evaluated = team_.evaluate(point);
    return evaluated.rest ? evaluated.rest() : std::move(evaluated.row);
  }

  /// Evaluated in a process of its own, and when that crashes in another, up to so many.
  Row alone(std::uint64_t number, const std::function<Row()>& evaluate, double limit_s, int tries) {
    rank_0_.send_all();  // what is finished need not wait; listen() sees when that fails
    ChildResult child;
    for (; tries > 0 && !child.answer && !child.out_of_time(); --tries)
      child = run_in_child(
          "a point", [&] { return encode(caught(number, evaluate)); }, limit_s);
    if (child.answer) return decode(*child.answer);
    return failed_row(number, why_failed(child.status, team_.point_limit_s));
  }

  static Row caught(std::uint64_t number, const std::function<Row()>& evaluate) {
    try {
      return evaluate();
    } catch (const std::exception& error) {
      return failed_row(number, error.what());
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
    say("penstock: a worker ended: {}\n", error.what());
    return 1;
  }
  return 0;
}

Row failed_row(std::uint64_t point, const std::string& why) {
  Row row;
  row.point = point;
  row.status = Row::Status::failed;
  row.why = why;
  row.measures.fill(std::nan(""));
  return row;
}

std::string why_failed(int status, double point_limit_s) {
  if (out_of_time(status)) return fmt::format("took more than {:g} s", point_limit_s);
  return "worker ended " + how_it_ended(status);
}

}  // namespace penstock
