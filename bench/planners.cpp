// SPDX-License-Identifier: Apache-2.0
// How long the published planners take: PipeDream's optimizer over the states of a measured graph
// ($PENSTOCK_SHARED/data/pipedream_profiles, skipped without it) and over chains of growing length;
// 2BW's search over 64 devices; DAPPLE's over two servers.
#include "plan/pipedream.hpp"
#include "plan/plan_model.hpp"
#include "plan/planners.hpp"
#include "tests/shared.hpp"

#include <benchmark/benchmark.h>

#include <random>
#include <string>

namespace penstock {
namespace {

PipedreamProfile random_chain(int layers) {
  std::mt19937 random(3);
  const auto number = [&](double most) {
    return std::uniform_real_distribution(0.0, most)(random);
  };
  PipedreamProfile profile;
  for (int i = 0; i < layers; ++i) {
    ProfiledLayer layer;
    layer.id = "layer" + std::to_string(i);
    layer.forward_s = number(1e-3);
    layer.backward_s = number(2e-3);
    layer.activation_bytes = number(1e8);
    layer.parameter_bytes = number(1e7);
    if (i + 1 < layers) layer.readers = {layer.last_reader = i + 1};
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

void pipedream_on_densenet121(benchmark::State& state) {
  const std::string path =
      (shared_folder() / "data/pipedream_profiles/densenet121/graph.txt").string();
  if (!std::filesystem::exists(path)) return state.SkipWithError("no profile of DenseNet-121");
  const auto groups = static_cast<int>(state.range(0));
  PipedreamOptions options;
  options.levels = {{16 / groups, 12e9}};
  if (groups > 1) options.levels.push_back({groups, 1.25e9});
  for (auto _ : state) {
    const auto states = antichain_states(load_pipedream_profile(path), 1, 6'000);
    state.counters["states"] = static_cast<double>(states.size());
    benchmark::DoNotOptimize(optimize_pipedream(states, options));
  }
}
BENCHMARK(pipedream_on_densenet121)->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMillisecond);

void pipedream_on_chain(benchmark::State& state) {
  const auto states = chain_states(random_chain(static_cast<int>(state.range(0))), 1);
  for (auto _ : state)
    benchmark::DoNotOptimize(optimize_pipedream(states, {{{16, 1e9}}, false, true, 0}));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(pipedream_on_chain)
    ->RangeMultiplier(2)
    ->Range(64, 1024)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oNSquared);

PlanRequest request_for(const PlanModel& model) {
  PlanRequest request;
  request.model = &model;
  request.levels = {{8, 25e9}, {8, 3.125e9}};
  request.batch = 512;
  return request;
}

void two_bw_on_64_devices(benchmark::State& state) {
  const ProfileModel model(random_chain(32), 1);
  const PlanRequest request = request_for(model);
  for (auto _ : state) benchmark::DoNotOptimize(plan_2bw(request));
}
BENCHMARK(two_bw_on_64_devices)->Unit(benchmark::kMillisecond);

void dapple_on_16_devices(benchmark::State& state) {
  const ProfileModel model(random_chain(static_cast<int>(state.range(0))), 1);
  PlanRequest request = request_for(model);
  request.levels = {{8, 25e9}, {2, 3.125e9}};
  for (auto _ : state) benchmark::DoNotOptimize(plan_dapple(request));
}
BENCHMARK(dapple_on_16_devices)->Arg(25)->Arg(50)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
