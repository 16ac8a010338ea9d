// SPDX-License-Identifier: Apache-2.0
// Every point gets one row, whatever becomes of the processes that evaluate it.
#include "base/child_process.hpp"
#include "tests/sweep/echo.hpp"

#include <gtest/gtest.h>

#include <semaphore.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <set>
#include <stdexcept>

namespace penstock::workers_test {
namespace {

/// Memory that this process shares with all it forks, zeroed.
template <class T>
class Shared {
 public:
  Shared()
      : at_(static_cast<T*>(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { ::munmap(at_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return at_; }

 private:
  T* at_;
};

struct Counter {
  std::atomic<int> calls;
};

using Rows = std::map<std::uint64_t, Row>;

Rows visited(const Evaluate& evaluate, std::uint64_t n, const WorkerOptions& options,
             const std::function<void(const Row&)>& look = {}) {
  Rows rows;
  visit(
      evaluate, echo_points(n),
      [&](Row&& row) {
        if (look) look(row);
        const std::uint64_t number = row.point;
        EXPECT_TRUE(rows.emplace(number, std::move(row)).second) << number << " came twice";
      },
      options);
  return rows;
}

/// All n, as echo_of() makes them, but for these.
void expect_all(const Rows& rows, std::uint64_t n, const std::set<std::uint64_t>& but = {}) {
  EXPECT_EQ(rows.size(), n);
  auto next = echo_points(n);
  while (const auto point = next()) {
    const auto found = rows.find(point->number);
    ASSERT_NE(found, rows.end()) << point->number;
    if (!but.contains(point->number)) {
      EXPECT_EQ(encode(found->second), encode(echo_of(*point)));
    }
  }
}

void expect_failed(const Rows& rows, std::uint64_t number, const std::string& why) {
  const Row& row = rows.at(number);
  EXPECT_EQ(row.status, Row::Status::failed);
  EXPECT_EQ(row.why, why);
  EXPECT_NE(row.numbers[0], row.numbers[0]) << "a failed row has no numbers";
}

/// Ends this process as a crash does, also under a sanitizer.
void crash(int signal) {
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

TEST(Workers, GiveEveryPointOneRow) {
  for (const int jobs : {1, 2, 7}) expect_all(visited(echo_of, 5000, {.jobs = jobs}), 5000);
}

TEST(Workers, AreContentWithNothingToDo) {
  EXPECT_TRUE(visited(echo_of, 0, {.jobs = 2}).empty());
  expect_all(visited(echo_of, 1, {.jobs = 4}), 1);
}

TEST(Workers, HandOutBigPointsToo) {
  const std::string big(300000, 'x');
  std::uint64_t number = 0, rows = 0;
  visit(
      echo_of,
      [&]() -> std::optional<Point> {
        if (number == 40) return std::nullopt;
        return Point{number++, 0, {{"key", big}}};
      },
      [&](Row&& row) { rows += row.scenario == big; }, {.jobs = 2});
  EXPECT_EQ(rows, 40U);
}

TEST(Workers, ACrashIsARowAndCostsNoOther) {
  const Evaluate evaluate = [](const Point& point) {
    if (point.number == 37) crash(SIGABRT);
    if (point.number == 38) crash(SIGSEGV);
    if (point.number == 700) ::_exit(3);
    return echo_of(point);
  };
  const Rows rows = visited(evaluate, 1000, {.jobs = 2});
  expect_all(rows, 1000, {37, 38, 700});
  expect_failed(rows, 37, "worker ended by signal 6 (Aborted)");
  expect_failed(rows, 38, "worker ended by signal 11 (Segmentation fault)");
  expect_failed(rows, 700, "worker ended with status 3");
}

TEST(Workers, ACrashThatDoesNotRepeatLeavesNoTrace) {
  struct Begun {
    std::atomic<bool> points[1000];
  };
  const Shared<Begun> begun;
  const Evaluate evaluate = [&](const Point& point) {
    if (point.number % 100 == 50 && !begun->points[point.number].exchange(true)) crash(SIGKILL);
    return echo_of(point);
  };
  expect_all(visited(evaluate, 1000, {.jobs = 2}), 1000);
}

TEST(Workers, APointThatTakesTooLongIsARow) {
  const Shared<Counter> counter;
  const Evaluate evaluate = [&](const Point& point) -> Row {
    if (point.number == 5 || point.number == 9) {
      ++counter->calls;
      for (;;) ::pause();
    }
    return echo_of(point);
  };
  const Rows rows = visited(evaluate, 30, {.jobs = 1, .point_limit_s = 3});
  expect_all(rows, 30, {5, 9});
  expect_failed(rows, 5, "took more than 3 s");
  expect_failed(rows, 9, "took more than 3 s");
  EXPECT_EQ(counter->calls, 2) << "it is not tried again";
}

TEST(Workers, WhatIsThrownIsARow) {
  const Evaluate evaluate = [](const Point& point) -> Row {
    if (point.number == 1) throw std::runtime_error("no such thing");
    return echo_of(point);
  };
  const Rows rows = visited(evaluate, 4, {.jobs = 1, .point_limit_s = 100});
  expect_all(rows, 4, {1});
  expect_failed(rows, 1, "no such thing");
}

TEST(Workers, KilledFromOutsideTheyAreReplaced) {
  const Evaluate evaluate = [](const Point& point) {
    Row row = echo_of(point);
    row.why = std::to_string(::getpid());
    return row;
  };
  std::set<pid_t> killed;
  Rows rows = visited(evaluate, 3000, {.jobs = 2}, [&](const Row& row) {
    const pid_t worker = std::stoi(row.why);
    if (killed.size() < 8 && row.point % 50 == 0 && killed.insert(worker).second)
      ::kill(worker, SIGKILL);
  });
  for (auto& [number, row] : rows) row.why.clear();
  expect_all(rows, 3000);
  EXPECT_GE(killed.size(), 2U);
}

TEST(Workers, AnIdleOneGetsWhatABusyOneHasNotBegun) {
  struct Barrier {
    sem_t others;
  };
  constexpr int kPoints = 200;
  const Shared<Barrier> barrier;
  ::sem_init(&barrier->others, 1, 0);
  const Evaluate evaluate = [&](const Point& point) {
    if (point.number != 0) ::sem_post(&barrier->others);
    for (int n = 1; point.number == 0 && n < kPoints; ++n) ::sem_wait(&barrier->others);
    return echo_of(point);
  };
  // Whoever has point 0 in hand finishes it last, though it was handed others behind it.
  expect_all(visited(evaluate, kPoints, {.jobs = 2, .point_limit_s = 60}), kPoints);
}

TEST(Workers, GetNoNewPointsWhileTooManyRowsWaitForOne) {
  constexpr std::uint64_t kMost = 50, kAll = 2000;
  const Shared<sem_t> others_are_there;
  ::sem_init(others_are_there.operator->(), 1, 0);
  std::uint64_t handed = 0, handed_before_first = 0;
  auto all = echo_points(kAll);
  Rows rows;
  visit(
      [&](const Point& point) {
        if (point.number == 0) ::sem_wait(others_are_there.operator->());
        return echo_of(point);
      },
      [&] {
        ++handed;
        return all();
      },
      [&](Row&& row) {
        if (row.point == 0) handed_before_first = handed;
        const std::uint64_t number = row.point;
        rows.emplace(number, std::move(row));
        if (rows.size() == kMost - 1) ::sem_post(others_are_there.operator->());
      },
      {.jobs = 2, .full = [&] { return handed >= kMost && !rows.contains(0); }});
  EXPECT_EQ(handed_before_first, kMost);
  expect_all(rows, kAll);
}

TEST(Workers, StoppedTheyFinishWhatTheyHaveBegunAndNoMore) {
  std::atomic<bool> stop = false;
  std::set<std::uint64_t> seen;
  auto next = echo_points(100000);
  std::uint64_t taken = 0;
  visit(echo_of, next,
        [&](Row&& row) {
          EXPECT_TRUE(seen.insert(row.point).second);
          if (++taken == 50) stop = true;
        },
        {.jobs = 2, .stop = &stop});
  EXPECT_GE(seen.size(), 50U);
  EXPECT_LT(seen.size(), 100000U);
  // What has no row yet is visited by the next sweep: together they are all.
  auto rest = echo_points(100000);
  visit(
      echo_of,
      [&] {
        auto point = rest();
        while (point && seen.contains(point->number)) point = rest();
        return point;
      },
      [&](Row&& row) { EXPECT_TRUE(seen.insert(row.point).second); }, {.jobs = 2});
  EXPECT_EQ(seen.size(), 100000U);
}

TEST(Workers, WhatTheSinkThrowsEndsThemAll) {
  const auto full = [](Row&&) { throw SystemError("no space left on device"); };
  EXPECT_THROW(visit(echo_of, echo_points(1000), full, {.jobs = 2}), SystemError);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
  EXPECT_EQ(errno, ECHILD);
}

TEST(Workers, EndWithTheirParent) {
  struct Places {
    sem_t there;
    std::atomic<pid_t> worker, child;
  };
  const Shared<Places> places;
  ::sem_init(&places->there, 1, 0);
  // Orphans become children of this process, so that it can wait for their end.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const Evaluate evaluate = [&](const Point& point) -> Row {
      places->worker = ::getpid();
      run_in_child("SimGrid", [&]() -> std::string {
        places->child = ::getpid();
        ::sem_post(&places->there);
        for (;;) ::pause();
      });
      return echo_of(point);
    };
    visit(evaluate, echo_points(1), [](Row&&) {}, {.jobs = 2});
    ::_exit(0);
  }
  ::sem_wait(&places->there);
  ::kill(parent, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFSIGNALED(status));
  while (::waitpid(-1, nullptr, 0) > 0) continue;
  EXPECT_EQ(errno, ECHILD);
  for (const pid_t pid : {places->worker.load(), places->child.load()}) {
    EXPECT_EQ(::kill(pid, 0), -1) << pid << " is still there";
    EXPECT_EQ(errno, ESRCH);
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace penstock::workers_test
