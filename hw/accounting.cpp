// SPDX-License-Identifier: Apache-2.0
#include "hw/accounting.hpp"

#include "hw/optimizer_step.hpp"

#include <algorithm>

namespace penstock {
namespace {

StageBytes real(const RunPlan& plan, const StageSizes& s, int element_bytes) {
  StageBytes a;
  const bool mixed = element_bytes != 4;  // then an fp32 master stands beside the working weights
  a.weights = s.parameters * element_bytes;
  a.version = a.weights;
  a.gradients = s.parameters * 4;
  const bool apart = mixed || plan.training.predicted;
  a.optimizer = 4 * (optimizer_numbers(plan.optimizer, s) + (apart ? s.parameters : 0));
  a.until_input = s.saved_bytes + (s.weight_needs_input ? 0 : s.input_bytes);
  a.until_weight = s.saved_for_weight_bytes + (s.weight_needs_input ? s.input_bytes : 0);
  a.kept = s.kept_bytes;
  // The message an op makes is beside its workspace until it ends; then it is a buffer.
  a.forward_workspace = s.forward_workspace_bytes + s.output_bytes;
  const std::int64_t together =
      plan.program.whole_backward ? plan.program.microbatches_per_update : 1;
  a.part_workspace = s.backward_workspace_bytes + s.input_bytes * together;
  a.weight_workspace = a.part_workspace;
  a.backward_workspace = a.part_workspace + a.kept;  // B is I and then W
  a.input_message = s.input_bytes;
  a.output_message = s.output_bytes;
  return a;
}

}  // namespace

StageBytes accounted_bytes(const RunPlan& plan, std::uint32_t stage, const StageSizes& sizes,
                           int element_bytes, bool stored) {
  return plan.compute == Compute::stand_in ? stage_bytes(plan.costs, stage, stored)
                                           : real(plan, sizes, element_bytes);
}

std::int64_t payload_bytes(const RunPlan& plan, bool logical_clock, const Op& sender,
                           std::int64_t made_bytes) {
  if (plan.compute != Compute::stand_in || logical_clock) return made_bytes;
  return std::max(made_bytes, message_bytes(plan.costs, sender));
}

}  // namespace penstock
