// SPDX-License-Identifier: Apache-2.0
#include "results/perturbation_study.hpp"

#include "base/progress.hpp"
#include "base/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

using Times = PerturbationStudy::Times;
using MaybeTimes = std::optional<Times>;

/// A scenario, simulated as often as wanted.
class Variant {
 public:
  Variant(const Scenario& scenario, EngineChoice engine)
      : simulation_(prepare(scenario)), engine_(engine_for(simulation_, engine)) {}

  bool exact() const { return engine_ == EngineChoice::exact; }
  /// Nothing, and why, when the run never ends.
  MaybeTimes times_of_run(std::uint32_t number, std::string& why) {
    if (simulation_.perturbation) simulation_.perturbation->run = number;
    run_engine(simulation_, engine_);
    why = simulation_.timeline->stalled_because;
    if (!why.empty()) return std::nullopt;
    return Times{simulation_.timeline->makespan_s, iteration_time_s(simulation_)};
  }
  MaybeTimes run() {
    std::string ignored;
    return times_of_run(0, ignored);
  }

 private:
  Simulation simulation_;
  EngineChoice engine_;
};

MaybeTimes times_with(Scenario scenario, const PerturbationSpec& spec, EngineChoice engine) {
  scenario.perturbations = spec;
  return Variant(scenario, engine).run();
}

std::optional<Percentiles> percentiles(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  const auto [low, high] = std::ranges::minmax_element(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return Percentiles{sum / static_cast<double>(values.size()),
                     *low,
                     quantile(values, 0.05),
                     quantile(values, 0.5),
                     quantile(values, 0.95),
                     *high};
}

PerturbationStudy::Runs all_runs(const Scenario& scenario, EngineChoice engine) {
  PerturbationStudy::Runs out;
  out.n = scenario.perturbations.jitter->runs;
  Variant variant(scenario, engine);
  std::vector<double> makespans, iterations;
  Progress progress("runs", out.n);
  for (int run = 0; run < out.n; ++run) {
    std::string why;
    try {
      if (const auto times = variant.times_of_run(static_cast<std::uint32_t>(run), why)) {
        makespans.push_back(times->makespan_s);
        if (times->iteration_time_s) iterations.push_back(*times->iteration_time_s);
      }
    } catch (const SystemError& error) {
      why = error.what();
    }
    if (!why.empty()) out.errors.push_back({run, why});
    progress.update(run + 1);
  }
  out.makespan_s = percentiles(makespans);
  out.iteration_time_s = percentiles(iterations);
  return out;
}

MaybeTimes difference(const MaybeTimes& with, const MaybeTimes& without) {
  if (!with || !without) return std::nullopt;
  Times more{with->makespan_s - without->makespan_s, std::nullopt};
  if (with->iteration_time_s && without->iteration_time_s)
    more.iteration_time_s = *with->iteration_time_s - *without->iteration_time_s;
  return more;
}

MaybeTimes mean_of(const PerturbationStudy::Runs& runs) {
  if (!runs.makespan_s) return std::nullopt;
  Times mean{runs.makespan_s->mean, std::nullopt};
  if (runs.iteration_time_s) mean.iteration_time_s = runs.iteration_time_s->mean;
  return mean;
}

/// The spec without one of its keys that change times; what is left may be nothing.
struct WithoutKey {
  const char* key;
  PerturbationSpec left;
};

std::vector<WithoutKey> without_each(const PerturbationSpec& spec) {
  std::vector<WithoutKey> all;
  const auto leave_out = [&](const char* key, auto PerturbationSpec::*member) {
    if ((spec.*member).empty()) return;
    all.push_back({key, spec});
    (all.back().left.*member).clear();
  };
  leave_out("slow_devices", &PerturbationSpec::slow_devices);
  leave_out("throttle", &PerturbationSpec::throttle);
  leave_out("links", &PerturbationSpec::links);
  return all;
}

/// What is known for certain first, each key against the run without it; then the jitter on top.
void study_times(const Scenario& scenario, EngineChoice engine, PerturbationStudy& study) {
  const auto times = [&](const PerturbationSpec& spec) {
    return times_with(scenario, spec, engine);
  };
  study.undisturbed = *times({});
  PerturbationSpec certain = scenario.perturbations;
  certain.jitter.reset();
  const MaybeTimes together = certain.changes_times() ? times(certain) : study.undisturbed;
  for (const auto& [key, left] : without_each(certain)) {
    study.costs.push_back(
        {key, difference(together, left.changes_times() ? times(left) : study.undisturbed)});
  }
  study.disturbed = together;
  if (!scenario.perturbations.jitter) return;
  study.runs = all_runs(scenario, engine);
  study.disturbed = mean_of(*study.runs);
  study.costs.push_back({"jitter", difference(study.disturbed, together)});
}

double batch_s(const Times& times, const Scenario& scenario) {
  return times.iteration_time_s.value_or(times.makespan_s / scenario.shape.batches);
}

}  // namespace

std::optional<PerturbationStudy> study_perturbations(const Scenario& scenario,
                                                     EngineChoice engine) {
  const PerturbationSpec& spec = scenario.perturbations;
  if (!spec.changes_times() && !spec.reliability) return std::nullopt;
  PerturbationStudy study;
  study.changes_times = spec.changes_times();
  study_times(scenario, engine, study);
  if (spec.reliability && study.disturbed)
    study.goodput = goodput(*spec.reliability, batch_s(*study.disturbed, scenario));
  return study;
}

}  // namespace penstock
