// SPDX-License-Identifier: Apache-2.0
#include "plan/search/moves.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace penstock {

bool Moves::improve(const FoundPlan& plan, const Improves& improves) const {
  return balances_layers(plan, improves) || recomputes_less(plan, improves) ||
         moves_layers(plan, improves);
}

std::vector<int> Moves::balanced_layers(const Choice& choice) const {
  try {
    return problem_.balanced(choice);
  } catch (const InputError&) {
    return {};
  }
}

bool Moves::balances_layers(const FoundPlan& plan, const Improves& improves) const {
  Choice balanced = plan.choice;
  balanced.layers = balanced_layers(plan.choice);
  return !balanced.layers.empty() && balanced.layers != plan.choice.layers && improves(balanced);
}

bool Moves::recomputes_less(const FoundPlan& plan, const Improves& improves) const {
  for (std::size_t s = 0; s < plan.choice.recompute.size(); ++s) {
    const auto step = steps_.less(plan.choice.recompute[s], plan.choice.layers[s]);
    if (!step) continue;
    Choice less = plan.choice;
    less.recompute[s] = *step;
    if (improves(less)) return true;
  }
  return false;
}

bool Moves::moves_layers(const FoundPlan& plan, const Improves& improves) const {
  for (int layers = std::max(1, problem_.layers() / 8); layers > 0; layers /= 2)
    for (std::size_t s = 0; s + 1 < plan.choice.layers.size(); ++s)
      if (moves(plan, s, layers, improves) || moves(plan, s, -layers, improves)) return true;
  return false;
}

/// Is the plan better with so many layers of stage s + 1 in stage s?
bool Moves::moves(const FoundPlan& plan, std::size_t s, int layers,
                  const Improves& improves) const {
  Choice moved = plan.choice;
  moved.layers[s] += layers;
  moved.layers[s + 1] -= layers;
  if (std::min(moved.layers[s], moved.layers[s + 1]) < 1) return false;
  if (improves(moved)) return true;
  const std::size_t longer = layers > 0 ? s : s + 1;  // it may have to recompute for that
  return steps_.take_more(moved.recompute, moved.layers, longer) && improves(moved);
}

}  // namespace penstock
