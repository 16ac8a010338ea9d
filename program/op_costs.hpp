// What ops cost by themselves, of the costs of their stages.
//   F, B, I, W      that of the stage; without the recomputation where the microbatch is stored
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

/// Seconds of an op of this kind that recomputes what it has to.
inline double op_seconds(const Placement& placement, const std::vector<StageCosts>& costs,
                         std::uint32_t stage, OpKind kind) {
  if (is_compute(kind)) return costs[stage].duration_s(kind);
  return at_position(placement, costs, placement.positions()[stage],
                     kind == OpKind::step ? &StageCosts::step_s : &StageCosts::reduce_grad_s);
}

/// Does the op spare the recomputation that is part of its time?
inline bool spares_recomputation(const Op& op) {
  return op.has(Op::stored) && is_backward(op.kind);
}

/// Of two stages that save so much.
constexpr double pair_saving_s(double forward_s, double backward_s) {
  return (forward_s + backward_s) / 2;
}

/// Seconds op g computes, together with the one that it is paired with.
inline double computing_s(const OpLists& ops, const Placement& placement,
                          const std::vector<StageCosts>& costs, std::uint32_t g) {
  const auto own_s = [&](const Op& op) {
    return op_seconds(placement, costs, op.stage, op.kind) -
           (spares_recomputation(op) ? costs[op.stage].recompute_s : 0);
  };
  const Op& op = ops[g];
  if (!op.has(Op::paired)) return own_s(op);
  const Op& backward = ops[g + 1];
  return own_s(op) + own_s(backward) -
         pair_saving_s(costs[op.stage].overlap_saving_s, costs[backward.stage].overlap_saving_s);
}

}  // namespace penstock
