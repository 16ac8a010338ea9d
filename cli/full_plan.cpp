// SPDX-License-Identifier: Apache-2.0
#include "cli/full_plan.hpp"

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/progress.hpp"
#include "base/say.hpp"
#include "base/suggest.hpp"
#include "base/terminal.hpp"
#include "cli/output.hpp"
#include "cli/plan_files.hpp"
#include "cli/planning.hpp"
#include "cli/running.hpp"
#include "plan/search/plan_json.hpp"
#include "sweep/python_workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace penstock {
namespace {

/// Options that leave out plans which the published planners might choose.
constexpr std::array<const char*, 5> kNarrowing{"straight", "stages", "schedule", "recompute",
                                                "uniform-recompute"};

/// Options of the published planners that mean nothing here, or not together.
void refuse_others(const Arguments& arguments, PlanInput input, PlanOptions& options) {
  options.refuse("no-transfers", "is pipedream's; here `--set transfers=free` on a scenario");
  options.refuse("balance", "is torchgpipe's");
  if (input != PlanInput::profile) {
    options.refuse("level", "is for profiles; give --cluster, or a scenario's cluster");
    options.refuse("memory", "is for profiles; a cluster says the memory of its devices");
  }
  if (arguments.flag("compare")) {
    for (const char* option : kNarrowing)
      options.refuse(option, "leaves out what the published planners choose; not with --compare");
    if (arguments.value("objective", "throughput") != "throughput")
      options.refuse("objective", "must be throughput with --compare");
  }
  if (!arguments.flag("write")) options.refuse("force", "replaces what --write FOLDER wrote");
}

/// Those that --schedule names.
std::vector<const Schedule*> schedules_of(const Arguments& arguments, PlanOptions& options) {
  std::vector<const Schedule*> chosen;
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) names.emplace_back(schedule.name);
  for (const std::string& name : arguments.values("schedule")) {
    if (const Schedule* known = find_schedule(name))
      chosen.push_back(known);
    else
      options.wrong("schedule",
                    fmt::format("'{}' is no schedule (`penstock schedule list` shows all){}", name,
                                did_you_mean(name, names)));
  }
  return chosen;
}

SearchOptions search_options(const Arguments& arguments, PlanOptions& options) {
  constexpr double kUsualSeconds = 50;
  constexpr std::int64_t kMostPlans = 1'000, kMostEffort = 1'000'000'000;
  SearchOptions search;
  const std::string objective = arguments.value("objective", "throughput");
  search.objective = static_cast<Objective>(std::ranges::find(kObjectiveNames, objective) -
                                            std::begin(kObjectiveNames));
  search.most_evaluations =
      static_cast<std::size_t>(options.integer("effort", kMostEffort).value_or(3000));
  // Of both as many more, where there is more time.
  constexpr std::size_t kEvaluationsPerTrial = 10;
  search.most_trials = search.most_evaluations / kEvaluationsPerTrial;
  search.most_seconds = options.positive("time-limit").value_or(kUsualSeconds);
  search.top = static_cast<std::size_t>(options.integer("top", kMostPlans).value_or(5));
  search.all_degrees = arguments.flag("top");
  search.uniform_recompute = arguments.flag("uniform-recompute");
  return search;
}

/// Throws InputError with everything that is wrong with the options.
FullPlanRequest request_of(const Arguments& arguments) {
  PlanOptions options(arguments);
  FullPlanRequest asked;
  asked.source = source_of(arguments);
  asked.batch = options.batch(asked.source);
  asked.microbatch_size = options.integer("microbatch-size", kMostSamples).value_or(0);
  asked.source.profile_batch = options.integer("profile-batch", kMostSamples);
  asked.stages = static_cast<int>(options.integer("stages", kMostDevices).value_or(0));
  asked.source.levels = options.levels();
  asked.source.memory_bytes = options.bytes("memory");
  asked.headroom = options.share("headroom").value_or(kUsualHeadroom);
  asked.schedules = schedules_of(arguments, options);
  for (const std::string& name : arguments.values("recompute"))
    asked.recomputes.push_back(static_cast<Recompute>(std::ranges::find(kRecomputeNames, name) -
                                                      std::begin(kRecomputeNames)));
  asked.terms = {options.positive("price").value_or(0), options.positive("tokens").value_or(0)};
  asked.search = search_options(arguments, options);
  if (asked.source.levels.size() > 2)
    options.wrong("level",
                  "the full search takes two levels at most; describe deeper networks as a cluster "
                  "(docs/scenario.md) and give that with --cluster");
  require_devices(arguments, asked.source.input, options);
  refuse_others(arguments, asked.source.input, options);
  if (arguments.flag("write")) {
    const std::string why = PlanFolder::refuse(arguments.value("write"), arguments.flag("force"));
    if (!why.empty()) options.wrong("write", why);
  }
  options.throw_if_wrong();
  asked.source.changes = changes_of(arguments, asked.source);
  const auto given = [&](const char* option) { return arguments.flag(option); };
  asked.straight = given("straight");
  asked.asynchronous = given("asynchronous");
  asked.compares = given("compare");
  asked.narrows = std::ranges::any_of(kNarrowing, given);
  return asked;
}

void write_offers(const Arguments& arguments, PlanFolder& folder, std::vector<Offer>& offers) {
  for (std::size_t i = 0; i < offers.size(); ++i) {
    Offer& offer = offers[i];
    std::vector<PlanFile> files{{"yaml", offer.scenario.text()}};
    const auto add = [&](const char* ending, const std::string& text) {
      if (!text.empty()) files.push_back({ending, text});
    };
    add("csv", offer.torch_csv);
    add("megatron.txt", offer.megatron);
    add("torchtitan.toml", offer.torchtitan);
    offer.files = folder.write(static_cast<int>(i) + 1, files);
  }
  if (arguments.flag("force") && !offers.empty()) folder.remove_others();
}

void put_answer(const Arguments& arguments, const FullPlan& full) {
  if (arguments.flag("report"))
    write_report(plan_report(full, arguments), arguments.value("report"));
  const std::string format = arguments.value("format", "table");
  if (format == "csv" && full.usual_batch()) say("note: {}\n", full.notes().back());
  put_result(arguments, format == "json" ? to_json(full).dump(2) + "\n"
                        : format == "csv"
                            ? plans_csv(full)
                            : to_text(full, results_width(), arguments.flag("statistics")));
}

SearchResult search_with_progress(const Problem& problem, const Axes& axes, SearchOptions options) {
  Progress progress(std::isfinite(options.most_seconds)
                        ? fmt::format("planning, {:.3g} s at most", options.most_seconds)
                        : "planning",
                    static_cast<std::int64_t>(options.most_evaluations));
  options.progress = [&](std::size_t done, double best, double least) {
    const bool found = std::isfinite(best);
    progress.update(static_cast<std::int64_t>(done),
                    found ? fmt::format("best {:.4g}, bound {:.4g}", best, least) : "");
  };
  return search(problem, axes, options);
}

/// Every question to a worker of its own.
std::vector<Looked> answers_of(Elsewhere& workers, const std::vector<Question>& questions) {
  QuestionItems asked(questions);
  WorkItems items;
  items.most_in_chunk = 1;
  items.next = [&] { return asked.next(); };
  items.take_answer = [&](std::string_view answer) { asked.take_answer(answer); };
  items.lost = [](const std::string&, const std::string& why) {
    throw SystemError("a worker cannot look at plans: " + why);
  };
  workers.serve_items(items, {});
  return asked.answers();
}

/// With --on by who is there.
SearchCallbacks callbacks_of(const Arguments& arguments) {
  SearchCallbacks callbacks{search_with_progress};
  if (!arguments.flag("on")) return callbacks;
  callbacks.elsewhere = [where = arguments.value("on")](const ProblemRecipe& recipe,
                                                        const auto& work) {
    work_on(where, [&](int in, int out) {
      Elsewhere workers(in, out, to_json(recipe));
      work(Others{
          [&](const std::vector<Question>& questions) { return answers_of(workers, questions); },
          [&] { return std::max<std::size_t>(1, workers.wanted()); }});
      workers.end();
    });
  };
  return callbacks;
}

/// Asks for the plans and says them.
void put_plans(const Arguments& arguments, const FullPlanRequest& request, const Problem& problem) {
  check_terms(request.terms, problem);
  std::optional<PlanFolder> folder;  // before the search, which takes its time
  if (arguments.flag("write")) folder.emplace(arguments.value("write"));
  FullPlan full = find_full_plan(problem, request, callbacks_of(arguments));
  if (folder) write_offers(arguments, *folder, full.offers);
  put_answer(arguments, full);
}

/// What is wrong with a model and a cluster that are named; nothing where they are not, or right.
std::vector<Diagnostic> wrong_names(const Arguments& arguments) {
  try {
    const PlanSource source = source_of(arguments);
    if (source.input != PlanInput::model || !source.cluster) return {};
    Problem(model_problem(source), source.origin(), 1);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

}  // namespace

bool wants_full_plan(const Arguments& arguments) {
  if (arguments.flag("search")) return find_planner(arguments.value("search")) == nullptr;
  return std::ranges::any_of(kOnlyFull, [&](const char* o) { return arguments.flag(o); });
}

int run_full_plan(const Arguments& arguments) {
  const FullPlanRequest request = request_of(arguments);
  put_plans(arguments, request, problem_of(request));
  return exit_ok;
}

std::optional<InputError> full_plan_unless_refused(const Arguments& arguments) {
  std::optional<FullPlanRequest> request;
  std::optional<Problem> problem;
  try {
    request.emplace(request_of(arguments));
    problem.emplace(problem_of(*request));
  } catch (const InputError& error) {
    if (arguments.positional[0] == "-") throw;  // it is read once
    return together(error, wrong_names(arguments));
  }
  put_plans(arguments, *request, *problem);
  return std::nullopt;
}

std::vector<Diagnostic> wrong_plan_options(const Arguments& arguments) {
  Arguments of_any_model = arguments;
  of_any_model.positional[0] = "llama-3-8b";
  std::vector<Diagnostic> names;
  for (const Diagnostic& d : wrong_names(of_any_model))
    names.push_back({{"--cluster", 0, 0}, d.message, "", 1, 0});
  try {
    request_of(of_any_model);
  } catch (const InputError& error) {
    return together(error, names).diagnostics();
  }
  return names;
}

}  // namespace penstock
