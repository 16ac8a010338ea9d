// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include "base/clock.hpp"
#include "base/suggest.hpp"
#include "plan/planners.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock {

std::string replicas_text(const Plan& plan) {
  if (!plan.uneven()) return fmt::format("{}x{}", plan.depth(), plan.width());
  std::vector<int> all;
  for (const PlannedStage& stage : plan.stages) all.push_back(stage.replicas);
  return fmt::format("{}", fmt::join(all, "-"));
}

std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::string ranges_text(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(end == i + 1 ? std::to_string(numbers[i])
                                 : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

bool Plan::uneven() const {
  return std::ranges::any_of(stages,
                             [this](const PlannedStage& s) { return s.replicas != width(); });
}

int Plan::devices_used() const {
  return std::accumulate(stages.begin(), stages.end(), 0,
                         [](int sum, const PlannedStage& s) { return sum + s.replicas; });
}

int PlanRequest::devices() const {
  return std::accumulate(levels.begin(), levels.end(), 1,
                         [](int product, const PlanLevel& l) { return product * l.width; });
}

double PlanRequest::memory_or_unlimited() const {
  return memory_bytes.value_or(std::numeric_limits<double>::infinity());
}

bool PlanRequest::in_time() const { return steady_s() < until_s; }

std::int64_t Plan::samples_per_update() const {
  // DAPPLE's microbatches and torchgpipe's are those of all replicas.
  const bool of_all = planner == "dapple" || planner == "torchgpipe";
  return microbatch_size * microbatches * (of_all ? 1 : width());
}

PlanResult ask(const Planner& planner, const PlanRequest& request) {
  PlanResult refused;
  refused.infeasible_because =
      request.model->refuse(static_cast<double>(request.microbatch_size), Recompute::none);
  if (!refused.infeasible_because.empty()) return refused;
  PlanResult result = planner.plan(request);
  std::size_t late = 0;
  for (Plan& plan : result.plans) {
    if (!request.simulate || plan.simulated) continue;
    if (request.in_time())
      plan.simulated = request.simulate(plan, false);
    else
      ++late;
  }
  if (late > 0)
    result.notes.push_back(
        fmt::format("the time ended before {} of {} plans were simulated (--time-limit)", late,
                    result.plans.size()));
  return result;
}

const std::vector<Planner>& planners() {
  static const std::vector<Planner> kPlanners = {
      {"pipedream", "Narayanan et al., SOSP'19, section 3.1",
       "replicated stages on a hierarchy of networks; asynchronous", false, false, plan_pipedream},
      {"2bw", "Narayanan et al., ICML'21, section 4 and appendix A",
       "width, depth, microbatch and recomputation of alike stages", true, true, plan_2bw},
      {"dapple", "Fan et al., PPoPP'21, section 4",
       "replicated stages and their placement, least latency of a batch", true, false, plan_dapple},
      {"torchgpipe", "Kim et al., arXiv:2004.09910; Barany and Grinberg, arXiv:1308.2452",
       "blocks of layers of nearly equal time or size", true, false, plan_torchgpipe},
      {"uniform", "Narayanan et al., SC'21 (Megatron-LM)",
       "as many layers in every stage, as many replicas of each", true, false, plan_uniform},
  };
  return kPlanners;
}

const Planner* find_planner(std::string_view name) {
  const auto found =
      std::ranges::find_if(planners(), [&](const Planner& p) { return p.name == folded(name); });
  return found == planners().end() ? nullptr : &*found;
}

void place_in_order(Plan& plan) {
  int next = 0;
  for (PlannedStage& stage : plan.stages) {
    stage.devices.resize(static_cast<std::size_t>(stage.replicas));
    std::iota(stage.devices.begin(), stage.devices.end(), next);
    next += stage.replicas;
  }
}

void place_by_pipeline(Plan& plan) {
  for (int s = 0; s < plan.depth(); ++s) {
    PlannedStage& stage = plan.stages[static_cast<std::size_t>(s)];
    stage.devices.clear();
    for (int r = 0; r < stage.replicas; ++r) stage.devices.push_back(r * plan.depth() + s);
  }
}

std::vector<PlannedStage> stages_of(const std::vector<LayerState>& chain,
                                    const std::vector<int>& layers, int replicas) {
  std::vector<PlannedStage> stages;
  std::size_t first = 0;
  for (const int count : layers) {
    const std::size_t last = first + static_cast<std::size_t>(count) - 1;
    PlannedStage stage;
    stage.first_layer = static_cast<int>(first);
    stage.last_layer = static_cast<int>(last);
    stage.replicas = replicas;
    stage.time_s = (chain[last].time_s() - (first == 0 ? 0 : chain[first - 1].time_s())) / replicas;
    stage.first_name = chain[first].name;
    stage.last_name = chain[last].name;
    stages.push_back(std::move(stage));
    first = last + 1;
  }
  return stages;
}

}  // namespace penstock
