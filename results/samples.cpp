// SPDX-License-Identifier: Apache-2.0
#include "results/samples.hpp"

#include "base/progress.hpp"
#include "base/statistics.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

namespace penstock {
namespace {

/// What one draw comes to.
struct Sample {
  double iteration_time_s = 0, bubble_fraction = 0, tokens_per_s = 0;
  std::int64_t peak_bytes = 0;
  bool feasible = true;
};

/// Simulates draws of a scenario one after the other.
class Sampler {
 public:
  Sampler(const Scenario& scenario, EngineChoice engine)
      : simulation_(prepare(scenario)), engine_(engine_for(simulation_, engine)) {}

  bool forks() const { return engine_ == EngineChoice::simgrid; }
  Sample sample(std::uint32_t number) {
    if (number > 0) draw_microbatches(simulation_.scenario, number);
    if (simulation_.perturbation) simulation_.perturbation->run = number;
    run_engine(simulation_, engine_);
    const Result r = outline(simulation_);
    Sample s{.iteration_time_s =
                 r.iteration_time_s.value_or(r.makespan_s / simulation_.program.updates(0)),
             .bubble_fraction = r.bubble_fraction,
             .tokens_per_s = r.tokens_per_s.value_or(0),
             .feasible = r.infeasible_because.empty()};
    for (const DeviceResult& d : r.devices)
      s.peak_bytes = std::max(s.peak_bytes, d.memory.use.total());
    return s;
  }

 private:
  Simulation simulation_;
  EngineChoice engine_;
};

template <class Of>
Quantiles quantiles(const std::vector<Sample>& samples, bool most_is_worst, const Of& of) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(of(sample));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {quantile(values, 0.05), quantile(values, 0.5), quantile(values, 0.95),
          most_is_worst ? *most : *least};
}

std::vector<Sample> all_samples(const Scenario& scenario, EngineChoice engine, int count) {
  std::vector<Sample> samples(static_cast<std::size_t>(count));
  Progress progress("samples", count);
  Sampler first(scenario, engine);
  std::atomic<int> next = 0;
  std::mutex said;
  int done = 0;
  const auto draw = [&](Sampler& sampler) {
    for (int i = next++; i < count; i = next++) {
      samples[static_cast<std::size_t>(i)] = sampler.sample(static_cast<std::uint32_t>(i));
      const std::lock_guard lock(said);
      progress.update(++done);
    }
  };
#ifdef __EMSCRIPTEN__
  const int threads = 1;
#else
  // SimGrid forks this process, which must not have other threads then.
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = first.forks() ? 1 : std::min(cores, count);
#endif
  std::vector<std::future<void>> others;
  for (int thread = 1; thread < threads; ++thread)
    others.push_back(std::async(std::launch::async, [&] {
      Sampler sampler(scenario, engine);
      draw(sampler);
    }));
  draw(first);
  for (std::future<void>& other : others) other.get();
  return samples;
}

}  // namespace

SampleStudy study_samples(const Scenario& scenario, EngineChoice engine, int count) {
  SampleStudy study{.n = count, .differ = samples_differ(scenario)};
  const std::vector<Sample> samples = all_samples(scenario, engine, study.differ ? count : 1);
  const bool most = true, least = false;
  const int drawn = static_cast<int>(samples.size());  // one stands for all where none differs
  study.infeasible =
      count / drawn * static_cast<int>(std::ranges::count(samples, false, &Sample::feasible));
  study.iteration_time_s =
      quantiles(samples, most, [](const Sample& s) { return s.iteration_time_s; });
  study.bubble_fraction =
      quantiles(samples, most, [](const Sample& s) { return s.bubble_fraction; });
  study.peak_memory_bytes =
      quantiles(samples, most, [](const Sample& s) { return static_cast<double>(s.peak_bytes); });
  if (scenario.transformer)
    study.tokens_per_s = quantiles(samples, least, [](const Sample& s) { return s.tokens_per_s; });
  return study;
}

}  // namespace penstock
