// SPDX-License-Identifier: Apache-2.0
#include "hw/accounting.hpp"

#include "hw/optimizer_step.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Leaves of what is divided the part of one rank, and adds the units that are whole while ops run:
/// two of weights, and two of gradients in a backward.
void divide(const RunPlan& plan, const StageShards& shards, const StageSizes& s, int element_bytes,
            StageHoldings& a) {
  if (!shards) return;
  StageSizes own = s;
  own.parameters = shards.owned;
  a.optimizer = 4 * optimizer_numbers(plan.optimizer, own);
  const std::int64_t two = std::min(s.parameters, 2 * shards.largest);
  const auto add = [&](OpKind kind, std::int64_t bytes) { a.work(kind, bytes); };
  if (divides_weights(plan)) {
    a.weights = a.version = shards.owned * element_bytes;
    for (const OpKind kind : {OpKind::forward, OpKind::backward, OpKind::backward_input})
      add(kind, two * element_bytes);
  }
  if (!divides_gradients(plan)) return;
  a.gradients = shards.owned * 4;
  for (const OpKind kind : {OpKind::backward, OpKind::backward_input, OpKind::backward_weight})
    add(kind, two * 4);
}

StageHoldings real(const RunPlan& plan, const StageSizes& s, int element_bytes,
                   const StageShards& shards) {
  StageHoldings a;
  const bool mixed = element_bytes != 4;  // then an fp32 master stands beside the working weights
  a.weights = s.parameters * element_bytes;
  a.version = a.weights;
  a.gradients = s.parameters * 4;
  const bool apart = mixed || plan.training.predicted;
  a.optimizer = 4 * (optimizer_numbers(plan.optimizer, s) + (apart ? s.parameters : 0) +
                     correction_numbers(plan.training, s));
  const std::int64_t for_weight = s.weight_needs_input ? s.input_bytes : 0;
  a.keep(s.saved_bytes + s.input_bytes - for_weight, s.saved_for_weight_bytes + for_weight,
         s.kept_bytes);
  // The message an op makes is beside its workspace until it ends; then it is a buffer.
  a.work(OpKind::forward, s.forward_workspace_bytes + s.output_bytes);
  const std::int64_t together =
      plan.program.whole_backward ? plan.program.microbatches_per_update : 1;
  const std::int64_t part = s.backward_workspace_bytes + s.input_bytes * together;
  a.work(OpKind::backward_input, part);
  a.work(OpKind::backward_weight, part);
  a.work(OpKind::backward, part + s.kept_bytes);  // B is I and then W
  a.send(s.input_bytes, s.output_bytes);
  divide(plan, shards, s, element_bytes, a);
  return a;
}

}  // namespace

StageHoldings accounted_bytes(const RunPlan& plan, std::uint32_t stage, const StageSizes& sizes,
                              int element_bytes, bool stored, const StageShards& shards) {
  return plan.compute == Compute::stand_in ? stage_holdings(plan.costs, stage, stored)
                                           : real(plan, sizes, element_bytes, shards);
}

std::int64_t payload_bytes(const RunPlan& plan, bool logical_clock, const Op& sender,
                           std::int64_t made_bytes) {
  if (plan.compute != Compute::stand_in || logical_clock) return made_bytes;
  return std::max(made_bytes, message_bytes(plan.costs, sender));
}

}  // namespace penstock
