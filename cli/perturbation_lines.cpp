// SPDX-License-Identifier: Apache-2.0
#include "cli/perturbation_lines.hpp"

#include "base/units.hpp"
#include "cli/output.hpp"

#include <fmt/format.h>

#include <cmath>

namespace penstock {
namespace {

std::string signed_percent(double part, double whole) {
  return fmt::format("{:+.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

std::string signed_time(double seconds) {
  return (seconds < 0 ? "-" : "+") + format_time(std::abs(seconds));
}

std::string cost_lines(const PerturbationStudy& study) {
  const char* mean = study.runs ? " on average" : "";
  const PerturbationStudy::Times& before = study.undisturbed;
  std::string text = "Disturbed? ";
  if (!study.disturbed)
    return text + "the run never ends; undisturbed it takes " + format_time(before.makespan_s) +
           "\n";
  const PerturbationStudy::Times& after = *study.disturbed;
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

std::string perturbation_lines(const PerturbationStudy& study) {
  return (study.changes_times ? cost_lines(study) : "") +
         (study.runs ? run_lines(*study.runs) : "") +
         (study.goodput ? goodput_lines(*study.goodput) : "");
}

}  // namespace penstock
