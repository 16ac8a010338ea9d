// SPDX-License-Identifier: Apache-2.0
// Rates of the two engines on 1F1B, and the growth of memory per activity.
//
// An activity is an op or a message; all messages cross private links. Every
// measurement of the simgrid engine is a child process of its own, whose memory is its own; it is
// run three times: messages on timers (its default for private links), every message a SimGrid
// Comm, and the memory timeline included. CPU seconds; the median of several runs; the ratio within
// one run.
#include "bench/in_child.hpp"
#include "base/clock.hpp"
#include "program/check.hpp"
#include "tests/rig.hpp"
#include "traces/memory.hpp"

#include <benchmark/benchmark.h>
#include <malloc.h>
#include <sys/resource.h>

#include <fstream>

namespace penstock {
namespace {

RigSpec spec_of(std::uint32_t stages, std::uint32_t microbatches) {
  StageCosts c = unit_costs(1e-3, 2e-3);
  c.output_bytes = 16 << 20;
  c.activation_bytes = 64 << 20;
  return {.shape = {stages, microbatches, 1},
          .costs = std::vector<StageCosts>(stages, c),
          .link = {.latency_s = 10e-6, .bytes_per_s = 50e9}};
}

double activities(const Rig& rig) {
  double count = 0;
  for (std::uint32_t g = 0; g < rig.program.ops.size(); ++g) {
    if (is_compute(rig.program.ops[g].kind)) count += rig.program.ops[g].has(Op::sends) ? 2 : 1;
  }
  return count;
}

double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

double memory_timelines(const Rig& rig, const Timeline& timeline) {
  const std::vector<std::uint32_t> no_more(rig.costs.size(), 0);
  double highest = 0;
  for (int d = 0; d < rig.program.ops.devices(); ++d) {
    const MemoryInput input{rig.program.ops, rig.table, timeline, rig.costs, no_more};
    highest = std::max(highest, static_cast<double>(memory_over_time(input, d).use.total()));
  }
  return highest;
}

/// CPU seconds and bytes of peak memory growth of one simgrid run (with memory timelines).
struct SimgridRun {
  double engine_s, memory_s, grown_bytes;
};

SimgridRun simgrid_once(const Rig& rig, bool flows) {
  const auto answer = in_child([&]() -> std::vector<double> {
    if (!why_no_simgrid().empty()) return {};  // loads the library before measuring
    const double before = resident_bytes();
    const double start = process_cpu_seconds();
    const Timeline timeline = simulate_simgrid(rig.input(), {.every_message_a_flow = flows});
    const double engine = process_cpu_seconds() - start;
    benchmark::DoNotOptimize(memory_timelines(rig, timeline));
    return {engine, process_cpu_seconds() - start - engine,
            std::max(peak_bytes(), peak_bytes_of_children()) - before};
  });
  return answer.size() == 3 ? SimgridRun{answer[0], answer[1], answer[2]} : SimgridRun{0, 0, 0};
}

void exact(benchmark::State& state) {
  const Rig rig(spec_of(static_cast<std::uint32_t>(state.range(0)),
                        static_cast<std::uint32_t>(state.range(1))));
  for (auto _ : state) benchmark::DoNotOptimize(simulate_exact(rig.input()).makespan_s);
  state.counters["activities/s"] =
      benchmark::Counter(activities(rig), benchmark::Counter::kIsIterationInvariantRate);
}

void generate_lower_evaluate(benchmark::State& state) {
  const RigSpec spec = spec_of(static_cast<std::uint32_t>(state.range(0)),
                               static_cast<std::uint32_t>(state.range(1)));
  for (auto _ : state) {
    const Rig rig(spec);
    benchmark::DoNotOptimize(simulate_exact(rig.input()).makespan_s);
  }
}

void simgrid(benchmark::State& state, bool flows, bool with_memory) {
  const Rig rig(spec_of(static_cast<std::uint32_t>(state.range(0)),
                        static_cast<std::uint32_t>(state.range(1))));
  double seconds = 0, grown = 0;
  for (auto _ : state) {
    const SimgridRun run = simgrid_once(rig, flows);
    if (run.engine_s <= 0) return state.SkipWithError("the SimGrid module cannot be loaded");
    const double used = run.engine_s + (with_memory ? run.memory_s : 0);
    state.SetIterationTime(used);
    seconds += used;
    grown = std::max(grown, run.grown_bytes);
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["activities/s"] = activities(rig) * runs / seconds;
  state.counters["bytes/activity"] = grown / activities(rig);
  const double start = process_cpu_seconds();
  benchmark::DoNotOptimize(simulate_exact(rig.input()).makespan_s);
  state.counters["exact_is_faster_by"] = seconds / runs / (process_cpu_seconds() - start);
}

void simgrid_timers(benchmark::State& state) { simgrid(state, false, false); }
void simgrid_flows(benchmark::State& state) { simgrid(state, true, false); }
void simgrid_with_memory(benchmark::State& state) { simgrid(state, false, true); }

/// The sizes of docs/performance.md: those of the other simulators' published runs, too.
void sizes(benchmark::internal::Benchmark* b) {
  for (const auto& [stages, microbatches] :
       {std::pair{64, 512}, {128, 1024}, {256, 2048}, {1024, 2048}}) {
    b->Args({stages, microbatches});
  }
  b->Unit(benchmark::kMillisecond);
}
void three_runs(benchmark::internal::Benchmark* b) {
  sizes(b);
  b->Iterations(3)->UseManualTime();
}

BENCHMARK(exact)->Apply(sizes)->Args({8, 64});
BENCHMARK(generate_lower_evaluate)->Args({64, 512})->Unit(benchmark::kMillisecond);
BENCHMARK(simgrid_timers)->Apply(three_runs);
BENCHMARK(simgrid_flows)->Apply(three_runs);
BENCHMARK(simgrid_with_memory)->Apply(three_runs);

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  // A fixed threshold: large arrays are always mapped anew, so their growth can be seen.
  mallopt(M_MMAP_THRESHOLD, 1 << 16);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
