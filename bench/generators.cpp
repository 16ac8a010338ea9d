// SPDX-License-Identifier: Apache-2.0
// Nanoseconds per op of every generator, with 8 times the microbatches, 8 times the devices, and
// both: a generator that is linear in its ops keeps `ratio`, its ns/op over those of the first
// size, near 1; one that is quadratic in m or p shows 8 or 64. CPU time.
#include "base/clock.hpp"
#include "schedules/generator.hpp"

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <map>
#include <optional>
#include <string>

namespace penstock {
namespace {

/// A shape of about p x m microbatches of stages that the schedule admits.
std::optional<ScheduleShape> admitted(const Schedule& schedule, std::uint32_t p, std::uint32_t m) {
  for (ScheduleShape shape : {ScheduleShape{p, m, 1}, ScheduleShape{p, 1, m},  // update per one
                              ScheduleShape{1, p * m, 1}}) {                   // whole model
    shape.chunks = schedule.chunks.usual;
    if (schedule.refuse(shape).empty()) return shape;
  }
  return std::nullopt;
}

void generate(benchmark::State& state, const Schedule& schedule,
              std::map<std::string_view, double>& first) {
  const auto shape = admitted(schedule, static_cast<std::uint32_t>(state.range(0)),
                              static_cast<std::uint32_t>(state.range(1)));
  if (!shape) return state.SkipWithError("the schedule does not admit this size");
  double ops = 0;
  const double start = process_cpu_seconds();
  for (auto _ : state) {
    OpLists order;
    schedule.generate(*shape, order);
    ops += order.size();
  }
  const double ns = (process_cpu_seconds() - start) * 1e9 / ops;
  const bool smallest = state.range(0) == 8 && state.range(1) == 256;
  if (smallest) first[schedule.name] = ns;
  state.counters["ops"] = ops / static_cast<double>(state.iterations());
  state.counters["ns/op"] = ns;
  if (first.contains(schedule.name)) state.counters["ratio"] = ns / first[schedule.name];
}

void register_all(std::map<std::string_view, double>& first) {
  for (const Schedule& schedule : schedules()) {
    benchmark::RegisterBenchmark(std::string(schedule.name).c_str(),
                                 [&](benchmark::State& state) { generate(state, schedule, first); })
        ->ArgNames({"p", "m"})
        ->ArgsProduct({{8, 64}, {256, 2048}})
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  // Memory is kept, whatever its size: page faults are not the generator's.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  benchmark::Initialize(&argc, argv);
  std::map<std::string_view, double> first;  // ns/op of each schedule's smallest size
  penstock::register_all(first);
  benchmark::RunSpecifiedBenchmarks();
}
