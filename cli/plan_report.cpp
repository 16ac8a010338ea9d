// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_report.hpp"

#include "base/units.hpp"
#include "report/comparison_section.hpp"
#include "report/table_section.hpp"

#include <fmt/format.h>

#include <cmath>

namespace penstock {
namespace {

double known(double value) { return value > 0 ? value : NAN; }

KeyFigure how_fast(const PlanTask& task, const Plan& plan) {
  const std::string predicted = fmt::format("{:.4g} samples/s", plan.throughput_samples_per_s);
  const std::string speedup = fmt::format("{:.3f} times one device", plan.speedup);
  if (!plan.simulated)
    return {"How fast?", predicted,
            fmt::format("as {} predicts it; {}", task.planner->name, speedup)};
  if (!plan.simulated->why_not.empty())
    return {"How fast?", "it does not run", plan.simulated->why_not, Verdict::bad};
  return {"How fast?", fmt::format("{:.4g} samples/s", plan.simulated->samples_per_s),
          fmt::format("simulated; {} predicts {}, {}", task.planner->name, predicted, speedup)};
}

std::vector<KeyFigure> figures(const PlanTask& task, const PlanResult& result) {
  if (result.plans.empty())
    return {{"Is there a plan?", "no", result.infeasible_because, Verdict::bad}};
  const Plan& best = result.plans.front();
  return {{"What to run?", fmt::format("{} stages x replicas", replicas_text(best)),
           fmt::format("microbatches of {}, {}, recompute {}", best.microbatch_size, best.schedule,
                       kRecomputeNames[static_cast<std::size_t>(best.recompute)]),
           Verdict::good},
          how_fast(task, best),
          {"Why not faster?", best.limited_by, ""}};
}

std::string stages_section(const Plan& plan) {
  ComparisonSection bars{{"Stages of the best plan"}, {}, {}};
  ComparisonBars times, memory;
  bool has_memory = false;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlannedStage& stage = plan.stages[s];
    bars.names.push_back(fmt::format("stage {}: layers {}-{}, devices {}", s, stage.first_layer,
                                     stage.last_layer, ranges_text(stage.devices)));
    times.values.push_back(stage.time_s);
    memory.values.push_back(known(stage.memory_bytes));
    has_memory = has_memory || stage.memory_bytes > 0;
  }
  bars.panels.push_back({"time of a microbatch, over the replicas", "s", {times}});
  if (has_memory) bars.panels.push_back({"memory of a device", "bytes", {memory}});
  return section_text(bars);
}

std::string plans_section(const PlanResult& result) {
  TableSection table{{"Plans"},
                     {{"plan"},
                      {"stages x replicas"},
                      {"microbatch"},
                      {"microbatches"},
                      {"recompute"},
                      {"schedule"},
                      {"time per stage", "s"},
                      {"predicted", "samples/s"},
                      {"simulated", "samples/s"},
                      {"speedup"},
                      {"limited by"}},
                     {}};
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    const Plan& p = result.plans[i];
    table.rows.push_back(
        {static_cast<double>(i + 1), replicas_text(p), static_cast<double>(p.microbatch_size),
         static_cast<double>(p.microbatches),
         std::string(kRecomputeNames[static_cast<std::size_t>(p.recompute)]), p.schedule,
         p.time_per_stage_s, p.throughput_samples_per_s,
         known(p.simulated ? p.simulated->samples_per_s : 0), p.speedup, p.limited_by});
  }
  return section_text(table);
}

}  // namespace

Report plan_report(const PlanTask& task, const PlanResult& result, const Arguments& arguments) {
  Report report;
  report.title = fmt::format("Plan of {}", task.name);
  report.summary =
      fmt::format("{} ({}) on {} devices, a batch of {}", task.planner->name, task.planner->paper,
                  task.request.devices(), counted(task.batch_of(result), "sample"));
  report.figures = figures(task, result);
  if (!result.plans.empty())
    report.sections = {stages_section(result.plans.front()), plans_section(result)};
  report.notes = result.notes;
  report.command = arguments.command_line;
  report.scenario = task.text;
  report.version = PENSTOCK_VERSION;
  return report;
}

}  // namespace penstock
