// SPDX-License-Identifier: Apache-2.0
// What replicas that divide a stage do inside of its ops: they gather its weights, unit by unit
// where each keeps a part (the next unit while one is used) and otherwise all before a forward
// computes, and they reduce a unit's gradients when a backward has made them, while it makes those
// of the next one. A backward still has the unit that the forward before it used last.
//
// Where ops are paced on a wall clock, each unit computes for its part of the op's stated time,
// and what is exchanged before, beside and after it takes what the links take.
#include "hw/executor_state.hpp"
#include "hw/math.hpp"

#include <algorithm>

namespace penstock {

/// Before an op computes: says where its units are, and gathers what it must begin with.
void DeviceExecutor::use_units(std::uint32_t g, StageState& s, StageBuffers& b) {
  const Op& op = ops_[g];
  const std::vector<ShardUnit>& units = s.weights->shards().units;
  if (gathers_all(in_.plan, op)) gather_whole(g, s, b.weights);
  s.paced = 0;
  if (paces_units(g)) s.unit_begin = device_.record(kComputeQueue);
  if (divides_weights(in_.plan) && op.kind != OpKind::backward_weight) {
    const bool forward = op.kind == OpKind::forward;
    for (UnitPlace& place : s.whole_weights)
      if (forward || place.unit > 0) place.unit = UnitPlace::kNone;
    b.gathered = [this, g, &s](std::size_t unit) { return use_weights(g, s, unit); };
    b.weights = use_weights(g, s, forward ? units.size() - 1 : 0);
  }
  if (!divides_gradients(in_.plan) || op.kind == OpKind::forward ||
      op.kind == OpKind::backward_input)
    return;
  b.reduced = [this, &s](std::size_t unit) { return begin_gradients(s, unit); };
  b.piece_done = [this, g, &s](std::size_t unit) { reduce_unit(g, s, unit); };
  if (units.size() == 1) b.gradients = begin_gradients(s, 0);
}

/// Returns the weights of a unit when they are there, and has those of the next one gathered.
Tensor DeviceExecutor::use_weights(std::uint32_t g, StageState& s, std::size_t unit) {
  const std::vector<ShardUnit>& units = s.weights->shards().units;
  const bool next_one = s.used != unit;
  if (next_one && std::exchange(s.used, unit) != UnitPlace::kNone) pace_unit(g, s);
  gather_unit(g, s, unit);
  UnitPlace& place = s.whole_weights[unit % 2];
  wait_for_unit(place);
  if (next_one && paces_units(g)) s.unit_begin = device_.record(kComputeQueue);
  const std::size_t next = ops_[g].kind == OpKind::forward ? unit - 1 : unit + 1;
  if (next < units.size()) gather_unit(g, s, next);
  return Tensor{place.block}.at(-units[unit].first * device_.math().element_bytes());
}

/// Gathers a unit unless it is there, from where the compute queue is now.
void DeviceExecutor::gather_unit(std::uint32_t g, StageState& s, std::size_t unit) {
  UnitPlace& place = s.whole_weights[unit % 2];
  if (place.unit == unit) return;
  wait_for_unit(place);
  place.unit = unit;
  const ShardUnit& u = s.weights->shards().units[unit];
  Device& beside = in_.backend.beside(rank_);
  const std::int64_t bytes = beside.math().element_bytes();
  const Tensor to = Tensor{place.block}.at(-u.first * bytes);
  beside.wait(kComputeQueue, device_.record(kComputeQueue));
  for (const auto& [first, end, at] : u.owned)
    beside.math().copy((end - first) * bytes, s.weights->newest_tensor().at(at * bytes),
                       to.at(first * bytes));
  exchange_unit(g, place, {"weights", Collective::all_gather, to, u.elements()}, u.gather);
}

/// Gathers all units, each where it belongs among all weights.
void DeviceExecutor::gather_whole(std::uint32_t g, const StageState& s, Tensor to) {
  UnitPlace place;
  in_.backend.beside(rank_).wait(kComputeQueue, device_.record(kComputeQueue));
  for (const ShardUnit& u : s.weights->shards().units)
    exchange_unit(g, place, {"weights", Collective::all_gather, to, u.elements()}, u.gather);
  wait_for_unit(place);
}

/// Returns where a backward adds the gradients of a unit, which are zero.
Tensor DeviceExecutor::begin_gradients(StageState& s, std::size_t unit) {
  UnitPlace& place = s.whole_gradients[unit % 2];
  wait_for_unit(place);
  place.unit = unit;
  device_.math().zero(place.block->bytes, {place.block});
  return Tensor{place.block}.at(-s.weights->shards().units[unit].first * 4);
}

/// Adds what all replicas have of a unit's gradients to the shard.
void DeviceExecutor::reduce_unit(std::uint32_t g, StageState& s, std::size_t unit) {
  UnitPlace& place = s.whole_gradients[unit % 2];
  const ShardUnit& u = s.weights->shards().units[unit];
  Device& beside = in_.backend.beside(rank_);
  const Tensor from = Tensor{place.block}.at(-u.first * 4);
  place.unit = UnitPlace::kNone;
  s.reduced = unit + 1;
  end_pass(g, s);
  pace_unit(g, s);
  beside.wait(kComputeQueue, device_.record(kComputeQueue));
  exchange_unit(
      g, place,
      {"gradients", Collective::reduce_scatter, from, u.elements(), StageExchange::Numbers::fp32},
      u.reduce);
  for (const auto& [first, end, at] : u.owned)
    beside.math().accumulate(end - first, from.at(first * 4), s.weights->gradients().at(at * 4));
  place.done = beside.record(kComputeQueue);
}

void DeviceExecutor::exchange_unit(std::uint32_t g, UnitPlace& place, const StageExchange& e,
                                   const std::vector<CollectiveStep>& steps) {
  const std::vector<Block*> received = exchange_by(g, e, steps, false);
  place.received.insert(place.received.end(), received.begin(), received.end());
  place.done = record(g).exchanges.back().end;
}

/// The compute queue goes on when what was exchanged last for a place is there.
void DeviceExecutor::wait_for_unit(UnitPlace& place) {
  if (place.done) device_.wait(kComputeQueue, place.done);
  place.done = nullptr;
  for (Block* block : place.received) device_.release(kComputeQueue, block);
  place.received.clear();
}

/// Returns how often an op passes over the units of its stage: where weights are gathered, and
/// where gradients are reduced. A whole backward does one after the other.
int DeviceExecutor::unit_passes(const Op& op) const {
  const bool gathers = divides_weights(in_.plan) && op.kind != OpKind::backward_weight;
  const bool reduces = divides_gradients(in_.plan) &&
                       (op.kind == OpKind::backward || op.kind == OpKind::backward_weight);
  return is_compute(op.kind) ? (gathers ? 1 : 0) + (reduces ? 1 : 0) : 0;
}

/// Returns whether an op is paced unit by unit: on a wall clock, where exchanges take their own
/// time. A unit that is recomputed is used more than once, and so is one of a pair.
bool DeviceExecutor::paces_units(std::uint32_t g) const {
  const Op& op = ops_[g];
  if (!in_.settings.pace || in_.settings.clock == Clock::virtual_clock) return false;
  if (unit_passes(op) == 0 && !gathers_all(in_.plan, op)) return false;
  return in_.plan.recompute.at(op.stage).granularity == Recompute::none && ops_.together(g) == 1;
}

/// Waits until a unit has computed for its part of the op's time.
void DeviceExecutor::pace_unit(std::uint32_t g, StageState& s) {
  if (!paces_units(g)) return;
  const auto parts = unit_passes(ops_[g]) * std::ssize(s.weights->shards().units);
  device_.pace(kComputeQueue, s.unit_begin,
               duration_s(in_.plan, g) / static_cast<double>(std::max<std::ptrdiff_t>(1, parts)));
  s.unit_begin = device_.record(kComputeQueue);
  ++s.paced;
}

/// After a pass over weights: waits for the parts of units that it did not use (a backward does not
/// use the embedding's).
void DeviceExecutor::end_pass(std::uint32_t g, StageState& s) {
  if (std::exchange(s.used, UnitPlace::kNone) == UnitPlace::kNone || !paces_units(g)) return;
  while (s.paced < s.weights->shards().units.size()) pace_unit(g, s);
}

/// After an op has computed: reduces what its stage did not say is complete, and waits.
void DeviceExecutor::end_units(std::uint32_t g, StageState& s) {
  const OpKind kind = ops_[g].kind;
  const bool reduces =
      divides_gradients(in_.plan) && (kind == OpKind::backward || kind == OpKind::backward_weight);
  while (reduces && s.reduced < s.weights->shards().units.size()) {
    if (s.whole_gradients[s.reduced % 2].unit != s.reduced) begin_gradients(s, s.reduced);
    reduce_unit(g, s, s.reduced);
  }
  s.reduced = 0;
  end_pass(g, s);
  if (unit_passes(ops_[g]) == 0) pace_unit(g, s);
  for (auto* places : {&s.whole_weights, &s.whole_gradients})
    for (UnitPlace& place : *places) wait_for_unit(place);
}

/// When all ops have run, the weights of divided stages are made whole, to be compared and kept.
void DeviceExecutor::assemble_weights() {
  if (!in_.plan.sharding.sharded() || first_ == last_) return;
  const std::vector<ExchangeRecord> of_op = record(last_ - 1).exchanges;
  for (auto& [number, s] : stages_) {
    const Tensor shard = s->weights->newest_tensor(), whole = s->weights->assemble();
    for (const ShardUnit& u : s->weights->shards().units)
      for (const auto& [first, end, at] : u.owned)
        if (divides_weights(in_.plan))
          device_.math().copy((end - first) * 4, shard.at(at * 4), whole.at(first * 4));
    gather_whole(last_ - 1, *s, whole);
  }
  record(last_ - 1).exchanges = of_op;
}

}  // namespace penstock
