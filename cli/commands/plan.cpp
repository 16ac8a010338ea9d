// SPDX-License-Identifier: Apache-2.0
// penstock plan MODEL | SCENARIO | graph.txt: what our own search or a published planner would run.
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/full_plan.hpp"
#include "cli/output.hpp"
#include "cli/plan_report.hpp"
#include "cli/planning.hpp"
#include "plan/search/plan_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace penstock {
namespace {

std::string simulated_text(const Plan& plan) {
  if (!plan.simulated) return "-";
  const auto rate = simulated_samples_per_s(plan);
  return rate ? fmt::format("{:.4g}", *rate) : "no";
}

std::string plans_table(const PlanResult& result) {
  using A = TextTable::Align;
  TextTable table({"plan", "stages x replicas", "microbatch", "m", "recompute", "per stage",
                   "predicted", "simulated", "speedup", "limited by"},
                  {A::right, A::left, A::right, A::right, A::left, A::right, A::right, A::right,
                   A::right, A::left});
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    const Plan& p = result.plans[i];
    table.add_row({std::to_string(i + 1), replicas_text(p), std::to_string(p.microbatch_size),
                   std::to_string(p.microbatches),
                   std::string(kRecomputeNames[static_cast<std::size_t>(p.recompute)]),
                   format_time(p.time_per_stage_s),
                   fmt::format("{:.4g}", p.throughput_samples_per_s), simulated_text(p),
                   fmt::format("{:.3f}", p.speedup), p.limited_by});
  }
  std::string out =
      table.render() +
      "predicted, simulated: samples/s, by the planner's paper and by `penstock simulate`\n";
  for (std::size_t i = 0; i < result.plans.size(); ++i) {
    const Plan& p = result.plans[i];
    if (p.simulated && !p.simulated->why_not.empty())
      out += fmt::format("plan {} does not run: {}\n", i + 1, p.simulated->why_not);
  }
  return out;
}

std::string stages_table(const Plan& plan) {
  using A = TextTable::Align;
  TextTable table({"stage", "layers", "from", "to", "replicas", "devices", "F+B", "memory"},
                  {A::right, A::right, A::left, A::left, A::right, A::left, A::right, A::right});
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlannedStage& stage = plan.stages[s];
    table.add_row({std::to_string(s), fmt::format("{}-{}", stage.first_layer, stage.last_layer),
                   stage.first_name, stage.last_name, std::to_string(stage.replicas),
                   ranges_text(stage.devices), format_time(stage.time_s),
                   stage.memory_bytes > 0 ? format_bytes(stage.memory_bytes) : "-"});
  }
  return table.render(2);
}

std::string to_text(const PlanTask& task, const PlanResult& result) {
  std::string out = fmt::format("{}: {} ({}) on {} devices, a batch of {}\n", task.name,
                                task.planner->name, task.planner->paper, task.request.devices(),
                                counted(task.batch_of(result), "sample"));
  for (const std::string& note : result.notes) out += fmt::format("note: {}\n", note);
  if (result.plans.empty()) return out + fmt::format("no plan: {}\n", result.infeasible_because);
  const Plan& best = result.plans.front();
  out += "\n" + plans_table(result) + "\nbest plan\n" + stages_table(best);
  if (best.data_parallel_speedup > 0)
    out += fmt::format(
        "\ndata parallelism over all devices: speedup {:.3f}; the plan is {:.3f} "
        "times as fast\n",
        best.data_parallel_speedup, best.speedup / best.data_parallel_speedup);
  return out +
         fmt::format(
             "\nOf all plans {} looks at those of its paper, and takes the best {}; --search full "
             "simulates\nplans of every schedule, with tensor parallelism and recomputation\n",
             task.planner->name,
             task.planner->simulates && best.simulated ? "as simulated" : "by its paper's costs");
}

/// Scalars of each plan, then its stages as "0-16x14 17-24x2".
std::string plans_csv(const Json& result) {
  std::vector<CsvRow> rows;
  for (const Json& plan : result["plans"]) {
    CsvRow row{{"search", result["search"]}};
    for (const auto& [key, value] : plan.items())
      if (key != "stages") row.emplace_back(key, value);
    std::vector<std::string> stages;
    for (const Json& s : plan["stages"])
      stages.push_back(fmt::format("{}-{}x{}", s["first_layer"].get<int>(),
                                   s["last_layer"].get<int>(), s["replicas"].get<int>()));
    row.emplace_back("stages", fmt::format("{}", fmt::join(stages, " ")));
    rows.push_back(std::move(row));
  }
  return to_csv(rows);
}

int put_published(const Arguments& arguments, const std::string& note = "") {
  const PlanTask task = plan_task(arguments);
  PlanResult result = ask(*task.planner, task.request);
  result.notes.insert(result.notes.begin(), task.notes.begin(), task.notes.end());
  for (const std::string& first : {task.batch_note(result), note})
    if (!first.empty()) result.notes.insert(result.notes.begin(), first);
  const std::string format = arguments.value("format", "table");
  const Json json = to_json(task, result);
  if (format == "csv" && !note.empty()) say("note: {}\n", note);
  if (format == "csv" && result.plans.empty()) say("no plan: {}\n", result.infeasible_because);
  if (arguments.flag("report"))
    write_report(plan_report(task, result, arguments), arguments.value("report"));
  put_result(arguments, format == "json"  ? json.dump(2) + "\n"
                        : format == "csv" ? plans_csv(json)
                                          : to_text(task, result));
  return exit_ok;
}

/// What is wrong, in a line.
std::string why_refused(const InputError& error) {
  std::vector<std::string> parts;
  for (const Diagnostic& d : error.diagnostics()) {
    const bool option = d.where.origin.starts_with("--");
    parts.push_back(option ? d.where.origin + " " + d.message : d.message);
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

int run_plan(const Arguments& arguments) {
  if (wants_full_plan(arguments)) return run_full_plan(arguments);
  if (arguments.flag("search") || input_of(arguments.positional[0]) == PlanInput::profile)
    return put_published(arguments);
  const std::optional<InputError> refused = full_plan_unless_refused(arguments);
  if (!refused) return exit_ok;
  try {
    return put_published(
        arguments, fmt::format("this is 2bw's plan: our own search (--search full), the default, "
                               "cannot be asked: {}",
                               why_refused(*refused)));
  } catch (const InputError& error) {  // neither can be asked
    throw together(*refused, error.diagnostics());
  }
}

}  // namespace penstock
