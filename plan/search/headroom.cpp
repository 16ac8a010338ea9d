// SPDX-License-Identifier: Apache-2.0
#include "plan/search/headroom.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Of each of two searches. What is tried is counted, so that answers do not depend on what else
/// the machine does; time is a limit for those who have little of it.
constexpr double kShareOfTime = 0.2, kShareOfOrderOps = 0.02;
constexpr std::size_t kMostEvaluations = 20, kMostConfirmations = 2, kMostMoves = 40;

bool knows_memory(const Cluster& cluster) {
  for (int gpu = 0; gpu < cluster.devices(); ++gpu)
    if (cluster.device_of(gpu).capacity_bytes() > 0) return true;
  return false;
}

bool nothing_for_want_of_memory(const SearchResult& result) {
  const std::size_t too_large =
      result.shapes.too_large + result.families.too_large + result.cuts.too_large;
  return result.plans.empty() && too_large > 0 && result.unanswered == 0;
}

/// All, where the plans have none of them: those of published planners may lie outside of the axes.
void keep_only(auto& values, const std::vector<FoundPlan>& plans, auto&& of) {
  auto kept = values;
  std::erase_if(kept, [&](const auto& value) {
    return std::ranges::none_of(
        plans, [&](const FoundPlan& plan) { return of(plan.choice.family) == value; });
  });
  if (!kept.empty()) values = std::move(kept);
}

Axes axes_of(Axes axes, const std::vector<FoundPlan>& plans) {
  using F = const PlanFamily&;
  keep_only(axes.schedules, plans, [](F f) { return f.schedule; });
  keep_only(axes.depths, plans, [](F f) { return f.shape.depth; });
  keep_only(axes.widths, plans, [](F f) { return f.shape.width; });
  keep_only(axes.tensors, plans, [](F f) { return f.shape.tensor; });
  keep_only(axes.contexts, plans, [](F f) { return f.shape.context; });
  keep_only(axes.microbatch_sizes, plans, [](F f) { return f.shape.microbatch_size; });
  keep_only(axes.sequence_parallel, plans, [](F f) { return f.shape.sequence_parallel; });
  keep_only(axes.sharded, plans, [](F f) { return f.shape.sharded; });
  keep_only(axes.chunks, plans, [](F f) { return f.chunks; });
  keep_only(axes.arrangements, plans, [](F f) { return f.arrangement; });
  return axes;
}

SearchOptions short_options(SearchOptions options, const Problem& problem) {
  options.most_seconds *= kShareOfTime;
  options.most_evaluations = std::min(options.most_evaluations, kMostEvaluations);
  options.most_confirmations = std::min(options.most_confirmations, kMostConfirmations);
  options.most_moves = std::min(options.most_moves, kMostMoves);
  options.most_order_ops =
      static_cast<std::int64_t>(static_cast<double>(options.most_order_ops) * kShareOfOrderOps);
  options.top = 1;
  options.starts.clear();
  options.others.reset();
  options.progress = nullptr;
  const EngineChoice engine = options.confirm ? EngineChoice::automatic : EngineChoice::exact;
  options.confirm = [engine, programs = problem.programs()](const Scenario& scenario) {
    return judge(scenario, engine, nullptr, programs);
  };
  return options;
}

/// The plan is not simulated again: that there is more memory changes nothing of its time.
SearchOptions beginning_with(const FoundPlan& plan, const Problem& problem, SearchOptions options) {
  options.starts = {{plan.from, plan.choice}};
  options.confirm = [&problem, plan, text = problem.resolve(plan.choice).text(),
                     judged = options.confirm](const Scenario& scenario) {
    if (scenario.text() != text) return judged(scenario);
    Judgement known = plan.judgement;
    known.iteration_time_s *= scenario.samples_per_update() / static_cast<double>(problem.batch());
    return known;
  };
  return options;
}

WithoutHeadroom faster_than(const FoundPlan& best, const std::vector<FoundPlan>& found,
                            const Problem& whole, const Axes& axes, const SearchOptions& options) {
  constexpr double kRounding = 1e-9;
  FoundPlan plan = best;
  SearchOptions narrow = options;
  for (const auto& plans : {std::vector{best}, found}) {
    plan = search(whole, axes_of(axes, plans), beginning_with(plan, whole, narrow)).found.front();
    narrow.most_trials = 0;
  }
  const double saved = 1 - plan.cost / best.cost;
  return {plan, false, saved > kRounding ? saved : 0};
}

}  // namespace

std::optional<WithoutHeadroom> search_without_headroom(const Problem& problem, const Axes& axes,
                                                       const SearchOptions& options,
                                                       const SearchResult& result) {
  if (problem.headroom() == 0 || options.objective == Objective::memory ||
      !knows_memory(problem.base().cluster))
    return std::nullopt;
  Problem whole(problem.document(), problem.origin(), problem.batch());
  whole.set_most_ops(problem.most_ops());
  const SearchOptions few = short_options(options, whole);
  if (!result.plans.empty())
    return faster_than(result.plans.front(), result.found, whole, axes, few);
  if (!nothing_for_want_of_memory(result)) return std::nullopt;
  const SearchResult any = search(whole, axes, few);
  if (any.found.empty()) return WithoutHeadroom{{}, !any.infeasible_because.empty(), 0};
  return WithoutHeadroom{any.found.front(), false, 0};
}

}  // namespace penstock
