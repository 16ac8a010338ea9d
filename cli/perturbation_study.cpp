#include "cli/perturbation_study.hpp"

#include "base/progress.hpp"
#include "base/units.hpp"
#include "cli/running.hpp"
#include "base/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

using Times = PerturbationStudy::Times;
using MaybeTimes = std::optional<Times>;

// Running
// ------------------------------------------------------------------------------------------

/// A scenario, simulated as often as wanted.
class Variant {
 public:
  Variant(const Scenario& scenario, EngineChoice engine)
      : simulation_(prepare(scenario)), engine_(engine_for(simulation_, engine)) {}

  bool exact() const { return engine_ == EngineChoice::exact; }
  /// Nothing, and why, when the run never ends.
  MaybeTimes run(std::uint32_t number, std::string& why) {
    if (simulation_.perturbation) simulation_.perturbation->run = number;
    run_engine(simulation_, engine_);
    why = simulation_.timeline->stalled_because;
    if (!why.empty()) return std::nullopt;
    return Times{simulation_.timeline->makespan_s, iteration_time_s(simulation_)};
  }
  MaybeTimes run() {
    std::string ignored;
    return run(0, ignored);
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
      if (const auto times = variant.run(static_cast<std::uint32_t>(run), why)) {
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

// What it costs
// ------------------------------------------------------------------------------------

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

// Writing
// ------------------------------------------------------------------------------------------

std::string signed_percent(double part, double whole) {
  return fmt::format("{:+.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

std::string signed_time(double seconds) {
  return (seconds < 0 ? "-" : "+") + format_time(std::abs(seconds));
}

std::string cost_lines(const PerturbationStudy& study) {
  const char* mean = study.runs ? " on average" : "";
  const Times& before = study.undisturbed;
  std::string text = "Disturbed? ";
  if (!study.disturbed)
    return text + "the run never ends; undisturbed it takes " + format_time(before.makespan_s) +
           "\n";
  const Times& after = *study.disturbed;
  if (before.iteration_time_s && after.iteration_time_s) {
    text += fmt::format("an update takes {}{} instead of {} ({}),\n           ",
                        format_time(*after.iteration_time_s), mean,
                        format_time(*before.iteration_time_s),
                        signed_percent(*after.iteration_time_s - *before.iteration_time_s,
                                       *before.iteration_time_s));
  }
  text += fmt::format("the whole run {} instead of {} ({})\n", format_time(after.makespan_s),
                      format_time(before.makespan_s),
                      signed_percent(after.makespan_s - before.makespan_s, before.makespan_s));
  for (const auto& [key, more] : study.costs) {
    if (!more) continue;
    text += fmt::format("           {}: {}the run {}\n", key,
                        more->iteration_time_s
                            ? fmt::format("iteration {}, ", signed_time(*more->iteration_time_s))
                            : "",
                        signed_time(more->makespan_s));
  }
  return text;
}

std::string percentile_line(const char* what, const std::optional<Percentiles>& p) {
  if (!p) return "";
  return fmt::format("           {}: p5 {}, p50 {}, p95 {} (from {} to {})\n", what,
                     format_time(p->p5), format_time(p->p50), format_time(p->p95),
                     format_time(p->min), format_time(p->max));
}

std::string run_lines(const PerturbationStudy::Runs& runs) {
  std::string text =
      fmt::format("           over {}, the first of which is shown:\n", counted(runs.n, "run"));
  text += percentile_line("iteration", runs.iteration_time_s);
  text += percentile_line("whole run", runs.makespan_s);
  if (!runs.errors.empty()) {
    text += fmt::format("           {} without a result; run {}: {}\n",
                        counted(static_cast<std::int64_t>(runs.errors.size()), "run"),
                        runs.errors[0].run, runs.errors[0].why);
  }
  return text;
}

std::string goodput_lines(const Goodput& g) {
  const auto share = [&](double seconds) { return format_percent(seconds / g.horizon_s); };
  std::string text = fmt::format(
      "Goodput?   {} of {:.4g} h: {} useful, {} lost; {}\n           {} checkpoints, {} "
      "restarts, {} lost work\n",
      format_percent(g.fraction), g.horizon_s / 3600, counted(g.useful_batches, "batch"),
      format_count(g.lost_batches), counted(g.failures, "failure"), share(g.checkpoint_s),
      share(g.restart_s), share(g.lost_s));
  if (!g.daly_s) return text;
  return text + fmt::format(
                    "           best: a checkpoint every {} of computation (Young {}, Daly {}), "
                    "{}\n           for failures at random {} are to be expected, {} now\n",
                    format_time(static_cast<double>(*g.best_every) * g.batch_s),
                    format_time(*g.young_s), format_time(*g.daly_s),
                    "every " + counted(*g.best_every, "batch"), format_percent(*g.expected_best),
                    format_percent(*g.expected_now));
}

}  // namespace

std::optional<PerturbationStudy> study_perturbations(const Scenario& scenario,
                                                     EngineChoice engine) {
  const PerturbationSpec& spec = scenario.perturbations;
  if (!spec.changes_times() && !spec.reliability) return std::nullopt;
  PerturbationStudy study;
  study.changes_times = spec.changes_times();
  if (engine_for(prepare(scenario), engine) == EngineChoice::simgrid) {
    // Loaded here, so that no child has to load it again.
    if (const std::string why = why_no_simgrid(); !why.empty())
      throw SystemError(why + "; use --engine exact");
  }
  study_times(scenario, engine, study);
  if (spec.reliability && study.disturbed)
    study.goodput = goodput(*spec.reliability, batch_s(*study.disturbed, scenario));
  return study;
}

std::string perturbation_lines(const PerturbationStudy& study) {
  return (study.changes_times ? cost_lines(study) : "") +
         (study.runs ? run_lines(*study.runs) : "") +
         (study.goodput ? goodput_lines(*study.goodput) : "");
}

}  // namespace penstock
