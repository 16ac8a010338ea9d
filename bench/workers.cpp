// SPDX-License-Identifier: Apache-2.0
// What handing out points costs, and what a second worker brings. Read the ratios of a run, and the
// CPU seconds beside them: on a busy machine the wall clock measures the others.
#include "sweep/workers.hpp"

#include <benchmark/benchmark.h>

#include <sys/resource.h>

namespace {

using namespace penstock;

double cpu_s() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage use{};
    ::getrusage(who, &use);
    seconds += static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
  }
  return seconds;
}

Row row_of(const Point& point) {
  Row row;
  row.point = point.number;
  row.scenario = "a scenario with a name";
  row.engine = "exact";
  row.numbers.assign(row.numbers.size(), 1.0);
  return row;
}

/// Visits so many points; the argument is the number of workers.
void sweep(benchmark::State& state, std::uint64_t points, const Evaluate& evaluate) {
  const double before_s = cpu_s();
  for (auto _ : state) {
    std::uint64_t number = 0, rows = 0;
    visit(
        evaluate,
        [&]() -> std::optional<Point> {
          if (number == points) return std::nullopt;
          return Point{number++, 0, {{"pipeline.stages", "64"}, {"schedule", "1f1b"}}};
        },
        [&](Row&&) { ++rows; }, {.jobs = static_cast<int>(state.range(0))});
    if (rows != points) state.SkipWithError("rows are missing");
  }
  const auto all = static_cast<double>(points) * static_cast<double>(state.iterations());
  state.SetItemsProcessed(static_cast<std::int64_t>(all));
  state.counters["cpu_us_per_row"] = 1e6 * (cpu_s() - before_s) / all;
}

void nothing_to_do(benchmark::State& state) {
  sweep(state, 200'000, [](const Point& point) { return row_of(point); });
}

/// About what an exact point takes.
void points_of_100_us(benchmark::State& state) {
  sweep(state, 10'000, [](const Point& point) {
    double x = 1;
    for (int i = 0; i < 35'000; ++i) benchmark::DoNotOptimize(x *= 1.0000001);
    return row_of(point);
  });
}

BENCHMARK(nothing_to_do)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(points_of_100_us)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
