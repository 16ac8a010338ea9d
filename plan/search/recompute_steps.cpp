#include "plan/search/recompute_steps.hpp"

#include <algorithm>

namespace penstock {

std::optional<Recomputation> RecomputeSteps::more(const Recomputation& now) const {
  const auto at = std::ranges::find(whole_, now);
  if (at == whole_.end() || at + 1 == whole_.end()) return std::nullopt;
  return *(at + 1);
}

std::optional<Recomputation> RecomputeSteps::less(const Recomputation& now) const {
  const auto at = std::ranges::find(whole_, now);
  if (at == whole_.end() || at == whole_.begin()) return std::nullopt;
  return *(at - 1);
}

bool RecomputeSteps::take_more(std::vector<Recomputation>& stages, std::size_t s) const {
  if (stages.empty()) return false;
  const auto next = more(stages[s]);
  if (next) stages[s] = *next;
  return next.has_value();
}

}  // namespace penstock
