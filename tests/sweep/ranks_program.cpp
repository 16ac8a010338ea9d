// A sweep over points whose rows are known, for tests of ranks: prints the rows on rank 0.
//
//     ranks_program POINTS [meet PIPE] [kill FILE]
//
// meet: rank 0 evaluates nothing before another rank has begun: PIPE is a named pipe that rank 0's
// workers open for reading and the others' for writing, each at its first point.
// kill: the worker of a rank other than 0 that comes to its first point first kills its rank. FILE
// says that it has done so.
#include "sweep/workers.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace {

using namespace penstock;

Row row_of(const Point& point) {
  Row row;
  row.point = point.number;
  row.scenario = point.changes.at(0).value;
  row.measures.fill(1.0 / static_cast<double>(point.number + 1));
  return row;
}

void meet_others(const std::string& pipe, int rank) {
  static const int kOpened = ::open(pipe.c_str(), rank == 0 ? O_RDONLY : O_WRONLY);
  if (kOpened < 0) std::abort();
}

void kill_rank_once(const std::string& file) {
  if (::open(file.c_str(), O_CREAT | O_EXCL, 0600) < 0) return;  // it was done
  ::kill(::getppid(), SIGKILL);
  for (;;) ::pause();
}

void print(const Row& row) {
  fmt::print("{} {} {} {}\n", row.point, static_cast<int>(row.status), row.scenario,
             row.measures[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t points = std::strtoull(argv[1], nullptr, 10);
  std::map<std::string, std::string> given;
  for (int i = 2; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  WorkerOptions options{.jobs = 2};
  options.group = group_settings(environment, 30);
  const int rank = options.group ? options.group->identity.rank : 0;
  const Evaluate evaluate = [&](const Point& point) {
    if (given.contains("meet")) meet_others(given["meet"], rank);
    if (given.contains("kill") && rank > 0) kill_rank_once(given["kill"]);
    return Evaluated{row_of(point), {}};
  };
  std::uint64_t number = 0;
  const NextPoint next = [&]() -> std::optional<Point> {
    if (number == points) return std::nullopt;
    const std::string value = fmt::format("value-{}", number);
    return Point{number++, 0, {{"key", value}}};
  };
  visit(evaluate, next, print, options);
  return 0;
}
