#include "cli/full_plan.hpp"

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/progress.hpp"
#include "base/suggest.hpp"
#include "cli/megatron_arguments.hpp"
#include "cli/option_numbers.hpp"
#include "cli/output.hpp"
#include "cli/planning.hpp"
#include "cli/running.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Options that leave out plans which the published planners might choose.
constexpr std::array<const char*, 3> kNarrowing{"straight", "stages", "schedule"};

double number(const Arguments& arguments, const char* option, double otherwise) {
  if (!arguments.flag(option)) return otherwise;
  const std::string text = arguments.value(option);
  const auto value = parse_number<double>(text);
  if (value && *value > 0) return *value;
  throw InputError(std::string("--") + option,
                   fmt::format("must be a number of more than 0, got '{}'", text));
}

std::int64_t count(const Arguments& arguments, const char* option, std::int64_t otherwise) {
  const double value = number(arguments, option, static_cast<double>(otherwise));
  if (value == std::floor(value) && value <= 1e9) return static_cast<std::int64_t>(value);
  throw InputError(std::string("--") + option,
                   fmt::format("must be a whole number from 1 to 1000000000, got '{}'",
                               arguments.value(option)));
}

Problem profile_problem_of(const Arguments& arguments, std::int64_t batch) {
  const std::string text = profile_problem(arguments), origin = arguments.positional[0];
  if (batch > 0) return Problem(text, origin, batch);
  const Problem one(text, origin, 1);
  return Problem(text, origin, kBatchPerDevice * one.gpus() * count(arguments, "profile-batch", 1));
}

/// The scenario to plan for: that of a file, a profile on devices, or a model on a cluster.
Problem problem_of(const Arguments& arguments) {
  const std::string& name = arguments.positional[0];
  const std::int64_t batch = arguments.flag("batch") ? count(arguments, "batch", 0) : 0;
  if (is_profile_file(name)) return profile_problem_of(arguments, batch);
  if (is_scenario_file(name))
    return Problem(load_scenario(name, overrides_of(arguments)).text, name, batch);
  for (const char* needed : {"cluster", "batch"}) {
    if (!arguments.flag(needed))
      throw InputError("penstock plan " + name, fmt::format("needs --{} with a model", needed));
  }
  return Problem(model_problem(arguments), "penstock plan " + name, batch);
}

/// Options of the published planners that mean nothing here.
void refuse_others(const Arguments& arguments) {
  std::vector<Diagnostic> wrong;
  const auto refuse = [&](const char* option, const std::string& why) {
    if (arguments.flag(option))
      wrong.push_back({{std::string("--") + option, 0, 0}, why, "", 1, 0});
  };
  const bool profile = is_profile_file(arguments.positional[0]);
  const bool scenario = !profile && is_scenario_file(arguments.positional[0]);
  refuse("no-transfers", "is pipedream's; here `--set transfers=free` on a scenario");
  refuse("balance", "is torchgpipe's");
  if (!profile) {
    refuse("level", "is for profiles; give --cluster, or a scenario's cluster");
    refuse("memory", "is for profiles; a cluster says the memory of its devices");
    refuse("profile-batch", "has a meaning for profiles only");
  }
  if (arguments.flag("compare")) {
    for (const char* option : kNarrowing)
      refuse(option, "leaves out what the published planners choose; not with --compare");
    if (arguments.value("objective", "throughput") != "throughput")
      refuse("objective", "must be throughput with --compare");
  }
  if (scenario) refuse("cluster", "is the scenario's; change it with --set cluster=NAME");
  if (!scenario) refuse("set", "changes scenarios only");
  if (!wrong.empty()) throw InputError(wrong);
}

/// Those that --schedule names; all of `allowed` without.
std::vector<const Schedule*> schedules_of(const Arguments& arguments,
                                          const std::vector<const Schedule*>& allowed) {
  if (!arguments.flag("schedule")) return allowed;
  std::vector<const Schedule*> chosen;
  for (const std::string& name : arguments.values("schedule")) {
    if (const Schedule* known = find_schedule(name)) {
      chosen.push_back(known);
      continue;
    }
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules()) names.emplace_back(schedule.name);
    throw InputError("--schedule",
                     fmt::format("'{}' is no schedule (`penstock schedule list` shows all){}", name,
                                 did_you_mean(name, names)));
  }
  return chosen;
}

Axes axes_of(const Arguments& arguments, const Problem& problem, bool versions) {
  Axes axes = problem.axes(versions);
  axes.schedules = schedules_of(arguments, axes.schedules);
  if (arguments.flag("straight")) axes.widths = {1};
  if (arguments.flag("stages")) axes.depths = {static_cast<int>(count(arguments, "stages", 1))};
  if (arguments.flag("microbatch-size"))
    axes.microbatch_sizes = {count(arguments, "microbatch-size", 1)};
  return axes;
}

using Reasons = std::map<std::string, std::vector<std::string>>;

/// In a process of its own: simgrid runs once per process.
Judgement in_process(const Scenario& scenario, Reasons& reasons) {
  const Json answer = Json::parse(in_child(scenario.origin, "simulated", [&] {
    std::vector<std::string> why;
    const Judgement v = judge(scenario, EngineChoice::automatic, &why);
    return Json{{"fits", v.fits},
                {"iteration_time_s", v.iteration_time_s},
                {"memory_bytes", v.memory_bytes},
                {"capacity_bytes", v.capacity_bytes},
                {"engine", v.engine},
                {"why", v.why},
                {"reasons", why}}
        .dump();
  }));
  reasons[scenario.text] = answer["reasons"].get<std::vector<std::string>>();
  // JSON has no infinity, the time of a run without a steady state.
  const Json& time_s = answer["iteration_time_s"];
  const double known_s =
      time_s.is_null() ? std::numeric_limits<double>::infinity() : time_s.get<double>();
  return {answer["fits"].get<bool>(),           known_s,
          answer["memory_bytes"].get<double>(), answer["capacity_bytes"].get<double>(),
          answer["engine"].get<std::string>(),  answer["why"].get<std::string>()};
}

Offer offer_of(const Problem& problem, const FoundPlan& plan, const Reasons& reasons) {
  Offer offer{plan, problem.resolve(plan.choice), {}, {}, {}};
  const auto known = reasons.find(offer.scenario.text);
  if (known != reasons.end()) {
    offer.reasons = known->second;
  } else {
    judge(offer.scenario, EngineChoice::exact, &offer.reasons);
  }
  try {
    offer.megatron = megatron_arguments(offer.scenario);
  } catch (const InputError&) {
    offer.megatron.clear();  // it runs few of the schedules
  }
  return offer;
}

void write_offers(const std::string& folder, std::vector<Offer>& offers) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw SystemError(fmt::format("cannot make the folder '{}': {}", folder, error.message()));
  for (std::size_t i = 0; i < offers.size(); ++i) {
    offers[i].file = (fs::path(folder) / fmt::format("plan-{}.yaml", i + 1)).string();
    std::ofstream file(offers[i].file);
    file << offers[i].scenario.text;
    if (!file.flush()) throw SystemError("cannot write '" + offers[i].file + "'");
  }
}

Terms terms_of(const Arguments& arguments, const Problem& problem) {
  Terms terms{number(arguments, "price", 0), number(arguments, "tokens", 0), 0};
  if (problem.base().transformer) terms.sequence = problem.base().transformer->seq_length;
  if (terms.tokens > 0 && terms.sequence == 0)
    throw InputError("--tokens", "needs a model by shape, whose samples have a length");
  return terms;
}

SearchOptions options_of(const Arguments& arguments) {
  constexpr double kUsualSeconds = 50;
  SearchOptions options;
  const std::string objective = arguments.value("objective", "throughput");
  options.objective = static_cast<Objective>(std::ranges::find(kObjectiveNames, objective) -
                                             std::begin(kObjectiveNames));
  options.most_evaluations = static_cast<std::size_t>(count(arguments, "effort", 3000));
  options.most_seconds = number(arguments, "time-limit", kUsualSeconds);
  options.top = static_cast<std::size_t>(count(arguments, "top", 5));
  return options;
}

/// Searches with progress, beginning with the published plans that are of the kind.
SearchResult search_from(const Problem& problem, const Arguments& arguments, SearchOptions options,
                         const std::vector<PublishedPlan>& published, bool versions,
                         const std::vector<FoundPlan>& known = {}) {
  const auto given = [&](const char* option) { return arguments.flag(option); };
  if (std::ranges::none_of(kNarrowing, given)) options.starts = starts_of(published, versions);
  for (const FoundPlan& plan : known) options.starts.push_back({plan.from, plan.choice});
  Progress progress("planning", static_cast<std::int64_t>(options.most_evaluations));
  options.progress = [&](std::size_t done, double best, double least) {
    const bool found = std::isfinite(best);
    progress.update(static_cast<std::int64_t>(done),
                    found ? fmt::format("best {:.4g}, bound {:.4g}", best, least) : "");
  };
  return search(problem, axes_of(arguments, problem, versions), options);
}

/// Sizes for which a published planner is asked until its plan fits: the given one, or the
/// profile's minibatch and its halves.
std::vector<std::int64_t> microbatches_to_ask(const Arguments& arguments) {
  if (arguments.flag("microbatch-size")) return {count(arguments, "microbatch-size", 1)};
  std::vector<std::int64_t> sizes{count(arguments, "profile-batch", 1)};
  while (sizes.back() % 2 == 0) sizes.push_back(sizes.back() / 2);
  return sizes;
}

/// The published planners are asked where that takes no time to speak of, or when it is wanted.
bool asks_published(const Arguments& arguments, const Problem& problem) {
  constexpr int kFewGpus = 64;
  return arguments.flag("compare") || problem.gpus() <= kFewGpus;
}

}  // namespace

bool wants_full_plan(const Arguments& arguments) {
  constexpr std::array<const char*, 9> kOnlyHere{"compare", "objective",  "schedule",
                                                 "effort",  "time-limit", "asynchronous",
                                                 "price",   "tokens",     "write"};
  if (arguments.flag("search")) return arguments.value("search") == "full";
  return std::ranges::any_of(kOnlyHere, [&](const char* o) { return arguments.flag(o); });
}

int run_full_plan(const Arguments& arguments) {
  refuse_others(arguments);
  const Problem problem = problem_of(arguments);
  SearchOptions options = options_of(arguments);
  Reasons reasons;
  options.confirm = [&](const Scenario& scenario) { return in_process(scenario, reasons); };
  std::vector<PublishedPlan> published;
  if (asks_published(arguments, problem))
    published = published_plans(problem, microbatches_to_ask(arguments));
  const bool versions = arguments.flag("asynchronous"), compares = arguments.flag("compare");
  FullPlan full{problem, options, terms_of(arguments, problem), {}, {}, {}};
  full.result = search_from(problem, arguments, options, published, versions && !compares);
  if (compares) {
    // With several versions one is still allowed.
    SearchResult several =
        search_from(problem, arguments, options, published, true, full.result.plans);
    full.compared = compared(published, full.result, several);
    if (versions) full.result = std::move(several);
  }
  for (const FoundPlan& plan : full.result.plans)
    full.offers.push_back(offer_of(problem, plan, reasons));
  if (arguments.flag("write")) write_offers(arguments.value("write"), full.offers);
  if (arguments.flag("report"))
    write_report(plan_report(full, arguments), arguments.value("report"));
  const std::string format = arguments.value("format", "table");
  put_output(arguments, format == "json"  ? to_json(full).dump(2) + "\n"
                        : format == "csv" ? plans_csv(full)
                                          : to_text(full));
  return exit_ok;
}

}  // namespace penstock
