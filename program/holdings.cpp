// SPDX-License-Identifier: Apache-2.0
#include "program/holdings.hpp"

#include <algorithm>

namespace penstock {

StageBytes stage_bytes(const std::vector<StageCosts>& costs, std::uint32_t stage, bool stored,
                       int parts) {
  const StageCosts& c = costs[stage];
  const PassCosts& pass = c.pass(stored);
  StageBytes b;
  b.weights = c.weight_bytes;
  b.version = c.version_bytes;
  b.gradients = c.gradient_bytes;
  b.optimizer = c.optimizer_bytes;
  b.until_weight = std::min(pass.activation_bytes, pass.activation_after_input_bytes);
  b.until_input = pass.activation_bytes - b.until_weight;
  b.kept = pass.activation_after_input_bytes - b.until_weight;
  b.forward_workspace = pass.forward_workspace_bytes;
  b.backward_workspace = b.part_workspace = pass.backward_workspace_bytes;
  b.weight_workspace = b.part_workspace - pass.again_workspace_bytes;
  b.input_message = stage > 0 ? costs[stage - 1].output_bytes / parts : 0;
  b.output_message = c.output_bytes / parts;
  return b;
}

}  // namespace penstock
