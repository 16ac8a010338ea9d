// SPDX-License-Identifier: Apache-2.0
// What leaving memory free costs, as `penstock plan --search full` says it.
#include "base/units.hpp"
#include "cli/plan_texts.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr const char* kAllUsed = "with all memory used (--headroom 0%)";
constexpr double kLeastShown = 0.0005;

std::string would_one_fit(const FullPlan& full) {
  const WithoutHeadroom& without = *full.without_headroom;
  if (!without.plan)
    return fmt::format("{} no plan {}, either", kAllUsed, without.none_fits ? "fits" : "was found");
  return fmt::format(
      "no plan {} with {:.3g} % of memory left free; {} one fits, of {} per update: {}",
      full.result.infeasible_because.empty() ? "was found" : "fits", 100 * full.problem.headroom(),
      kAllUsed, format_time(without.plan->judgement.iteration_time_s),
      without.plan->choice.family.describe());
}

std::string what_it_costs(const FullPlan& full) {
  constexpr const char* kTried = "(tried: shapes and schedules of plans found)";
  const WithoutHeadroom& without = *full.without_headroom;
  const Objective objective = full.request.search.objective;
  if (without.saved < kLeastShown)
    return fmt::format("{} nothing {} was found {}", kAllUsed, better_word(objective), kTried);
  return fmt::format("{} an update would take at most {}{}, {:.1f} % less {}", kAllUsed,
                     format_time(without.plan->cost),
                     objective == Objective::price ? " of GPU time" : "", 100 * without.saved,
                     kTried);
}

}  // namespace

std::string headroom_text(const FullPlan& full) {
  if (!full.without_headroom) return "";
  return fmt::format("headroom: {}\n",
                     full.offers.empty() ? would_one_fit(full) : what_it_costs(full));
}

}  // namespace penstock
