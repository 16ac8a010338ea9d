// SPDX-License-Identifier: Apache-2.0
#include "plan/search/published.hpp"

#include "base/error.hpp"
#include "plan/search/judgement.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

/// Can every stage divide a microbatch among its replicas?
bool divides(const Plan& plan) {
  return std::ranges::all_of(plan.stages, [&](const PlannedStage& stage) {
    return plan.microbatch_size % stage.replicas == 0;
  });
}

/// Microbatches after which all replicas of every stage have had their turn equally often.
std::int64_t round_of(const Plan& plan) {
  std::int64_t round = 1;
  for (const PlannedStage& stage : plan.stages)
    round = std::lcm(round, static_cast<std::int64_t>(stage.replicas));
  return round;
}

}  // namespace

Choice choice_of(const Plan& plan) {
  Choice choice;
  PlanFamily& family = choice.family;
  const bool versions = plan.schedule == "pipedream";
  family.schedule = find_schedule(versions && plan.depth() == 1 ? "data-parallel" : plan.schedule);
  Shape& shape = family.shape;
  shape.depth = plan.depth();
  shape.microbatch_size = plan.microbatch_size;
  shape.microbatches = plan.microbatches;
  // torchgpipe stores the last microbatch, as its authors ran it.
  if (family.schedule->checkpoints)
    family.checkpoint = Checkpoint::except_last;
  else
    choice.recompute.assign(plan.stages.size(), plan.recompute);
  for (const PlannedStage& stage : plan.stages) {
    shape.width = std::max(shape.width, stage.replicas);
    choice.layers.push_back(stage.last_layer - stage.first_layer + 1);
    choice.placed.insert(choice.placed.end(), stage.devices.begin(), stage.devices.end());
    if (plan.uneven()) choice.widths.push_back(stage.replicas);
  }
  const bool in_order = std::ranges::is_sorted(choice.placed) && choice.placed.front() == 0 &&
                        choice.placed.back() + 1 == static_cast<int>(choice.placed.size());
  if (in_order && !plan.uneven()) choice.placed.clear();  // as ranks lie anyway
  if (plan.planner != "dapple") return choice;
  // Its microbatches are those of all replicas.
  const std::int64_t turns = round_of(plan);
  choice.divided = shape.width > 1 && (divides(plan) || turns > plan.microbatches);
  if (!choice.divided) shape.microbatches = plan.microbatches / turns;
  return choice;
}

std::optional<Choice> with_batch_of(const Problem& problem, Choice choice) {
  Shape& shape = choice.family.shape;
  const bool each = choice.family.schedule->update == UpdateRule::stash;
  std::int64_t& times = each ? shape.microbatch_size : shape.microbatches;
  const auto samples = static_cast<std::int64_t>(problem.resolve(choice).samples_per_update());
  const std::int64_t unit = samples / times;  // they go linearly with either
  if (problem.batch() % unit != 0) return std::nullopt;
  times = problem.batch() / unit;
  return choice;
}

std::function<SimulatedPlan(const Plan&, bool)> simulator(const Problem& problem) {
  return [&problem](const Plan& plan, bool alone) -> SimulatedPlan {
    try {
      const Scenario scenario = problem.resolve(choice_of(plan));
      const Judgement judgement =
          alone ? relaxed(scenario, problem.plain_reduction(), problem.programs())
                : judge(scenario, EngineChoice::automatic, nullptr, problem.programs());
      if (!judgement.fits) return {.why_not = judgement.why};
      return {.samples_per_s = scenario.samples_per_update() / judgement.iteration_time_s};
    } catch (const InputError& error) {
      const std::string text = error.what();
      return {.why_not = text.substr(0, text.find('\n'))};
    } catch (const SystemError& error) {
      return {.why_not = error.what()};
    }
  };
}

}  // namespace penstock
