#include "hw/stages.hpp"

#include "hw/accounting.hpp"
#include "hw/stand_in_stage.hpp"
#include "hw/transformer_stage.hpp"

#include <fmt/format.h>

#include <numeric>

namespace penstock {

std::unique_ptr<Stage> make_stage(const RunPlan& plan, std::uint32_t stage, int element_bytes) {
  const int stages = plan.program.placement.stages();
  const bool first = stage == 0;
  const bool last = static_cast<int>(stage) + 1 == stages;
  if (plan.compute == Compute::stand_in)
    return std::make_unique<StandInStage>(static_cast<int>(stage), stages, element_bytes,
                                          plan.seed);
  const auto before = plan.layers.begin() + stage;
  const TransformerPart part{std::accumulate(plan.layers.begin(), before, 0), *before, first, last};
  return std::make_unique<TransformerStage>(plan.model, part, plan.microbatch_size, plan.recompute,
                                            element_bytes, plan.seed);
}

std::vector<std::string> why_not_executable(const RunPlan& plan) {
  std::vector<std::string> why;
  const Program& p = plan.program;
  if (p.placement.replicated()) {
    why.push_back(fmt::format("the executor runs one replica, not {}; use --set pipeline.width=1",
                              p.placement.width()));
  }
  if (p.global_step)
    why.emplace_back("the executor steps each device by itself; use optimizer_sync: device");
  if (plan.compute == Compute::transformer) {
    if (const std::string model = why_not_executable(plan.model); !model.empty())
      why.push_back(model);
  }
  return why;
}

std::int64_t bytes_needed(const RunPlan& plan, int device, int element_bytes) {
  std::int64_t bytes = 0;
  const auto& position = plan.program.placement.positions();
  const bool blends = plan.program.versions.backward != VersionRule::Backward::plain;
  for (std::uint32_t s = 0; s < position.size(); ++s) {
    if (static_cast<int>(position[s]) != device) continue;
    const auto stage = make_stage(plan, s, element_bytes);
    const AccountedBytes a = accounted_bytes(plan, s, stage->sizes(), element_bytes);
    std::int64_t flying = 0, most = 0;
    for (const Op& op : plan.program.ops.of(device)) {
      if (op.stage != s || !is_compute(op.kind)) continue;
      most = std::max(most, flying += op.kind == OpKind::forward ? 1 : 0);
      if (op.kind == OpKind::backward || op.kind == OpKind::backward_weight)
        flying -= plan.program.microbatches_of(op);
    }
    bytes += a.weights + a.gradients + a.optimizer +
             a.version * (plan.program.versions.held(s) - 1 + (blends ? 1 : 0)) +
             most * (a.until_input + a.until_weight + a.kept) +
             std::max(a.forward_workspace, a.backward_workspace);
  }
  return bytes;
}

}  // namespace penstock
