// SPDX-License-Identifier: Apache-2.0
#include "plan/search/comparison.hpp"

#include "base/error.hpp"
#include "plan/search/judgement.hpp"
#include "plan/search/published.hpp"
#include "plan/search/task.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

std::string describe(const Plan& plan) {
  return fmt::format("{} stages x replicas, {} of {}, {}", replicas_text(plan), plan.microbatches,
                     plan.microbatch_size, plan.schedule);
}

PublishedPlan published(const Planner& planner, const PlanRequest& request) {
  PublishedPlan out;
  out.row.name = planner.name;
  PlanRequest own = request;
  if (!planner.simulates) own.simulate = nullptr;
  const PlanResult result = ask(planner, own);
  out.row.why_not = result.infeasible_because;
  if (result.plans.empty()) return out;
  const Plan& plan = result.plans.front();
  out.row.plan = describe(plan);
  out.row.predicted_samples_per_s = plan.throughput_samples_per_s;
  out.choice = choice_of(plan);
  out.row.versions = !out.choice->family.schedule->flushes();
  return out;
}

/// By `exact`: what is shown is simulated again, by the engine that the links need.
bool runs(const Problem& problem, const PublishedPlan& plan) {
  if (!plan.choice) return false;
  try {
    return judge(problem.resolve(*plan.choice), EngineChoice::exact).fits;
  } catch (const InputError&) {
    return false;
  }
}

/// With the first of the sizes whose plan runs; when there is none, the answer for the first size.
PublishedPlan published_that_runs(const Planner& planner, PlanRequest request,
                                  const Problem& problem,
                                  const std::vector<std::int64_t>& microbatch_sizes) {
  std::optional<PublishedPlan> first;
  for (const std::int64_t size : microbatch_sizes) {
    request.microbatch_size = size;
    PublishedPlan plan = published(planner, request);
    if (plan.choice) {
      PlanFamily& family = plan.choice->family;
      if (family.shape.width > 1 && !family.schedule->asynchronous)
        family.shape.sharded = problem.sharded().value_or(Sharded::none);
    }
    if (runs(problem, plan)) return plan;
    if (!first) first = std::move(plan);
  }
  return std::move(*first);
}

std::string replicas_of(const Choice& choice) {
  if (choice.widths.empty())
    return fmt::format("{}x{}", choice.family.shape.depth, choice.family.shape.width);
  return fmt::format("{}", fmt::join(choice.widths, "-"));
}

ComparedPlanner ours(const SearchResult& result, bool versions) {
  ComparedPlanner row;
  row.name = versions ? "full, several versions" : "full";
  row.versions = versions;
  row.why_not = result.infeasible_because;
  if (result.plans.empty()) return row;
  const FoundPlan& best = result.plans.front();
  const PlanFamily& family = best.choice.family;
  const Shape& shape = family.shape;
  row.plan = fmt::format("{} stages x replicas, {} of {}, {}", replicas_of(best.choice),
                         shape.microbatches, shape.microbatch_size, family.schedule->name);
  if (family.chunks > 1) row.plan += fmt::format(" x {} chunks", family.chunks);
  if (shape.tensor > 1) row.plan += fmt::format(", tensor {}", shape.tensor);
  if (shape.context > 1) row.plan += fmt::format(", context {}", shape.context);
  if (shape.expert > 1) row.plan += fmt::format(", expert {}", shape.expert);
  if (!best.from.empty()) row.plan += fmt::format(" (began with {}'s)", best.from);
  row.throughput_samples_per_s = best.throughput_samples_per_s;
  return row;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::vector<PublishedPlan> published_plans(const Problem& problem,
                                           const std::vector<std::int64_t>& microbatch_sizes) {
  PlanTask task = task_of(problem.base());
  const ChainModel chain(*task.model);
  task.request.model = &chain;
  task.request.batch = problem.batch();
  task.request.simulate = simulator(problem);
  std::vector<PublishedPlan> plans;
  for (const Planner& planner : planners())
    plans.push_back(published_that_runs(planner, task.request, problem, microbatch_sizes));
  return plans;
}

std::vector<Start> starts_of(const std::vector<PublishedPlan>& plans, bool versions) {
  std::vector<Start> starts;
  for (const PublishedPlan& plan : plans)
    if (plan.choice && (versions || !plan.row.versions))
      starts.push_back({plan.row.name, *plan.choice});
  return starts;
}

std::vector<ComparedPlanner> compared(std::vector<PublishedPlan> plans, const SearchResult& one,
                                      const SearchResult& several) {
  const std::vector<ComparedPlanner> own{ours(one, false), ours(several, true)};
  std::vector<ComparedPlanner> rows;
  std::size_t start = 0;
  for (PublishedPlan& plan : plans) {
    ComparedPlanner& row = plan.row;
    if (plan.choice) {
      const StartResult& result = several.starts[start++];
      row.throughput_samples_per_s = result.throughput_samples_per_s;
      row.why_not = first_line(result.why_not);
    }
    const double best = own[row.versions ? 1 : 0].throughput_samples_per_s;
    if (row.throughput_samples_per_s > 0)
      row.ours_is_faster_by = best / row.throughput_samples_per_s - 1;
    rows.push_back(std::move(row));
  }
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}

}  // namespace penstock
