// SPDX-License-Identifier: Apache-2.0
#include "plan/search/recompute_steps.hpp"

#include <algorithm>

namespace penstock {

RecomputeSteps::RecomputeSteps(const Axes& axes)
    : whole_(recomputes_of(axes)),
      single_layers_(axes.single_layers &&
                     whole_ == std::vector<Recomputation>{Recompute::none, Recompute::full}) {}

std::optional<Recomputation> RecomputeSteps::more(const Recomputation& now, int layers) const {
  if (single_layers_ && now != whole_.back()) {
    const int again = now.recomputed(layers) + 1;
    return again < layers ? Recomputation::block(again) : whole_.back();
  }
  const auto at = std::ranges::find(whole_, now);
  if (at == whole_.end() || at + 1 == whole_.end()) return std::nullopt;
  return *(at + 1);
}

std::optional<Recomputation> RecomputeSteps::less(const Recomputation& now, int layers) const {
  if (single_layers_ && now != whole_.front())
    return Recomputation::block(now.recomputed(layers) - 1);
  const auto at = std::ranges::find(whole_, now);
  if (at == whole_.end() || at == whole_.begin()) return std::nullopt;
  return *(at - 1);
}

bool RecomputeSteps::take_more(std::vector<Recomputation>& stages, const std::vector<int>& layers,
                               std::size_t s) const {
  if (stages.empty()) return false;
  const auto next = more(stages[s], layers[s]);
  if (next) stages[s] = *next;
  return next.has_value();
}

}  // namespace penstock
