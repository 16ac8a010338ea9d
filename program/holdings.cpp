#include "program/holdings.hpp"

#include <algorithm>

namespace penstock {

StageBytes stage_bytes(const std::vector<StageCosts>& costs, std::uint32_t stage, bool stored,
                       int parts) {
  const StageCosts& c = costs[stage];
  const std::int64_t activations = stored ? c.stored_activation_bytes : c.activation_bytes;
  StageBytes b;
  b.weights = c.weight_bytes;
  b.version = c.version_bytes;
  b.gradients = c.gradient_bytes;
  b.optimizer = c.optimizer_bytes;
  b.until_weight = std::min(activations, c.activation_after_input_bytes);
  b.until_input = activations - b.until_weight;
  b.kept = c.activation_after_input_bytes - b.until_weight;
  b.forward_workspace = c.forward_workspace_bytes;
  b.backward_workspace = b.part_workspace =
      stored ? c.stored_workspace_bytes : c.backward_workspace_bytes;
  b.input_message = stage > 0 ? costs[stage - 1].output_bytes / parts : 0;
  b.output_message = c.output_bytes / parts;
  return b;
}

}  // namespace penstock
