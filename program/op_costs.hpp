// SPDX-License-Identifier: Apache-2.0
// What ops cost by themselves, of the costs of their stages.
//   F, B, I, W      that of the stage and of the microbatch, which is recomputed or stored
//   STEP, REDUCE    that of all stages of the position together
//   F and B paired  both, less the mean of what their stages save
#pragma once

#include "program/op_lists.hpp"

namespace penstock {

/// The sum over all stages of a position of the pipeline.
template <class Number>
Number at_position(const Placement& placement, const std::vector<StageCosts>& costs,
                   std::uint32_t position, Number StageCosts::*what) {
  Number sum = 0;
  for (const std::uint32_t stage : placement.stages_at(position)) sum += costs[stage].*what;
  return sum;
}

/// Returns the seconds that an op computes by itself.
inline double op_seconds(const Placement& placement, const std::vector<StageCosts>& costs,
                         const Op& op) {
  if (is_compute(op.kind)) return costs[op.stage].pass(op)[op].seconds;
  return at_position(placement, costs, placement.positions()[op.stage],
                     op.kind == OpKind::step ? &StageCosts::step_s : &StageCosts::reduce_grad_s);
}

/// Of two stages that save so much.
constexpr double pair_saving_s(double forward_s, double backward_s) {
  return (forward_s + backward_s) / 2;
}

/// Seconds op g computes, together with the one that it is paired with.
inline double computing_s(const OpLists& ops, const Placement& placement,
                          const std::vector<StageCosts>& costs, std::uint32_t g) {
  const auto own_s = [&](const Op& op) { return op_seconds(placement, costs, op); };
  const Op& op = ops[g];
  if (!op.has(Op::paired)) return own_s(op);
  const Op& backward = ops[g + 1];
  return own_s(op) + own_s(backward) -
         pair_saving_s(costs[op.stage].overlap_saving_s, costs[backward.stage].overlap_saving_s);
}

}  // namespace penstock
