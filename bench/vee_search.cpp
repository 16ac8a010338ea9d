// SPDX-License-Identifier: Apache-2.0
// Times of the searches over two chunks there and back. Recorded for the public Python searches on
// two shared cores: adaptive V 10.7 s (p = 12), ZB-V 2.7 s (p = 64, m = 512). `per_op_ns` stays as
// it is where the search is linear in ops.
#include "schedules/generator.hpp"

#include <benchmark/benchmark.h>

namespace penstock {
namespace {

void search(benchmark::State& state, const char* name, double recorded_s) {
  const auto p = static_cast<std::uint32_t>(state.range(0));
  ScheduleShape shape{.depth = p,
                      .microbatches_per_update = static_cast<std::uint32_t>(state.range(1)),
                      .chunks = 2};
  shape.times.assign(shape.stages(), {14407, 14380, 9676, 1, 1});
  shape.transfer = 1610;
  const Schedule* schedule = find_schedule(name);
  std::size_t ops = 0;
  for (auto _ : state) {
    OpLists order;
    schedule->generate(shape, order);
    ops += order.size();
  }
  using benchmark::Counter;
  const auto seconds_per = Counter::kIsRate | Counter::kInvert;
  state.counters["per_op_ns"] = Counter(static_cast<double>(ops) * 1e-9, seconds_per);
  if (recorded_s > 0)
    state.counters["times_faster"] =
        Counter(recorded_s * static_cast<double>(state.iterations()), Counter::kIsRate);
}

BENCHMARK_CAPTURE(search, v, "v-search", 10.7)->Args({12, 24})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, v, "v-search", 0)
    ->Args({12, 128})
    ->Args({12, 512})
    ->Args({12, 2048})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, zb_v, "zb-v-search", 2.7)->Args({64, 512})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
