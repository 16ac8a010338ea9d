// SPDX-License-Identifier: Apache-2.0
#include "hw/stages.hpp"

#include "hw/accounting.hpp"
#include "hw/closed_form_stages.hpp"
#include "hw/optimizer_step.hpp"
#include "hw/stand_in_stage.hpp"
#include "hw/training_data.hpp"
#include "hw/transformer_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace penstock {

std::unique_ptr<Stage> make_stage(const RunPlan& plan, std::uint32_t stage, int element_bytes,
                                  bool stored, int share) {
  const int stages = plan.program.placement.stages();
  const bool first = stage == 0;
  const bool last = static_cast<int>(stage) + 1 == stages;
  if (plan.compute == Compute::linear)
    return std::make_unique<LinearStage>(static_cast<int>(stage), stages, plan.microbatch_size,
                                         element_bytes, plan.training.seed);
  if (plan.compute == Compute::quadratic)
    return std::make_unique<QuadraticStage>(static_cast<int>(stage), stages, plan.training.seed);
  if (plan.compute == Compute::stand_in)
    return std::make_unique<StandInStage>(static_cast<int>(stage), stages, element_bytes,
                                          plan.training.seed);
  const auto before = plan.layers.begin() + stage;
  const int device = plan.program.placement.device_of(stage, 0);
  const int replicas = replicas_of_device(plan, device), ranks = ranks_of_device(plan, device);
  const int place = share % ranks;
  const std::int64_t sequences = plan.microbatch_size / replicas;
  const TransformerPart part{
      std::accumulate(plan.layers.begin(), before, 0),
      *before,
      first,
      last,
      {plan.division.tensor, place % plan.division.tensor, plan.division.sequence},
      sequences * (place / plan.division.tensor),
      {plan.division.expert, share / ranks, has_experts_apart(plan)}};
  return std::make_unique<TransformerStage>(
      plan.model, part, sequences, stored ? Recomputation() : plan.recompute.at(stage),
      element_bytes, plan.training, plan.text, plan.router_start);
}

namespace {

std::string whole_matrices(const RunPlan& plan) {
  return plan.optimizer.kind == OptimizerSpec::Kind::muon
             ? "Muon needs whole matrices, and "
             : "basis_rotation needs whole matrices, and ";
}

/// Adds why replicas cannot divide the stages of a plan.
void add_why_not_divided(const RunPlan& plan, std::vector<std::string>& why) {
  const Program& p = plan.program;
  const std::string with = "weights, gradients and states that replicas divide are executed with ";
  if (p.placement.stages() != p.placement.depth() || p.placement.mirrored())
    why.push_back(with + "one stage a device");
  if (plan.division.tensor > 1 || !plan.division.replicas.empty())
    why.push_back(with + "one GPU for each replica of a stage");
  if (p.versions.kind != VersionRule::Kind::flush || p.whole_backward || p.asynchronous)
    why.push_back(with + "schedules that flush, with a backward for each microbatch");
  if (plan.sharding.group != plan.sharding.sharers)
    why.push_back(with + fmt::format("all that have the same weights in one group; use --set "
                                     "pipeline.shard_group={}",
                                     plan.sharding.sharers));
  if (plan.sharding.lookahead != 1)
    why.push_back(with + "one unit gathered ahead (unshard_lookahead: 1)");
  if (plan.optimizer.of_matrices())
    why.push_back(whole_matrices(plan) + "each replica has a part of them");
  if (plan.training.clip > 0)
    why.emplace_back("a norm that is clipped would be that of one replica's part");
  for (std::size_t s = 0; divides_weights(plan) && s < plan.layers.size(); ++s) {
    if (plan.recompute.at(s).recomputed(plan.layers[s]) > 0 &&
        plan.recompute.at(s).group(plan.layers[s]) > 1)
      return why.push_back(with + "layers that are recomputed one by one");
  }
}

/// Adds why ranks cannot have experts of their own.
void add_why_no_experts(const RunPlan& plan, std::vector<std::string>& why) {
  if (plan.sharding.sharded())
    why.emplace_back("sharded weights are executed with all experts on each GPU (expert: 1)");
  if (plan.training.clip > 0)
    why.emplace_back("a norm that is clipped would be that of one GPU's experts");
  if (plan.program.whole_backward)
    why.emplace_back("experts are executed with a backward for each microbatch");
  const std::vector<int>& widths = plan.program.placement.widths();
  if (std::ranges::adjacent_find(widths, std::ranges::not_equal_to()) != widths.end())
    why.emplace_back("experts are executed with as many replicas of every stage");
}

}  // namespace

std::vector<std::string> why_not_computable(const RunPlan& plan) {
  std::vector<std::string> why;
  if (plan.compute == Compute::transformer) {
    if (const std::string model = why_not_executable(plan.model); !model.empty())
      why.push_back(model);
    for (const Recomputation& r : plan.recompute.distinct())
      if (!r.in_full() && !r.plain())
        why.push_back(fmt::format("the executor recomputes core attention or whole layers, not {}",
                                  fmt::join(names_of(r.parts), ", ")));
  }
  if (const std::string data = why_no_data(plan); !data.empty()) why.push_back(data);
  const std::vector<int>& replicas = plan.division.replicas;
  const bool alike =
      std::ranges::adjacent_find(replicas, std::ranges::not_equal_to()) == replicas.end();
  if (!alike && (plan.division.sequence || plan.program.whole_backward ||
                 plan.program.step_sync == StepSync::post_validation))
    why.emplace_back(
        "unlike numbers of replicas that split microbatches are executed without "
        "sequence_parallel, post-validation and backwards of several microbatches");
  if (plan.division.tensor > 1) {
    if (plan.optimizer.of_matrices())
      why.push_back(whole_matrices(plan) + "each tensor rank has a part of them");
    if (plan.training.clip > 0)
      why.emplace_back("a norm that is clipped would be that of one tensor rank's part");
    if (waits_for_no_other(plan))
      why.emplace_back("replicas that wait for no other are executed without tensor ranks");
  }
  if (plan.sharding.sharded()) add_why_not_divided(plan, why);
  if (has_experts_apart(plan)) add_why_no_experts(plan, why);
  return why;
}

std::vector<std::string> why_not_executable(const RunPlan& plan) {
  std::vector<std::string> why = why_not_computable(plan);
  const Program& p = plan.program;
  if (p.step_sync == StepSync::global) {
    why.emplace_back(
        "the executor has no barrier of all devices; use optimizer_sync: device or "
        "post-validation");
  }
  return why;
}

namespace {

StageHoldings bytes_of(const RunPlan& plan, std::uint32_t stage, int element_bytes, bool stored,
                       int rank) {
  const auto made = make_stage(plan, stage, element_bytes, stored, share_of_rank(plan, rank));
  return accounted_bytes(plan, stage, made->sizes(), element_bytes, stored,
                         StageShards(plan, rank, stage, *made));
}

/// Of one stage on a device, if what I makes for W were there from F on.
std::int64_t most_activations(const RunPlan& plan, int device, std::uint32_t stage,
                              const StageHoldings& usual, const StageHoldings& stored) {
  std::int64_t held = 0, most = 0;
  for (const Op& op : plan.program.ops.of_device(device)) {
    if (op.stage != stage || !is_compute(op.kind)) continue;
    const StageHoldings& a = op.has(Op::stored) ? stored : usual;
    const std::int64_t each = a.all_of(Owner::activations);
    if (op.kind == OpKind::forward) most = std::max(most, held += each);
    if (op.kind == OpKind::backward || op.kind == OpKind::backward_weight)
      held -= each * plan.program.microbatches_of(op);
  }
  return most;
}

}  // namespace

std::int64_t bytes_needed(const RunPlan& plan, int rank, int element_bytes) {
  std::int64_t bytes = 0;
  const int device = place_of_rank(plan, rank).device;
  const bool blends = plan.program.versions.backward != VersionRule::Backward::plain;
  const auto adders =
      static_cast<std::int64_t>(adders_of(plan, device).size()) * replicas_of_device(plan, device);
  for (const std::uint32_t s : stages_on(plan, device)) {
    const StageHoldings a = bytes_of(plan, s, element_bytes, false, rank);
    const StageHoldings stored = bytes_of(plan, s, element_bytes, true, rank);
    bytes += optimizer_scratch_bytes(plan.optimizer, make_stage(plan, s, element_bytes)->sizes(),
                                     element_bytes) +
             a.weights + a.gradients * (adders > 1 ? adders + 1 : 1) +
             (reduces_beside(plan, s) ? a.gradients : 0) + a.optimizer +
             a.version * (plan.program.versions.held(s) - 1 + (blends ? 1 : 0)) +
             most_activations(plan, device, s, a, stored) +
             std::max(a.largest_of(Owner::workspace), stored.largest_of(Owner::workspace));
  }
  return bytes;
}

}  // namespace penstock
