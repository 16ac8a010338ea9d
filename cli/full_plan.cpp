#include "cli/full_plan.hpp"

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/progress.hpp"
#include "base/say.hpp"
#include "base/suggest.hpp"
#include "base/terminal.hpp"
#include "results/advice.hpp"
#include "scenarios/exchange_forms.hpp"
#include "scenarios/megatron_arguments.hpp"
#include "cli/output.hpp"
#include "cli/plan_files.hpp"
#include "cli/plan_report.hpp"
#include "cli/planning.hpp"
#include "cli/running.hpp"
#include "sweep/python_workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

namespace penstock {
namespace {

/// Options that leave out plans which the published planners might choose.
constexpr std::array<const char*, 5> kNarrowing{"straight", "stages", "schedule", "recompute",
                                                "uniform-recompute"};

/// What the options say.
struct Asked {
  PlanInput input = PlanInput::model;
  std::int64_t batch = 0;            ///< 0: the scenario's, or a usual one
  std::int64_t microbatch_size = 0;  ///< 0: any
  std::int64_t profile_batch = 1;
  int stages = 0;  ///< 0: any
  std::vector<PlanLevel> levels;
  std::optional<double> memory_bytes;
  double headroom = 0;
  std::vector<const Schedule*> schedules;  ///< none: all
  std::vector<Recompute> recomputes;       ///< none: all
  Terms terms;
  SearchOptions search;
};

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
  for (const char* option : {"output", "report"}) {
    const std::string why = missing_folder(arguments, option);
    if (!why.empty()) options.wrong(option, why);
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
  constexpr std::size_t kEvaluationsPerTrial = 100;
  search.most_trials = search.most_evaluations / kEvaluationsPerTrial;
  search.most_seconds = options.positive("time-limit").value_or(kUsualSeconds);
  search.top = static_cast<std::size_t>(options.integer("top", kMostPlans).value_or(5));
  search.uniform_recompute = arguments.flag("uniform-recompute");
  return search;
}

/// Throws InputError with everything that is wrong with the options.
Asked asked_by(const Arguments& arguments) {
  PlanOptions options(arguments);
  Asked asked;
  asked.input = input_of(arguments.positional[0]);
  asked.batch = options.integer("batch", kMostSamples).value_or(0);
  asked.microbatch_size = options.integer("microbatch-size", kMostSamples).value_or(0);
  asked.profile_batch = options.integer("profile-batch", kMostSamples).value_or(1);
  asked.stages = static_cast<int>(options.integer("stages", kMostDevices).value_or(0));
  asked.levels = options.levels();
  asked.memory_bytes = options.bytes("memory");
  asked.headroom = options.share("headroom").value_or(kUsualHeadroom);
  asked.schedules = schedules_of(arguments, options);
  for (const std::string& name : arguments.values("recompute"))
    asked.recomputes.push_back(static_cast<Recompute>(std::ranges::find(kRecomputeNames, name) -
                                                      std::begin(kRecomputeNames)));
  asked.terms = {options.positive("price").value_or(0), options.positive("tokens").value_or(0), 0};
  asked.search = search_options(arguments, options);
  if (asked.levels.size() > 2)
    options.wrong("level",
                  "the full search takes two levels at most; describe deeper networks as a cluster "
                  "(docs/scenario.md) and give that with --cluster");
  require_devices(arguments, asked.input, options);
  refuse_others(arguments, asked.input, options);
  if (arguments.flag("write")) {
    const std::string why = PlanFolder::refuse(arguments.value("write"), arguments.flag("force"));
    if (!why.empty()) options.wrong("write", why);
  }
  options.throw_if_wrong();
  return asked;
}

/// Where no batch is given, the usual one: of microbatches of the profile's minibatch, as they are
/// asked for, or as they were measured.
Problem with_batch(const std::string& text, const std::string& origin, const Asked& asked) {
  if (asked.batch > 0) return Problem(text, origin, asked.batch, asked.headroom);
  const Problem one(text, origin, 1);
  const std::int64_t size = asked.input == PlanInput::profile ? asked.profile_batch
                            : asked.microbatch_size > 0       ? asked.microbatch_size
                            : one.base().measured             ? one.base().microbatch_size
                                                              : 1;
  return Problem(text, origin, kBatchPerDevice * one.gpus() * size, asked.headroom);
}

/// The scenario to plan for: that of a file, a profile on devices, or a model on a cluster.
Problem problem_of(const Arguments& arguments, const Asked& asked) {
  const std::string& name = arguments.positional[0];
  if (asked.input == PlanInput::profile)
    return with_batch(
        profile_problem(arguments, asked.levels, asked.memory_bytes, asked.profile_batch), name,
        asked);
  if (asked.input == PlanInput::scenario)
    return Problem(load_scenario(name, overrides_of(arguments)).text,
                   name == "-" ? "standard input" : name, asked.batch, asked.headroom);
  return with_batch(model_problem(arguments, asked.input), "penstock plan " + name, asked);
}

/// Throws InputError for a microbatch size of which nothing was measured.
void check_size(const Asked& asked, const Problem& problem) {
  const auto& measured = problem.base().measured;
  if (!measured || asked.microbatch_size == 0) return;
  const std::string why =
      measured->refuse_size(measured->use(static_cast<double>(asked.microbatch_size),
                                          Recompute::none, problem.base().cluster.devices()));
  if (!why.empty()) throw InputError("--microbatch-size", why);
}

/// Costs that were measured are known of few microbatches and recomputations.
void keep_measured(const Scenario& base, Axes& axes) {
  if (!base.measured) return;
  const auto known = [&](std::int64_t size, const Recomputation& recompute) {
    const MeasuredUse use = base.measured->use(static_cast<double>(size), recompute.granularity,
                                               base.cluster.devices());
    return base.measured->refuse_recompute(use).empty() && base.measured->refuse_size(use).empty();
  };
  std::erase_if(axes.microbatch_sizes, [&](std::int64_t size) {
    return std::ranges::none_of(axes.recomputes, [&](const auto& r) { return known(size, r); });
  });
  std::erase_if(axes.recomputes, [&](const Recomputation& recompute) {
    return std::ranges::none_of(axes.microbatch_sizes,
                                [&](std::int64_t size) { return known(size, recompute); });
  });
}

Axes axes_of(const Arguments& arguments, const Asked& asked, const Problem& problem,
             bool versions) {
  Axes axes = problem.axes(versions);
  if (!asked.recomputes.empty())
    axes.recomputes.assign(asked.recomputes.begin(), asked.recomputes.end());
  if (asked.microbatch_size > 0) axes.microbatch_sizes = {asked.microbatch_size};
  keep_measured(problem.base(), axes);
  if (!asked.schedules.empty()) axes.schedules = asked.schedules;
  if (arguments.flag("straight")) axes.widths = {1};
  if (asked.stages > 0) axes.depths = {asked.stages};
  return axes;
}

using Reasons = std::map<std::string, std::vector<std::string>>;

/// The text of a form, or why there is none.
struct Form {
  std::string text, why_not;
};

Form in_form(std::string (*form)(const Scenario&), const Scenario& scenario) {
  try {
    return {form(scenario), ""};
  } catch (const InputError& error) {
    std::string why;
    for (const Diagnostic& d : error.diagnostics()) why += (why.empty() ? "" : "; ") + d.message;
    return {"", why};
  }
}

/// "stages 0-3 on A100-80: GPUs 0-31", for each kind of GPU; empty where all are of one.
std::vector<std::string> where_stages_lie(const Scenario& scenario) {
  if (scenario.cluster.groups.size() < 2) return {};
  const Placement placement = scenario.placement();
  struct Run {
    std::string device;
    std::vector<int> positions, gpus;
  };
  std::vector<Run> runs;
  for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(placement.depth()); ++s) {
    std::map<std::string, std::vector<int>> by_kind;
    for (std::uint32_t r = 0; r < static_cast<std::uint32_t>(placement.widths()[s]); ++r)
      for (const int gpu : scenario.gpus_of(placement.device_at(r, s)))
        by_kind[scenario.cluster.device_of(gpu).name].push_back(gpu);
    std::string device;
    std::vector<int> gpus;
    for (const auto& [name, of_kind] : by_kind) {
      device += (device.empty() ? "" : " and ") + name;
      gpus.insert(gpus.end(), of_kind.begin(), of_kind.end());
    }
    if (runs.empty() || runs.back().device != device) runs.push_back({device, {}, {}});
    runs.back().positions.push_back(static_cast<int>(s));
    runs.back().gpus.insert(runs.back().gpus.end(), gpus.begin(), gpus.end());
  }
  std::vector<std::string> lines;
  for (Run& run : runs) {
    std::ranges::sort(run.gpus);
    lines.push_back(fmt::format("{} {} on {}: GPUs {}",
                                run.positions.size() > 1 ? "stages" : "stage",
                                ranges_text(run.positions), run.device, ranges_text(run.gpus)));
  }
  return lines;
}

/// Is it among what was to be looked at?
bool is_within(const Axes& axes, const Scenario& s) {
  const auto has = [](const auto& list, const auto& value) {
    return std::ranges::find(list, value) != list.end();
  };
  return has(axes.schedules, s.schedule) && has(axes.tensors, s.mesh.size(Axis::tensor)) &&
         has(axes.depths, static_cast<int>(s.shape.depth)) &&
         has(axes.chunks, static_cast<int>(s.shape.chunks)) &&
         (s.mesh.size(Axis::tensor) == 1 || has(axes.sequence_parallel, s.sequence_parallel)) &&
         has(axes.microbatch_sizes, s.microbatch_size) &&
         std::ranges::all_of(s.mesh.width.values(), [&](int w) { return has(axes.widths, w); }) &&
         std::ranges::all_of(s.recompute.values(), [&](const Recomputation& r) {
           return axes.single_layers || has(axes.recomputes, r);
         });
}

/// Where most of the bubble is imbalance: what `penstock simulate` would advise, of what was asked
/// for.
std::vector<std::string> help_for(const Scenario& scenario, const Judgement& judgement,
                                  const Axes& axes) {
  if (judgement.main_cause != "imbalance") return {};
  std::vector<std::string> lines;
  const Simulation today = simulate(scenario, EngineChoice::automatic);
  const ChangesStudy study = study_changes(
      today, summarize(today), [&](const Scenario& other) { return is_within(axes, other); });
  for (const Advice& advice : study.found)
    lines.push_back(
        fmt::format("{}: update time {:+.1f} %", advice.change, 100 * (advice.time_ratio - 1)));
  if (!study.incomplete_because.empty())
    lines.push_back(fmt::format("not complete: {}", study.incomplete_because));
  return lines;
}

Offer offer_of(const Problem& problem, const FoundPlan& plan, const Reasons& reasons) {
  Offer offer;
  offer.plan = plan;
  offer.scenario = problem.resolve(plan.choice);
  const auto known = reasons.find(offer.scenario.text);
  if (known != reasons.end()) {
    offer.reasons = known->second;
  } else {
    offer.plan.judgement.main_cause =
        judge(offer.scenario, EngineChoice::exact, &offer.reasons, problem.programs()).main_cause;
  }
  offer.placed = where_stages_lie(offer.scenario);
  const Form megatron = in_form(megatron_arguments, offer.scenario);
  offer.megatron = megatron.text;
  offer.no_megatron = megatron.why_not;
  const Form table = in_form(torch_csv, offer.scenario);
  offer.torch_csv = table.text;
  offer.no_torch_csv = table.why_not;
  return offer;
}

/// Of each that Megatron-LM does not run, the fastest that it does.
void name_those_for_megatron(std::vector<Offer>& offers) {
  const auto runs = [](const Offer& offer) { return !offer.megatron.empty(); };
  const auto fastest = std::ranges::min_element(offers, {}, [&](const Offer& offer) {
    return std::pair(!runs(offer), offer.plan.judgement.iteration_time_s);
  });
  if (fastest == offers.end() || !runs(*fastest)) return;
  for (Offer& offer : offers)
    if (!runs(offer)) offer.megatron_plan = static_cast<int>(fastest - offers.begin()) + 1;
}

void write_offers(const Arguments& arguments, PlanFolder& folder, std::vector<Offer>& offers) {
  for (std::size_t i = 0; i < offers.size(); ++i) {
    Offer& offer = offers[i];
    std::vector<PlanFile> files{{"yaml", offer.scenario.text}};
    const auto add = [&](const char* ending, const std::string& text) {
      if (!text.empty()) files.push_back({ending, text});
    };
    add("csv", offer.torch_csv);
    add("megatron.txt", offer.megatron);
    offer.files = folder.write(static_cast<int>(i) + 1, files);
  }
  if (arguments.flag("force") && !offers.empty()) folder.remove_others();
}

Terms terms_of(Terms terms, const Problem& problem) {
  if (problem.base().transformer) terms.sequence = problem.base().transformer->seq_length;
  if (terms.tokens > 0 && terms.sequence == 0)
    throw InputError("--tokens", "needs a model by shape, whose samples have a length");
  return terms;
}

/// Searches with progress, beginning with the published plans that are of the kind.
SearchResult search_from(const Problem& problem, const Arguments& arguments, const Asked& asked,
                         SearchOptions options, const std::vector<PublishedPlan>& published,
                         bool versions, const std::vector<FoundPlan>& known = {}) {
  const auto given = [&](const char* option) { return arguments.flag(option); };
  if (std::ranges::none_of(kNarrowing, given)) options.starts = starts_of(published, versions);
  for (const FoundPlan& plan : known) options.starts.push_back({plan.from, plan.choice});
  Progress progress(std::isfinite(options.most_seconds)
                        ? fmt::format("planning, {:.3g} s at most", options.most_seconds)
                        : "planning",
                    static_cast<std::int64_t>(options.most_evaluations));
  options.progress = [&](std::size_t done, double best, double least) {
    const bool found = std::isfinite(best);
    progress.update(static_cast<std::int64_t>(done),
                    found ? fmt::format("best {:.4g}, bound {:.4g}", best, least) : "");
  };
  return search(problem, axes_of(arguments, asked, problem, versions), options);
}

/// The best plans of each kind of GPUs without the others: what adding those is worth.
std::vector<KindAlone> kinds_alone(const Problem& problem, const Arguments& arguments,
                                   const Asked& asked, SearchOptions options, bool versions) {
  std::vector<KindAlone> found;
  options.most_seconds /= 2;
  options.top = 1;
  for (const NodeGroup& group : problem.base().cluster.groups) {
    const std::string& device = group.node.device.name;
    const auto known = [&](const KindAlone& kind) { return kind.device == device; };
    if (std::ranges::any_of(found, known)) continue;
    const auto text = problem.text_of_kind(device);
    if (!text) return {};
    const Problem alone(*text, "GPUs of one kind alone", problem.batch(), problem.headroom());
    if (alone.gpus() == problem.gpus()) return {};  // there is one kind
    KindAlone kind{device, alone.gpus(), {}, false};
    const SearchResult result = search_from(alone, arguments, asked, options, {}, versions);
    if (!result.plans.empty()) {
      kind.plan = result.plans.front();
      kind.optimistic = alone.resolve(kind.plan->choice).optimistic;
    }
    found.push_back(std::move(kind));
  }
  return found;
}

/// The published planners are asked where that takes no time to speak of, or when it is wanted.
bool asks_published(const Arguments& arguments, const Problem& problem) {
  constexpr int kFewGpus = 64;
  return arguments.flag("compare") || problem.gpus() <= kFewGpus;
}

/// Sizes for which a published planner is asked until its plan fits: the given one, the measured
/// one, or the profile's minibatch and its halves.
std::vector<std::int64_t> microbatches_to_ask(const Asked& asked, const Problem& problem) {
  if (asked.microbatch_size > 0) return {asked.microbatch_size};
  if (problem.base().measured) return {problem.base().microbatch_size};
  std::vector<std::int64_t> sizes{asked.profile_batch};
  while (sizes.back() % 2 == 0) sizes.push_back(sizes.back() / 2);
  return sizes;
}

void put_answer(const Arguments& arguments, const FullPlan& full) {
  if (arguments.flag("report"))
    write_report(plan_report(full, arguments), arguments.value("report"));
  const std::string format = arguments.value("format", "table");
  if (format == "csv" && full.usual_batch) say("note: {}\n", full.notes().back());
  put_result(arguments, format == "json"  ? to_json(full).dump(2) + "\n"
                        : format == "csv" ? plans_csv(full)
                                          : to_text(full, results_width()));
}

/// Fills in what our search and, with --compare, the published planners find.
void find_plans(FullPlan& full, const Arguments& arguments, const Asked& asked,
                const SearchOptions& options, const std::vector<PublishedPlan>& published) {
  const bool versions = full.several_versions, compares = arguments.flag("compare");
  const Problem& problem = full.problem;
  full.result = search_from(problem, arguments, asked, options, published, versions && !compares);
  if (!compares) return;
  // With several versions one is still allowed.
  SearchResult several =
      search_from(problem, arguments, asked, options, published, true, full.result.plans);
  full.compared = compared(published, full.result, several);
  full.compared_notes = task_of(problem.base()).notes;
  if (versions) full.result = std::move(several);
}

/// Every question to a worker of its own.
std::vector<Looked> answers_of(Elsewhere& workers, const std::vector<Question>& questions) {
  std::vector<Looked> answers(questions.size());
  std::size_t asked = 0;
  WorkItems items;
  items.most_in_chunk = 1;
  items.next = [&]() -> std::optional<std::string> {
    if (asked == questions.size()) return std::nullopt;
    const std::size_t number = asked++;
    return to_json(number, questions[number]);
  };
  items.take = [&](std::string_view answer) {
    NumberedLook look = numbered_look(answer);
    answers.at(look.number) = std::move(look.looked);
  };
  items.lost = [](const std::string&, const std::string& why) {
    throw SystemError("a worker cannot look at plans: " + why);
  };
  workers.run(items, {});
  return answers;
}

/// The same, by who is at `--on`.
void find_plans_on(FullPlan& full, const Arguments& arguments, const Asked& asked,
                   SearchOptions options, const std::vector<PublishedPlan>& published,
                   Reasons& reasons) {
  const Problem& problem = full.problem;
  work_on(arguments.value("on"), [&](int in, int out) {
    Elsewhere workers(in, out,
                      to_json(ProblemRecipe{problem.text(), problem.origin(), problem.batch(),
                                            problem.headroom()}));
    const auto look_at = [&](const std::vector<Question>& questions) {
      std::vector<Looked> answers = answers_of(workers, questions);
      for (const Looked& looked : answers)
        if (!looked.reasons.empty()) reasons[looked.scenario] = looked.reasons;
      return answers;
    };
    options.others = Others{look_at, [&] { return std::max<std::size_t>(1, workers.wanted()); }};
    find_plans(full, arguments, asked, options, published);
    workers.end();
  });
}

}  // namespace

bool wants_full_plan(const Arguments& arguments) {
  if (arguments.flag("search")) return find_planner(arguments.value("search")) == nullptr;
  return std::ranges::any_of(kOnlyFull, [&](const char* o) { return arguments.flag(o); });
}

namespace {

/// Asks for the plans and says them.
void put_plans(const Arguments& arguments, const Asked& asked, const Problem& problem) {
  const Terms terms = terms_of(asked.terms, problem);
  std::optional<PlanFolder> folder;  // before the search, which takes its time
  if (arguments.flag("write")) folder.emplace(arguments.value("write"));
  SearchOptions options = asked.search;
  Reasons reasons;
  options.confirm = [&](const Scenario& scenario) {
    return judge(scenario, EngineChoice::automatic, &reasons[scenario.text], problem.programs());
  };
  std::vector<PublishedPlan> published;
  if (asks_published(arguments, problem))
    published = published_plans(problem, microbatches_to_ask(asked, problem));
  const bool versions = arguments.flag("asynchronous");
  FullPlan full{problem, asked.search, terms, {}, {}, {}, {}, {}, versions};
  full.usual_batch = asked.input != PlanInput::scenario && asked.batch == 0;
  if (arguments.flag("on"))
    find_plans_on(full, arguments, asked, options, published, reasons);
  else
    find_plans(full, arguments, asked, options, published);
  for (const FoundPlan& plan : full.result.plans)
    full.offers.push_back(offer_of(problem, plan, reasons));
  name_those_for_megatron(full.offers);
  const Axes axes = axes_of(arguments, asked, problem, versions);
  if (!full.offers.empty())
    full.offers[0].would_help =
        help_for(full.offers[0].scenario, full.offers[0].plan.judgement, axes);
  if (!full.offers.empty()) full.alone = kinds_alone(problem, arguments, asked, options, versions);
  full.without_headroom = search_without_headroom(problem, axes, options, full.result);
  if (folder) write_offers(arguments, *folder, full.offers);
  put_answer(arguments, full);
}

}  // namespace

int run_full_plan(const Arguments& arguments) {
  const Asked asked = asked_by(arguments);
  const Problem problem = problem_of(arguments, asked);
  check_size(asked, problem);
  put_plans(arguments, asked, problem);
  return exit_ok;
}

namespace {

/// What is wrong with a model and a cluster that are named; nothing where they are not, or right.
std::vector<Diagnostic> wrong_names(const Arguments& arguments) {
  try {
    const PlanInput input = input_of(arguments.positional[0]);
    if (input != PlanInput::model || !arguments.flag("cluster")) return {};
    Problem(model_problem(arguments, input), "penstock plan " + arguments.positional[0], 1);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

}  // namespace

std::optional<InputError> full_plan_unless_refused(const Arguments& arguments) {
  std::optional<Asked> asked;
  std::optional<Problem> problem;
  try {
    asked.emplace(asked_by(arguments));
    problem.emplace(problem_of(arguments, *asked));
    check_size(*asked, *problem);
  } catch (const InputError& error) {
    if (arguments.positional[0] == "-") throw;  // it is read once
    return together(error, wrong_names(arguments));
  }
  put_plans(arguments, *asked, *problem);
  return std::nullopt;
}

std::vector<Diagnostic> wrong_plan_options(const Arguments& arguments) {
  Arguments of_any_model = arguments;
  of_any_model.positional[0] = "llama-3-8b";
  std::vector<Diagnostic> names;
  for (const Diagnostic& d : wrong_names(of_any_model))
    names.push_back({{"--cluster", 0, 0}, d.message, "", 1, 0});
  try {
    asked_by(of_any_model);
  } catch (const InputError& error) {
    return together(error, names).diagnostics();
  }
  return names;
}

}  // namespace penstock
