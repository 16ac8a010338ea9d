#include "plan/search/kept_plans.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// The same plan; where its ranks lie on the GPUs is not told apart.
bool same_shape(const Choice& of_a, const Choice& of_b) {
  const PlanFamily &a = of_a.family, &b = of_b.family;
  return of_a.widths == of_b.widths && of_a.split == of_b.split && a.chunks == b.chunks &&
         a.shape.depth == b.shape.depth && a.shape.width == b.shape.width &&
         a.shape.tensor == b.shape.tensor && a.shape.microbatch_size == b.shape.microbatch_size &&
         a.shape.sequence_parallel == b.shape.sequence_parallel &&
         a.shape.distributed_optimizer == b.shape.distributed_optimizer;
}

bool same_family(const Choice& a, const Choice& b) {
  return a.family.schedule == b.family.schedule && same_shape(a, b);
}

bool same_order(const OpLists& a, const OpLists& b) {
  if (a.devices() != b.devices() || a.size() != b.size()) return false;
  for (int d = 0; d < a.devices(); ++d)
    if (!std::ranges::equal(a.of(d), b.of(d))) return false;
  return true;
}

OpLists order_of(const Problem& problem, const Choice& choice) {
  const Scenario scenario = problem.resolve(choice);
  OpLists order;
  scenario.schedule->generate(scenario.shape, order);
  return order;
}

bool better(const FoundPlan& a, const FoundPlan& b) {
  if (a.cost != b.cost) return a.cost < b.cost;
  return a.judgement.iteration_time_s < b.judgement.iteration_time_s;
}

}  // namespace

bool KeptPlans::alike(const FoundPlan& a, const FoundPlan& b) const {
  const Choice &of_a = a.choice, &of_b = b.choice;
  return a.judgement.iteration_time_s == b.judgement.iteration_time_s &&
         a.judgement.memory_bytes == b.judgement.memory_bytes && same_shape(of_a, of_b) &&
         of_a.layers == of_b.layers && of_a.recompute == of_b.recompute &&
         of_a.placed == of_b.placed && of_a.family.checkpoint == of_b.family.checkpoint &&
         of_a.family.schedule->update == of_b.family.schedule->update &&
         of_a.family.schedule->layout == of_b.family.schedule->layout &&
         same_order(order_of(problem_, of_a), order_of(problem_, of_b));
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
  if (other != plans_.end()) {
    other->also.emplace_back(plan.choice.family.schedule->name);
    return;
  }
  const auto place = std::ranges::upper_bound(plans_, plan, better);
  plans_.insert(place, std::move(plan));
  if (plans_.size() > most_) plans_.pop_back();
}

}  // namespace penstock
