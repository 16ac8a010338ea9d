// A sweep over points whose rows are known, for tests of ranks: prints the rows on rank 0.
//
//     ranks_program POINTS [meet PIPE] [late PIPE] [kill FILE]
//
// meet: rank 0 evaluates nothing before another rank has begun: PIPE is a named pipe, and others
// write a byte at their first point. Nobody takes it out, and rank 0 keeps the pipe open, so that
// it is seen whenever a worker of rank 0 looks, also when who wrote it has been killed.
// late: the same, but rank 0 evaluates the first half of the points before it waits.
// kill: the worker of a rank other than 0 that comes to its first point first kills its rank. FILE
// says that it has done so.
#include "tests/sweep/echo.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace {

using namespace penstock;

int open_to_read(const std::string& pipe) { return ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK); }

bool wait_for_others(const std::string& pipe) {
  pollfd byte{open_to_read(pipe), POLLIN, 0};
  while (::poll(&byte, 1, -1) < 0) {
    if (errno != EINTR) std::abort();
  }
  return true;
}

/// Without rank 0 nobody reads, and nobody needs to.
bool tell_rank_0(const std::string& pipe) {
  const int kept = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK);
  return kept >= 0 && ::write(kept, "x", 1) == 1;
}

void meet_others(const std::string& pipe, int rank) {
  static const bool kMet = rank == 0 ? wait_for_others(pipe) : tell_rank_0(pipe);
  (void)kMet;
}

void kill_rank_once(const std::string& file) {
  if (::open(file.c_str(), O_CREAT | O_EXCL, 0600) < 0) return;  // it was done
  ::kill(::getppid(), SIGKILL);
  for (;;) ::pause();
}

void print(const Row& row) {
  fmt::print("{} {} {} {}\n", row.point, static_cast<int>(row.status), row.scenario,
             row.numbers[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t points = std::strtoull(argv[1], nullptr, 10);
  std::map<std::string, std::string> given;
  for (int i = 2; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  WorkerOptions options{.jobs = 2};
  options.group = group_settings(environment, 30);
  const int rank = options.group ? options.group->identity.rank : 0;
  ::signal(SIGPIPE, SIG_IGN);
  for (const char* how : {"meet", "late"})
    if (rank == 0 && given.contains(how)) open_to_read(given[how]);  // and keep it
  const Evaluate evaluate = [&](const Point& point) {
    if (given.contains("meet")) meet_others(given["meet"], rank);
    if (given.contains("late") && (rank > 0 || point.number >= points / 2))
      meet_others(given["late"], rank);
    if (given.contains("kill") && rank > 0) kill_rank_once(given["kill"]);
    return echo_of(point);
  };
  if (works_for_rank_0(options)) {
    work_for_rank_0([&](const std::string&) { return evaluate; }, [] { return false; }, options);
  } else {
    visit(evaluate, echo_points(points), print, options);
  }
  return 0;
}
