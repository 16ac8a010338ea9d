// SPDX-License-Identifier: Apache-2.0
// Rates of the searches for schedules, at p = 64, m = 512 and at growing sizes: the time per op
// must not grow with the number of ops.
#include "schedules/search/dispatch.hpp"
#include "schedules/search/linear.hpp"
#include "schedules/search/replay.hpp"

#include <benchmark/benchmark.h>

namespace penstock {
namespace {

/// F, I and W take 10, 12 and 8, a transfer 1; `percent` of 1F1B's memory.
OrderProblem problem(std::int64_t p, std::int64_t m, std::int64_t percent) {
  ScheduleShape shape{.depth = static_cast<std::uint32_t>(p),
                      .microbatches_per_update = static_cast<std::uint32_t>(m)};
  shape.times.assign(shape.depth, {10, 12, 8, 1, 0.5});
  shape.transfer = 1;
  return order_problem(shape, static_cast<double>(percent) / 100);
}

void count_ops(benchmark::State& state, const OrderProblem& problem) {
  state.counters["per_op"] = benchmark::Counter(
      static_cast<double>(problem.ops()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

/// The whole search, with all that it tries.
void zero_bubble_search(benchmark::State& state) {
  const OrderProblem asked = problem(state.range(0), state.range(1), state.range(2));
  double stage_time = 0;
  for (auto _ : state) stage_time = search_linear(asked).cost.stage_time;
  state.counters["over_least"] = stage_time / least_cost(asked).stage_time;
  count_ops(state, asked);
}
BENCHMARK(zero_bubble_search)
    ->Args({8, 32, 100})
    ->Args({32, 256, 100})
    ->ArgsProduct({{64}, {512}, {100, 125, 150, 200}})
    ->Unit(benchmark::kMillisecond);

/// One rule, run.
void dispatch(benchmark::State& state) {
  const OrderProblem asked = problem(state.range(0), state.range(1), 150);
  Dispatch run(asked);
  const std::vector<DispatchRule> rules(asked.devices);
  const OrderCost target = least_cost(asked);
  for (auto _ : state) benchmark::DoNotOptimize(run.run_rules(rules, target));
  count_ops(state, asked);
}
BENCHMARK(dispatch)->ArgsProduct({{8, 64}, {64, 512, 4096}})->Unit(benchmark::kMillisecond);

/// An order, run.
void replay(benchmark::State& state) {
  const OrderProblem asked = problem(state.range(0), state.range(1), 150);
  const Order order = search_linear(asked, 0);
  Replay run(asked);
  Replay::Times times;
  for (auto _ : state) benchmark::DoNotOptimize(run.run_word(order.word, times));
  count_ops(state, asked);
}
BENCHMARK(replay)->ArgsProduct({{8, 64}, {64, 512, 4096}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
