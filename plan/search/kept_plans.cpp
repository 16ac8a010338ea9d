// SPDX-License-Identifier: Apache-2.0
#include "plan/search/kept_plans.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

namespace penstock {
namespace {

/// The same plan; where its ranks lie on the GPUs is not told apart.
bool same_shape(const Choice& of_a, const Choice& of_b) {
  const PlanFamily &a = of_a.family, &b = of_b.family;
  return of_a.widths == of_b.widths && of_a.divided == of_b.divided && a.chunks == b.chunks &&
         a.shape.depth == b.shape.depth && a.shape.width == b.shape.width &&
         a.shape.tensor == b.shape.tensor && a.shape.context == b.shape.context &&
         a.shape.microbatch_size == b.shape.microbatch_size &&
         a.shape.sequence_parallel == b.shape.sequence_parallel &&
         a.shape.sharded == b.shape.sharded && a.shape.expert == b.shape.expert;
}

bool same_family(const Choice& a, const Choice& b) {
  return a.family.schedule == b.family.schedule && same_shape(a, b);
}

bool same_order(const OpLists& a, const OpLists& b) {
  if (a.devices() != b.devices() || a.size() != b.size()) return false;
  for (int d = 0; d < a.devices(); ++d)
    if (!std::ranges::equal(a.of_device(d), b.of_device(d))) return false;
  return true;
}

OpLists order_of(const Problem& problem, const Choice& choice) {
  const Scenario scenario = problem.resolve(choice);
  return scenario.schedule->order(scenario.shape);
}

bool better(const FoundPlan& a, const FoundPlan& b) {
  if (a.cost != b.cost) return a.cost < b.cost;
  return a.judgement.iteration_time_s < b.judgement.iteration_time_s;
}

template <class Value>
bool varies(const std::vector<Value>& values) {
  return std::ranges::adjacent_find(values, std::not_equal_to()) != values.end();
}

bool uneven(const std::vector<int>& layers) {
  const auto [least, most] = std::ranges::minmax(layers);
  return most > least + 1;
}

/// Names what each is best at; of plans that are equal in it the first.
void name_strengths(std::vector<FoundPlan>& plans) {
  if (plans.size() < 2) return;
  const auto name = [&](const char* strength, const auto& value) {
    std::ranges::min_element(plans, {}, value)->best_at.emplace_back(strength);
  };
  name("speed", [](const FoundPlan& p) { return p.judgement.iteration_time_s; });
  name("memory", [](const FoundPlan& p) { return p.judgement.memory_bytes; });
  name("simplicity", [](const FoundPlan& p) { return things_to_set_up(p.choice); });
}

/// Says which idea a plan is an example of: how a device's stages lie, and whether its backward is
/// split.
auto idea_of(const Choice& choice) {
  const PlanFamily& family = choice.family;
  const Schedule& schedule = *family.schedule;
  const bool there_and_back = schedule.layout != Layout::loop;
  const bool pipeline = family.shape.depth > 1;  // of one stage there is nothing to order
  const bool split = pipeline && !there_and_back && schedule.splits_backward;
  return std::tuple(schedule.update, pipeline && there_and_back, pipeline && family.chunks > 1,
                    split);
}

auto degrees_of(const Choice& choice) {
  const Shape& shape = choice.family.shape;
  return std::tuple(shape.depth, shape.tensor, shape.context);
}

constexpr double kSameTime = 1e-9;

}  // namespace

int things_to_set_up(const Choice& choice) {
  const PlanFamily& family = choice.family;
  const std::string_view name = family.schedule->name;
  const bool usual_ranks = choice.placed.empty() && family.arrangement == Arrangement{};
  int things = usual_ranks ? 0 : 1;
  things += name != "1f1b" && name != "gpipe" && family.shape.depth > 1;
  things += family.stages() != family.shape.depth;
  things += uneven(choice.layers);
  return things + varies(choice.recompute);
}

// Megatron-Core's schedules.py, DeepSpeed's pipe/schedule.py (TrainSchedule), nanotron's
// pipeline_parallel/engine.py (AFAB, 1F1B), torch.distributed.pipelining's classes.
bool runs_in(std::string_view software, const Choice& choice) {
  const Schedule& schedule = *choice.family.schedule;
  const auto is = [&](std::string_view name) { return schedule.name == name; };
  const auto of_torch = [](std::string_view alias) { return alias.starts_with("Schedule"); };
  if (choice.family.shape.depth == 1) return true;
  if (software.starts_with("torchtitan")) return std::ranges::any_of(schedule.aliases, of_torch);
  if (software.find("deepspeed") != std::string_view::npos) return is("1f1b");
  if (software == "nanotron") return is("1f1b") || is("gpipe");
  if (!software.starts_with("megatron")) return true;
  return (is("1f1b") || is("interleaved-1f1b")) && !varies(choice.recompute);
}

std::tuple<bool, int, int, int> simplicity(const Choice& choice, std::string_view software) {
  const Shape& shape = choice.family.shape;
  const bool recomputes = choice.family.schedule->checkpoints
                              ? choice.family.checkpoint != Checkpoint::never
                              : std::ranges::any_of(choice.recompute, [](const Recomputation& r) {
                                  return r != Recomputation(Recompute::none);
                                });
  const int things = things_to_set_up(choice) + (shape.depth > 1) + (shape.tensor > 1) +
                     (shape.context > 1) + recomputes + !choice.widths.empty();
  return {!runs_in(software, choice), things, shape.tensor * shape.context, shape.depth};
}

const FoundPlan* KeptPlans::to_run() const {
  const std::string& software = problem_.base().stack.name;
  const FoundPlan* found = nullptr;
  for (const FoundPlan& plan : plans_)
    if (as_good(plan.cost, best().cost) &&
        (found == nullptr ||
         simplicity(plan.choice, software) < simplicity(found->choice, software)))
      found = &plan;
  return found;
}

/// Orders that were searched for may differ in what makes no difference. With one stage there is
/// nothing to order but what holds more.
bool KeptPlans::alike(const FoundPlan& a, const FoundPlan& b) const {
  const Choice &of_a = a.choice, &of_b = b.choice;
  if (of_a.family.stages() == 1 && of_b.family.stages() == 1)
    return std::abs(a.judgement.iteration_time_s - b.judgement.iteration_time_s) <=
               kSameTime * b.judgement.iteration_time_s &&
           same_shape(of_a, of_b) && of_a.recompute == of_b.recompute &&
           of_a.placed == of_b.placed &&
           of_a.family.schedule->update == of_b.family.schedule->update;
  return a.judgement.iteration_time_s == b.judgement.iteration_time_s &&
         a.judgement.memory_bytes == b.judgement.memory_bytes && same_shape(of_a, of_b) &&
         of_a.layers == of_b.layers && of_a.recompute == of_b.recompute &&
         of_a.placed == of_b.placed && of_a.family.checkpoint == of_b.family.checkpoint &&
         of_a.family.schedule->update == of_b.family.schedule->update &&
         of_a.family.schedule->layout == of_b.family.schedule->layout &&
         ((of_a.family.schedule->looks_at_costs && of_b.family.schedule->looks_at_costs) ||
          same_order(order_of(problem_, of_a), order_of(problem_, of_b)));
}

void KeptPlans::keep(FoundPlan plan) {
  const auto known = std::ranges::find_if(
      plans_, [&](const FoundPlan& p) { return same_family(p.choice, plan.choice); });
  if (known != plans_.end()) {
    if (!better(plan, *known)) return;
    plans_.erase(known);
  }
  const auto other =
      std::ranges::find_if(plans_, [&](const FoundPlan& p) { return alike(p, plan); });
  const auto put = [&](FoundPlan one) {
    const auto place = std::ranges::upper_bound(plans_, one, better);
    plans_.insert(place, std::move(one));
  };
  if (other == plans_.end()) return put(std::move(plan));
  FoundPlan stays = std::move(*other), goes = std::move(plan);
  plans_.erase(other);
  // By the plainer of two names: torchgpipe's has checkpoints, even where it takes none, and 1F1B
  // is what frameworks call their usual one.
  const auto order = [](const FoundPlan& p) {
    const Schedule& schedule = *p.choice.family.schedule;
    return std::tuple(p.judgement.memory_bytes, schedule.checkpoints, schedule.name != "1f1b");
  };
  if (order(goes) < order(stays)) {
    goes.also = std::move(stays.also);
    std::swap(stays, goes);
  }
  const std::string_view name = goes.choice.family.schedule->name;
  const bool named = name == stays.choice.family.schedule->name ||
                     std::ranges::find(stays.also, name) != stays.also.end();
  if (!named) stays.also.emplace_back(name);
  put(std::move(stays));
}

bool KeptPlans::dominated(double cost, double memory_bytes, const Choice& choice) const {
  const int things = things_to_set_up(choice);
  return std::ranges::any_of(plans_, [&](const FoundPlan& p) {
    const int others = things_to_set_up(p.choice);
    const double bytes = p.judgement.memory_bytes;
    const bool differs = p.cost < cost || bytes < memory_bytes || others < things;
    return p.cost <= cost && bytes <= memory_bytes && others <= things && differs;
  });
}

std::vector<FoundPlan> KeptPlans::offer(std::size_t most, bool all_degrees) const {
  std::vector<bool> offered(plans_.size(), false);
  std::size_t count = 0;
  const auto add = [&](std::size_t i) {
    if (offered[i] || count == most) return;
    offered[i] = true;
    ++count;
  };
  const auto any_of_idea = [&](const FoundPlan& plan, auto&& is) {
    for (std::size_t i = 0; i < plans_.size(); ++i)
      if (offered[i] && idea_of(plans_[i].choice) == idea_of(plan.choice) &&
          (!all_degrees || degrees_of(plans_[i].choice) == degrees_of(plan.choice)) &&
          is(plans_[i]))
        return true;
    return false;
  };
  const auto add_idea = [&](std::size_t i) {
    if (!any_of_idea(plans_[i], [](const FoundPlan&) { return true; })) add(i);
  };
  const auto has_as_small = [&](const FoundPlan& plan) {
    constexpr double kNearly = 1.05;
    return any_of_idea(plan, [&](const FoundPlan& other) {
      return other.judgement.memory_bytes <= kNearly * plan.judgement.memory_bytes;
    });
  };
  // plans_ are in the order of their cost
  std::size_t near = 0, simplest = 0, smallest = 0;
  while (near < plans_.size() && plans_[near].cost <= kSlowest * plans_[0].cost) {
    const FoundPlan& plan = plans_[near];
    if (things_to_set_up(plan.choice) < things_to_set_up(plans_[simplest].choice)) simplest = near;
    if (plan.judgement.memory_bytes < plans_[smallest].judgement.memory_bytes) smallest = near;
    ++near;
  }
  if (near > 0) {
    add(0);
    const auto run = static_cast<std::size_t>(to_run() - plans_.data());
    most = std::max(most, run == 0 ? std::size_t{1} : std::size_t{2});
    add(run);
    add(simplest);
    if (!has_as_small(plans_[smallest])) add(smallest);
  }
  for (std::size_t i = 0; i < near; ++i)
    if (!dominated(plans_[i].cost, plans_[i].judgement.memory_bytes, plans_[i].choice)) add_idea(i);
  for (std::size_t i = 0; i < plans_.size(); ++i) add_idea(i);
  std::vector<FoundPlan> out;
  for (std::size_t i = 0; i < plans_.size(); ++i)
    if (offered[i]) out.push_back(plans_[i]);
  name_strengths(out);
  return out;
}

}  // namespace penstock
