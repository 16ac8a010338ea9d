// SPDX-License-Identifier: Apache-2.0
#include "program/holdings.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr LifePoint start_of(OpKind kind) { return {kind, OpPoint::start}; }
constexpr LifePoint end_of(OpKind kind) { return {kind, OpPoint::end}; }

/// Does op `kind` come to a point that is said to be of `of`, in the life of what began with an op
/// of another kind?
bool comes_to(OpKind kind, OpKind of) {
  const bool part = of == OpKind::backward_input || of == OpKind::backward_weight;
  return kind == of || (kind == OpKind::backward && part);
}

/// Is it a message of the op, which it does not have?
bool is_missing(const Holding& holding, const Op& op) {
  return (holding.from.at == OpPoint::departure && !op.has(Op::receives)) ||
         (holding.until.at == OpPoint::arrival && !op.has(Op::sends));
}

}  // namespace

void StageHoldings::work(OpKind kind, std::int64_t bytes) {
  of_microbatch.push_back({Owner::workspace, bytes, start_of(kind), end_of(kind)});
}

void StageHoldings::keep(std::int64_t until_input, std::int64_t until_weight,
                         std::int64_t made_for_weight) {
  const LifePoint forward = start_of(OpKind::forward), input = end_of(OpKind::backward_input),
                  weight = end_of(OpKind::backward_weight);
  of_microbatch.push_back({Owner::activations, until_input, forward, input});
  of_microbatch.push_back({Owner::activations, until_weight, forward, weight});
  of_microbatch.push_back({Owner::activations, made_for_weight, input, weight});
}

void StageHoldings::send(std::int64_t input_message, std::int64_t output_message) {
  for (const OpKind kind : {OpKind::forward, OpKind::backward, OpKind::backward_input}) {
    const bool forward = kind == OpKind::forward;
    const LifePoint used = forward ? start_of(kind) : end_of(kind);
    of_microbatch.push_back({Owner::buffers,
                             forward ? input_message : output_message,
                             {kind, OpPoint::departure},
                             used});
    of_microbatch.push_back({Owner::buffers,
                             forward ? output_message : input_message,
                             end_of(kind),
                             {kind, OpPoint::arrival}});
  }
  // A gradient that waits for W leaves with it.
  of_microbatch.push_back({Owner::buffers,
                           input_message,
                           end_of(OpKind::backward_weight),
                           {OpKind::backward_weight, OpPoint::arrival}});
}

std::int64_t StageHoldings::all_of(Owner owner) const {
  std::int64_t bytes = 0;
  for (const Holding& h : of_microbatch) bytes += h.owner == owner ? h.bytes : 0;
  return bytes;
}

std::int64_t StageHoldings::largest_of(Owner owner) const {
  std::int64_t bytes = 0;
  for (const Holding& h : of_microbatch)
    if (h.owner == owner) bytes = std::max(bytes, h.bytes);
  return bytes;
}

std::int64_t StageHoldings::between(Owner owner, const LifePoint& from,
                                    const LifePoint& until) const {
  std::int64_t bytes = 0;
  for (const Holding& h : of_microbatch)
    if (h.owner == owner && h.from == from && h.until == until) bytes += h.bytes;
  return bytes;
}

StageHoldings stage_holdings(const std::vector<StageCosts>& costs, std::uint32_t stage, bool stored,
                             int parts) {
  return stage_holdings(costs, stage, costs[stage].pass(stored), parts);
}

StageHoldings stage_holdings(const std::vector<StageCosts>& costs, std::uint32_t stage,
                             const PassCosts& pass, int parts) {
  const StageCosts& c = costs[stage];
  StageHoldings held{.weights = c.weight_bytes,
                     .version = c.version_bytes,
                     .gradients = c.gradient_bytes,
                     .optimizer = c.optimizer_bytes};
  const std::int64_t until_weight =
      std::min(pass.activation_bytes, pass.activation_after_input_bytes);
  held.keep(pass.activation_bytes - until_weight, until_weight,
            pass.activation_after_input_bytes - until_weight);
  held.work(OpKind::forward, pass.forward_workspace_bytes);
  held.work(OpKind::backward, pass.backward_workspace_bytes);
  held.work(OpKind::backward_input, pass.backward_workspace_bytes);
  held.work(OpKind::backward_weight, pass.backward_workspace_bytes - pass.again_workspace_bytes);
  held.send(stage > 0 ? costs[stage - 1].output_bytes / parts : 0, c.output_bytes / parts);
  return held;
}

OpChanges changes_of(const Op& op, const StageHoldings& held, std::int64_t microbatches) {
  OpChanges changes{};
  const auto add = [&](OpPoint at, const Holding& h, std::int64_t bytes) {
    changes[static_cast<std::size_t>(at)][static_cast<std::size_t>(h.owner)] += bytes;
  };
  for (const Holding& h : held.of_microbatch) {
    const bool begins = h.from.of == op.kind;
    if (begins && is_missing(h, op)) continue;
    // What a part of the backward makes for the other stays within a whole one.
    const bool before = h.from.of == OpKind::forward || op.kind == OpKind::backward_weight;
    const bool ends = begins ? h.until.of == op.kind : before && comes_to(op.kind, h.until.of);
    const bool of_each = h.from.of == OpKind::forward || h.owner == Owner::buffers;
    const std::int64_t bytes = h.bytes * (of_each && op.kind != OpKind::forward ? microbatches : 1);
    if (begins) add(h.from.at, h, bytes);
    if (ends) add(h.until.at, h, -bytes);
  }
  return changes;
}

}  // namespace penstock
