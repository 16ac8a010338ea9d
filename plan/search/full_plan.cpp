// SPDX-License-Identifier: Apache-2.0
#include "plan/search/full_plan.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "plan/search/task.hpp"
#include "results/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace penstock {
namespace {

std::int64_t tokens_per_sample(const Problem& problem) {
  const auto& transformer = problem.base().transformer;
  return transformer ? transformer->seq_length : 0;
}

/// Where no batch is given, the usual one: of microbatches of the profile's minibatch, as they are
/// asked for, or as they were measured.
Problem with_batch(const std::string& text, const std::string& origin,
                   const FullPlanRequest& request) {
  const PlanSource& source = request.source;
  if (request.batch > 0) return Problem(text, origin, request.batch, request.headroom);
  const Problem one(text, origin, 1);
  if (source.batch_tokens)
    return Problem(text, origin, samples_of(*source.batch_tokens, tokens_per_sample(one)),
                   request.headroom);
  const std::int64_t size = source.input == PlanInput::profile ? source.minibatch()
                            : request.microbatch_size > 0      ? request.microbatch_size
                            : one.base().layer_profile         ? one.base().microbatch_size
                                                               : 1;
  return Problem(text, origin, kBatchPerDevice * one.gpus() * size, request.headroom);
}

Problem scenario_problem(const FullPlanRequest& request) {
  const PlanSource& source = request.source;
  const PlannedScenario planned = planned_scenario(source);
  const auto& transformer = planned.scenario.transformer;
  const std::int64_t batch =
      source.batch_tokens
          ? samples_of(*source.batch_tokens, transformer ? transformer->seq_length : 0)
          : request.batch;
  Problem problem(planned.scenario.source.document(),
                  source.name == "-" ? "standard input" : source.name, batch, request.headroom);
  problem.set_why_not_as_given(planned.why_not_as_given);
  return problem;
}

Problem unchecked_problem(const FullPlanRequest& request) {
  const PlanSource& source = request.source;
  if (source.input == PlanInput::profile)
    return with_batch(profile_problem(source), source.name, request);
  if (source.input == PlanInput::scenario) return scenario_problem(request);
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
  const Axes axes = asked_axes(request, problem, versions);
  const bool without_context = std::ranges::find(axes.contexts, 1) != axes.contexts.end();
  if (!request.narrows && without_context) options.starts = starts_of(published, versions);
  for (const FoundPlan& plan : known) options.starts.push_back({plan.from, plan.choice});
  return callbacks.search(problem, axes, options);
}

/// What is left of the time for everything.
class Budget {
 public:
  explicit Budget(double most_s) : most_s_(most_s) {}

  double left_s() const {
    const auto now = std::chrono::steady_clock::now();
    return std::max(0.0, most_s_ - std::chrono::duration<double>(now - started_).count());
  }
  /// With a share of it.
  SearchOptions share(SearchOptions options, double share) const {
    options.most_seconds = share * left_s();
    return options;
  }

 private:
  double most_s_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

/// Kinds of GPUs that are not all there is.
std::vector<std::string> kinds_of(const Cluster& cluster) {
  std::vector<std::string> kinds;
  for (const NodeGroup& group : cluster.groups)
    if (std::ranges::find(kinds, group.node.device.name) == kinds.end())
      kinds.push_back(group.node.device.name);
  if (kinds.size() < 2) kinds.clear();
  return kinds;
}

/// The best plans of each kind of GPUs without the others: what adding those is worth.
std::vector<KindAlone> kinds_alone(const FullPlan& full, const SearchCallbacks& callbacks,
                                   SearchOptions options, const Budget& budget) {
  const Problem& problem = full.problem;
  std::vector<KindAlone> found;
  options.top = 1;
  const std::vector<std::string> kinds = kinds_of(problem.base().cluster);
  for (const std::string& device : kinds) {
    const auto document = problem.document_of_kind(device);
    if (!document) return {};
    Problem alone(*document, "GPUs of one kind alone", problem.batch(), problem.headroom());
    alone.set_most_ops(problem.most_ops());
    KindAlone kind{device, alone.gpus(), {}, false};
    options = budget.share(options, 1.0 / static_cast<double>(kinds.size() - found.size() + 1));
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
void find_plans(FullPlan& full, const SearchCallbacks& callbacks, SearchOptions options,
                const std::vector<PublishedPlan>& published) {
  const FullPlanRequest& request = full.request;
  const bool versions = request.asynchronous;
  if (request.compares) options.most_seconds /= versions ? 3 : 2;
  const auto find = [&](bool of_versions, const std::vector<FoundPlan>& known) {
    return search_from(full.problem, request, callbacks, options, published, of_versions, known);
  };
  full.result = find(versions && !request.compares, {});
  if (!request.compares) return;
  // With several versions one is still allowed. Published plans count as they are, with updates of
  // fewer samples, too.
  options.other_batches = true;
  const SearchResult several = find(true, full.result.plans);
  full.compared = compared(published, full.result, several);
  full.compared_notes = task_of(full.problem.base()).notes;
  options.other_batches = false;
  if (versions) full.result = find(true, full.result.plans);
}

/// The choices that a scenario makes.
Choice choice_of(const Scenario& s) {
  Choice choice;
  Shape& shape = choice.family.shape;
  shape.depth = static_cast<int>(s.shape.depth);
  shape.width = s.mesh.most();
  shape.tensor = s.mesh.size(Axis::tensor);
  shape.context = s.mesh.replica_sharers();
  shape.expert = std::max(1, s.mesh.expert);
  shape.microbatch_size = s.microbatch_size;
  shape.microbatches = s.shape.microbatches_per_update;
  shape.sequence_parallel = s.sequence_parallel;
  shape.sharded = s.sharding.what;
  choice.family.schedule = s.schedule;
  choice.family.chunks = static_cast<int>(s.shape.chunks);
  choice.family.checkpoint = s.shape.checkpoint;
  if (s.mesh.pipeline_first) choice.family.arrangement.rank_order = "pipeline-first";
  choice.layers = s.layers;
  for (std::uint32_t stage = 0; stage < s.shape.stages(); ++stage)
    choice.recompute.push_back(s.recompute.at(stage));
  if (!s.mesh.width.alike()) choice.widths = s.widths();
  choice.divided = s.mesh.divided;
  choice.overlaps = overlaps_reduction(s);
  return choice;
}

GivenJob given_job(const Problem& problem) {
  GivenJob given;
  given.why_not = problem.why_not_as_given();
  if (!given.why_not.empty()) return given;
  try {
    Offer offer;
    offer.scenario = ScenarioTemplate(problem.document(), problem.origin()).with({});
    FoundPlan& plan = offer.plan;
    plan.choice = choice_of(offer.scenario);
    const std::int64_t ops = ops_of(plan.choice.family.shape, plan.choice.family.stages());
    if (ops > problem.most_ops())
      throw InputError(problem.origin(),
                       fmt::format("its update of {} ops is too long to be simulated in that time",
                                   format_count(ops)));
    plan.judgement =
        judge(offer.scenario, EngineChoice::automatic, &offer.reasons, problem.programs());
    given.why_not = plan.judgement.why;
    plan.throughput_samples_per_s =
        offer.scenario.samples_per_update() / plan.judgement.iteration_time_s;
    given.offer = std::move(offer);
  } catch (const InputError& error) {
    given.why_not = first_message(error);
  } catch (const SystemError& error) {
    given.why_not = error.what();
  }
  return given;
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
  // Ops of a run that are surely simulated in a second; at least what people run in any time.
  constexpr double kOpsPerSecond = 200'000;
  constexpr std::int64_t kLeastOps = 400'000;
  Problem problem = unchecked_problem(request);
  check_batch(problem.batch(), tokens_per_sample(problem), request.source);
  const double in_time = request.search.most_seconds * kOpsPerSecond;
  if (in_time < static_cast<double>(problem.most_ops()))
    problem.set_most_ops(std::max(kLeastOps, static_cast<std::int64_t>(in_time)));
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
  const Budget budget(request.search.most_seconds);
  SearchOptions options = request.search;
  Reasons reasons;
  options.confirm = [&](const Scenario& scenario) {
    return judge(scenario, EngineChoice::automatic, &reasons[scenario.text()], problem.programs());
  };
  std::vector<PublishedPlan> published;
  if (asks_published(request, problem))
    published = published_plans(problem, microbatches_to_ask(request, problem));
  FullPlan full{problem, request};
  if (request.source.input == PlanInput::scenario) full.given = given_job(problem);
  const bool kinds = !kinds_of(problem.base().cluster).empty();
  const SearchOptions first = budget.share(options, kinds ? 0.5 : 0.85);
  if (callbacks.elsewhere)
    find_plans_elsewhere(full, callbacks, first, published, reasons);
  else
    find_plans(full, callbacks, first, published);
  const Axes axes = asked_axes(request, problem, request.asynchronous);
  full.offers = offers_of(problem, full.result.plans, reasons, axes, options);
  if (!full.offers.empty()) full.alone = kinds_alone(full, callbacks, options, budget);
  full.without_headroom =
      search_without_headroom(problem, axes, budget.share(options, 1), full.result);
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
  return request.source.input != PlanInput::scenario && request.batch == 0 &&
         !request.source.batch_tokens;
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
  if (problem.sharded())
    out.push_back(fmt::format("plans with another 'shard' than {}",
                              kShardedNames[static_cast<std::size_t>(*problem.sharded())]));
  const Axes axes = asked_axes(request, problem, request.asynchronous);
  if (const std::string what = too_long_text(problem, axes); !what.empty()) out.push_back(what);
  for (const std::string& key : problem.left_out())
    out.push_back(fmt::format("{}, which only the job as given has", key));
  if (problem.context().value_or(1) > 1)
    out.push_back(fmt::format("other degrees of context parallelism than {}", *problem.context()));
  if (problem.base().layer_profile) out.emplace_back("tensor degrees, which were not measured");
  if (!problem.selective_frees() && problem.modules() == LayerParts(LayerPart::core_attn))
    out.emplace_back("selective recomputation, which frees nothing with flash attention");
  if (!result.single_layers) out.emplace_back("recomputation of single layers");
  const auto short_stages = [](const Offer& offer) {
    const std::vector<int>& layers = offer.plan.choice.layers;
    return layers.size() > 1 && std::ranges::min(layers) == 1;
  };
  if (std::ranges::any_of(offers, short_stages))
    out.emplace_back("stages without layers (of the embedding or the LM head alone)");
  const auto reduces_after = [](const Offer& offer) {
    const PlanFamily& family = offer.plan.choice.family;
    return (family.shape.sharers() > 1 || family.schedule->layout == Layout::mirrored) &&
           family.shape.sharded < Sharded::gradients && !overlaps_reduction(offer.scenario);
  };
  const auto may_overlap = [&](const Offer& offer) {
    return problem.may_overlap(offer.plan.choice.family);
  };
  if (std::ranges::any_of(offers, reduces_after))
    out.push_back(fmt::format(
        "gradient reduction beside the backward{}",
        std::ranges::any_of(offers, may_overlap) ? ", but for the three best plans" : ""));
  if (axes.contexts.size() == 1 && !problem.context()) out.emplace_back("context parallelism");
  if (problem.base().mesh.expert > 0)
    out.emplace_back("experts divided within a node or by tensor ranks");
  out.emplace_back("offloading");
  return out;
}

std::int64_t FullPlan::tokens_per_sample() const { return penstock::tokens_per_sample(problem); }

bool FullPlan::as_good_as_best(const FoundPlan& plan) const {
  return as_good(plan.cost, offers.front().plan.cost);
}

int FullPlan::recommended() const {
  if (given && given->runs()) {
    const FoundPlan& job = given->offer->plan;
    const double cost = cost_of(request.search.objective,
                                static_cast<double>(problem.batch()) / job.throughput_samples_per_s,
                                job.judgement.memory_bytes, job.choice.gpus());
    if (as_good(cost, offers.front().plan.cost)) return 0;
  }
  const std::string& software = problem.base().stack.name;
  int best = 0;
  for (int i = 1; i < static_cast<int>(offers.size()); ++i) {
    const FoundPlan& plan = offers[static_cast<std::size_t>(i)].plan;
    const Choice& known = offers[static_cast<std::size_t>(best)].plan.choice;
    if (as_good_as_best(plan) && simplicity(plan.choice, software) < simplicity(known, software))
      best = i;
  }
  return best + 1;
}

double tokens_per_s(const FullPlan& full, const FoundPlan& plan) {
  return plan.throughput_samples_per_s * static_cast<double>(full.tokens_per_sample());
}

std::string FullPlan::infeasible_because() const {
  const std::string& why = result.infeasible_because;
  const Scenario& base = problem.base();
  double there_bytes = 0, all_bytes = 0;
  for (int gpu = 0; gpu < base.cluster.devices(); ++gpu) {
    there_bytes += static_cast<double>(base.cluster.device_of(gpu).capacity_bytes());
    all_bytes += static_cast<double>(base.cluster.device_of(gpu).memory_bytes);
  }
  const double state_bytes = task_of(base).model->state_bytes();
  if (why.empty() || there_bytes == 0 || state_bytes <= there_bytes) return why;
  return fmt::format(
      "{}: weights, gradients and optimizer state are {}, all {} GPUs have {}, of which plans may "
      "use {}",
      why, format_bytes(state_bytes), problem.gpus(), format_bytes(all_bytes),
      format_bytes(there_bytes));
}

double FullPlan::updates() const {
  if (request.terms.tokens <= 0) return 0;
  return request.terms.tokens /
         static_cast<double>(problem.base().transformer->seq_length * problem.batch());
}

}  // namespace penstock
