// SPDX-License-Identifier: Apache-2.0
#include "hw/shards.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Returns a rank's own ones among the steps of a unit's collective.
std::vector<CollectiveStep> own_steps(const RunPlan& plan, int rank, const ShardUnit& unit,
                                      Collective what) {
  const auto [device, place] = place_of_rank(plan, rank);
  std::vector<CollectiveStep> own;
  for (CollectiveStep step : reduction_steps(plan, adders_of(plan, device), unit.elements(),
                                             place % plan.division.tensor, what)) {
    if (step.gpu != rank) continue;
    step.first += unit.first;
    step.end += unit.first;
    own.push_back(step);
  }
  return own;
}

/// Returns what an all-gather does not bring: what the rank has.
std::vector<OwnedRange> owned_of(const ShardUnit& unit, std::int64_t at) {
  std::vector<GradientRange> brought;
  for (const CollectiveStep& step : unit.gather)
    if (step.kind == CollectiveStep::Kind::take) brought.push_back({step.first, step.end});
  brought.push_back({unit.end, unit.end});
  std::ranges::sort(brought, {}, &GradientRange::first);
  std::vector<OwnedRange> owned;
  std::int64_t known = unit.first;
  for (const auto& [first, end] : brought) {
    if (known < first) {
      owned.push_back({known, first, at});
      at += first - known;
    }
    known = std::max(known, end);
  }
  return owned;
}

}  // namespace

StageShards::StageShards(const RunPlan& plan, int rank, std::uint32_t number, const Stage& stage) {
  if (!plan.sharding.sharded()) return;
  if (divides_gradients(plan)) {
    for (const auto& [first, end] : stage.pieces()) units.push_back({first, end});
  } else {
    const auto parts = parts_at(plan, plan.program.placement.positions()[number]);
    for (const auto& [first, end] : ranges_of(parts, {{number, stage.sizes().parameters}}))
      units.push_back({first, end});
  }
  for (ShardUnit& unit : units) {
    unit.gather = own_steps(plan, rank, unit, Collective::all_gather);
    unit.reduce = own_steps(plan, rank, unit, Collective::reduce_scatter);
    unit.owned = owned_of(unit, owned);
    for (const OwnedRange& range : unit.owned) owned += range.end - range.first;
    largest = std::max(largest, unit.elements());
  }
}

}  // namespace penstock
