#include "plan/search/full_plan.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "plan/search/task.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

/// Where no batch is given, the usual one: of microbatches of the profile's minibatch, as they are
/// asked for, or as they were measured.
Problem with_batch(const std::string& text, const std::string& origin,
                   const FullPlanRequest& request) {
  if (request.batch > 0) return Problem(text, origin, request.batch, request.headroom);
  const Problem one(text, origin, 1);
  const std::int64_t size = request.source.input == PlanInput::profile ? request.source.minibatch()
                            : request.microbatch_size > 0              ? request.microbatch_size
                            : one.base().layer_profile                 ? one.base().microbatch_size
                                                                       : 1;
  return Problem(text, origin, kBatchPerDevice * one.gpus() * size, request.headroom);
}

Problem unchecked_problem(const FullPlanRequest& request) {
  const PlanSource& source = request.source;
  if (source.input == PlanInput::profile)
    return with_batch(profile_problem(source), source.name, request);
  if (source.input == PlanInput::scenario)
    return Problem(load_scenario(source.name, source.changes).text,
                   source.name == "-" ? "standard input" : source.name, request.batch,
                   request.headroom);
  return with_batch(model_problem(source), source.origin(), request);
}

/// Costs that were measured are known of few microbatches and recomputations.
void keep_profiled(const Scenario& base, Axes& axes) {
  if (!base.layer_profile) return;
  const auto known = [&](std::int64_t size, const Recomputation& recompute) {
    const ProfileUse use = base.layer_profile->use(static_cast<double>(size), recompute.granularity,
                                                   base.cluster.devices());
    return base.layer_profile->refuse_recompute(use).empty() &&
           base.layer_profile->refuse_size(use).empty();
  };
  std::erase_if(axes.microbatch_sizes, [&](std::int64_t size) {
    return std::ranges::none_of(axes.recomputes, [&](const auto& r) { return known(size, r); });
  });
  std::erase_if(axes.recomputes, [&](const Recomputation& recompute) {
    return std::ranges::none_of(axes.microbatch_sizes,
                                [&](std::int64_t size) { return known(size, recompute); });
  });
}

Axes asked_axes(const FullPlanRequest& request, const Problem& problem, bool versions) {
  Axes axes = problem.axes(versions);
  if (!request.recomputes.empty())
    axes.recomputes.assign(request.recomputes.begin(), request.recomputes.end());
  if (request.microbatch_size > 0) axes.microbatch_sizes = {request.microbatch_size};
  keep_profiled(problem.base(), axes);
  if (!request.schedules.empty()) axes.schedules = request.schedules;
  if (request.straight) axes.widths = {1};
  if (request.stages > 0) axes.depths = {request.stages};
  return axes;
}

/// Begins with the published plans that are of the kind.
SearchResult search_from(const Problem& problem, const FullPlanRequest& request,
                         const SearchCallbacks& callbacks, SearchOptions options,
                         const std::vector<PublishedPlan>& published, bool versions,
                         const std::vector<FoundPlan>& known = {}) {
  if (!request.narrows) options.starts = starts_of(published, versions);
  for (const FoundPlan& plan : known) options.starts.push_back({plan.from, plan.choice});
  return callbacks.search(problem, asked_axes(request, problem, versions), options);
}

/// The best plans of each kind of GPUs without the others: what adding those is worth.
std::vector<KindAlone> kinds_alone(const FullPlan& full, const SearchCallbacks& callbacks,
                                   SearchOptions options) {
  const Problem& problem = full.problem;
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
    const SearchResult result =
        search_from(alone, full.request, callbacks, options, {}, full.request.asynchronous);
    if (!result.plans.empty()) {
      kind.plan = result.plans.front();
      kind.optimistic = alone.resolve(kind.plan->choice).optimistic;
    }
    found.push_back(std::move(kind));
  }
  return found;
}

/// The published planners are asked where that takes no time to speak of, or when it is wanted.
bool asks_published(const FullPlanRequest& request, const Problem& problem) {
  constexpr int kFewGpus = 64;
  return request.compares || problem.gpus() <= kFewGpus;
}

/// Sizes for which a published planner is asked until its plan fits: the given one, the measured
/// one, or the profile's minibatch and its halves.
std::vector<std::int64_t> microbatches_to_ask(const FullPlanRequest& request,
                                              const Problem& problem) {
  if (request.microbatch_size > 0) return {request.microbatch_size};
  if (problem.base().layer_profile) return {problem.base().microbatch_size};
  std::vector<std::int64_t> sizes{request.source.minibatch()};
  while (sizes.back() % 2 == 0) sizes.push_back(sizes.back() / 2);
  return sizes;
}

/// Fills in what our search and, where it is wanted, the published planners find.
void find_plans(FullPlan& full, const SearchCallbacks& callbacks, const SearchOptions& options,
                const std::vector<PublishedPlan>& published) {
  const FullPlanRequest& request = full.request;
  const bool versions = request.asynchronous;
  full.result = search_from(full.problem, request, callbacks, options, published,
                            versions && !request.compares);
  if (!request.compares) return;
  // With several versions one is still allowed.
  SearchResult several =
      search_from(full.problem, request, callbacks, options, published, true, full.result.plans);
  full.compared = compared(published, full.result, several);
  full.compared_notes = task_of(full.problem.base()).notes;
  if (versions) full.result = std::move(several);
}

/// The same, where others look at the candidates.
void find_plans_elsewhere(FullPlan& full, const SearchCallbacks& callbacks, SearchOptions options,
                          const std::vector<PublishedPlan>& published, Reasons& reasons) {
  const Problem& problem = full.problem;
  callbacks.elsewhere({problem.text(), problem.origin(), problem.batch(), problem.headroom()},
                      [&](const Others& others) {
                        const auto look_at = [&](const std::vector<Question>& questions) {
                          std::vector<Looked> answers = others.look_at(questions);
                          for (const Looked& looked : answers)
                            if (!looked.reasons.empty()) reasons[looked.scenario] = looked.reasons;
                          return answers;
                        };
                        options.others = Others{look_at, others.at_once};
                        find_plans(full, callbacks, options, published);
                      });
}

}  // namespace

Problem problem_of(const FullPlanRequest& request) {
  Problem problem = unchecked_problem(request);
  const auto& layer_profile = problem.base().layer_profile;
  if (!layer_profile || request.microbatch_size == 0) return problem;
  const std::string why = layer_profile->refuse_size(
      layer_profile->use(static_cast<double>(request.microbatch_size), Recompute::none,
                         problem.base().cluster.devices()));
  if (!why.empty()) throw InputError("--microbatch-size", why);
  return problem;
}

void check_terms(const Terms& terms, const Problem& problem) {
  const auto& transformer = problem.base().transformer;
  if (terms.tokens > 0 && (!transformer || transformer->seq_length == 0))
    throw InputError("--tokens", "needs a model by shape, whose samples have a length");
}

FullPlan find_full_plan(const Problem& problem, const FullPlanRequest& request,
                        const SearchCallbacks& callbacks) {
  SearchOptions options = request.search;
  Reasons reasons;
  options.confirm = [&](const Scenario& scenario) {
    return judge(scenario, EngineChoice::automatic, &reasons[scenario.text], problem.programs());
  };
  std::vector<PublishedPlan> published;
  if (asks_published(request, problem))
    published = published_plans(problem, microbatches_to_ask(request, problem));
  FullPlan full{problem, request};
  if (callbacks.elsewhere)
    find_plans_elsewhere(full, callbacks, options, published, reasons);
  else
    find_plans(full, callbacks, options, published);
  const Axes axes = asked_axes(request, problem, request.asynchronous);
  full.offers = offers_of(problem, full.result.plans, reasons, axes, options);
  if (!full.offers.empty()) full.alone = kinds_alone(full, callbacks, options);
  full.without_headroom = search_without_headroom(problem, axes, options, full.result);
  return full;
}

double gpu_hours(const FoundPlan& plan) {
  constexpr double kSecondsPerHour = 3600;
  return plan.judgement.iteration_time_s / kSecondsPerHour * plan.choice.gpus();
}

std::string FullPlan::model_name() const {
  const Scenario& base = problem.base();
  return base.transformer ? base.transformer->name : base.name;
}

bool FullPlan::usual_batch() const {
  return request.source.input != PlanInput::scenario && request.batch == 0;
}

std::vector<std::string> FullPlan::notes() const {
  std::vector<std::string> lines = problem.base().file_notes;
  if (usual_batch())
    lines.push_back(fmt::format(
        "no batch is given: {} samples per update, {} for each GPU; a larger one fills pipelines "
        "better (--batch)",
        problem.batch(), problem.batch() / problem.gpus()));
  return lines;
}

std::vector<std::string> FullPlan::not_searched() const {
  std::vector<std::string> out;
  if (!request.asynchronous)
    out.emplace_back("schedules with several weight versions (--asynchronous)");
  const auto fixed = [&](const std::optional<bool>& said, const char* what) {
    if (said) out.push_back(fmt::format("plans {} {}", *said ? "without" : "with", what));
  };
  fixed(problem.sequence_parallel(), "sequence parallelism");
  fixed(problem.distributed_optimizer(), "a distributed optimizer (ZeRO-1)");
  for (const std::string& axis : problem.other_axes())
    out.push_back(fmt::format("the scenario's {} (plans without)", axis));
  if (!problem.accumulation_steps().empty())
    out.push_back(fmt::format("the scenario's {} accumulation steps (plans without)",
                              problem.accumulation_steps()));
  if (problem.base().layer_profile) out.emplace_back("tensor degrees, which were not measured");
  if (!problem.selective_frees())
    out.emplace_back("selective recomputation, which frees nothing with flash attention");
  if (!result.single_layers) out.emplace_back("recomputation of single layers");
  const auto short_stages = [](const Offer& offer) {
    const std::vector<int>& layers = offer.plan.choice.layers;
    return layers.size() > 1 && std::ranges::min(layers) == 1;
  };
  if (std::ranges::any_of(offers, short_stages))
    out.emplace_back("stages without layers (of the embedding or the LM head alone)");
  for (const char* always : {"sharded gradients or weights (ZeRO-2, ZeRO-3)",
                             "context and expert parallelism", "offloading"})
    out.emplace_back(always);
  return out;
}

std::string FullPlan::infeasible_because() const {
  const std::string& why = result.infeasible_because;
  const Scenario& base = problem.base();
  double there_bytes = 0;
  for (int gpu = 0; gpu < base.cluster.devices(); ++gpu)
    there_bytes += static_cast<double>(base.cluster.device_of(gpu).capacity_bytes());
  const double state_bytes = task_of(base).model->state_bytes();
  if (why.empty() || there_bytes == 0 || state_bytes <= there_bytes) return why;
  return fmt::format("{}: weights, gradients and optimizer state are {}, all {} GPUs have {}", why,
                     format_bytes(state_bytes), problem.gpus(), format_bytes(there_bytes));
}

double FullPlan::updates() const {
  if (request.terms.tokens <= 0) return 0;
  return request.terms.tokens /
         static_cast<double>(problem.base().transformer->seq_length * problem.batch());
}

}  // namespace penstock
