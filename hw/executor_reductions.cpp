// SPDX-License-Identifier: Apache-2.0
// How a device reduces its gradients with the others that hold its weights: in parts, each of which
// leaves when its stage's last backward has completed it, by the steps that the algorithm of the
// scenario has for the device.
#include "hw/executor_state.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

/// Is it the REDUCE_GRAD of a device that adds the gradients of others?
bool DeviceExecutor::exchanges(const Op& op) const {
  return op.kind == OpKind::reduce_grad && !parts_.empty();
}

/// Another device's REDUCE_GRAD of the same update: of the first stage that counts from its
/// position, with the number of its replica.
Op DeviceExecutor::reduction_of(Op op, int device) const {
  const Placement& placement = in_.plan.program.placement;
  const auto first = std::ranges::find(placement.positions(), placement.position_of(device));
  op.stage = static_cast<std::uint16_t>(first - placement.positions().begin());
  op.microbatch += placement.replica_of(device) - placement.replica_of(number_);
  return op;
}

std::int64_t DeviceExecutor::gradient_elements() const {
  std::int64_t elements = 0;
  for (const auto& [number, s] : stages_) elements += s->sizes().parameters;
  return elements;
}

/// Finds what this device does in each of its reductions, and on which queue.
void DeviceExecutor::find_parts() {
  if (adders_.size() == 1 && !in_.plan.program.reduces_within) return;
  if (divides_gradients(in_.plan)) return;  // every backward has reduced them
  const Program& program = in_.plan.program;
  const auto stated = parts_at(in_.plan, program.placement.position_of(number_));
  std::vector<StageElements> elements;
  for (const auto& [number, s] : stages_)
    elements.push_back({number, s->sizes().parameters, s->sizes().expert_parameters});
  for (const auto& ranges : reduced_ranges(stated, elements)) {
    Part& part = parts_.emplace_back(Part{stated[parts_.size()], gradient_elements()});
    for (const ReducedRange& range : ranges) {
      part.first = std::min(part.first, range.first);
      add_steps(range, part.steps);
    }
  }
  beside_ = program.detached_reductions || parts_.size() > 1;
  if (beside_) {
    reducing_ = &in_.backend.beside(rank_);
    if (in_.settings.pace) pacing_ = &in_.backend.pacing(rank_);
  }
  if (parts_.size() > 1) gradient_ends_ = GradientEnds(program);
}

/// Adds this rank's steps of the reduction of some gradients: those of experts are reduced among
/// the ranks with the same ones.
void DeviceExecutor::add_steps(const ReducedRange& range, std::vector<CollectiveStep>& own) const {
  const auto& [first, end, experts] = range;
  const Collective what =
      in_.plan.sharding.sharded() ? Collective::reduce_scatter : Collective::all_reduce;
  for (CollectiveStep step : experts ? expert_reduction_steps(in_.plan, rank_, end - first)
                                     : reduction_steps(in_.plan, adders_, end - first,
                                                       place_ % in_.plan.division.tensor, what)) {
    if (step.gpu != rank_) continue;
    step.first += first;
    step.end += first;
    own.push_back(step);
  }
}

/// Posts all receives of a reduction, unless they are.
void DeviceExecutor::receive_gradients(std::uint32_t g) {
  if (reductions_.contains(g)) return;
  Reduction& r = reductions_[g];
  for (const Part& part : parts_) {
    for (const CollectiveStep& step : part.steps) {
      if (step.kind == CollectiveStep::Kind::send) continue;
      const std::int64_t bytes = (step.end - step.first) * 4;
      ReceivingEnd& end = in_.backend.receiving(
          channel_between(step.peer, rank_, false, Transfer::Kind::reduction));
      Block* block = device_.allocate(end.queue(), bytes);
      const Op op = reduction_of(ops_[g], place_of_rank(in_.plan, step.peer).device);
      r.received.push_back({block, end.receive(nullptr, block, bytes, op).arrived});
    }
  }
}

/// The compute queue has come to a REDUCE_GRAD: what has not left for the others does so.
void DeviceExecutor::begin_reduction(std::uint32_t g) {
  receive_gradients(g);
  Reduction& r = reductions_.at(g);
  const bool detached = ops_[g].has(Op::detached);
  if (detached) {
    for (auto& [number, s] : stages_) s->weights->set_aside();
  }
  reduce_parts(g, [](const Part&) { return true; });
  if (detached) {
    detached_ = g;
  } else if (beside_) {
    device_.wait(kComputeQueue, r.met);
  }
}

/// The gradients of the parts that `is_there` names are complete when the compute queue gets here.
/// Parts leave in their order.
template <class Is>
void DeviceExecutor::reduce_parts(std::uint32_t g, const Is& is_there) {
  receive_gradients(g);
  Reduction& r = reductions_.at(g);
  r.there.resize(parts_.size());
  for (std::size_t k = r.begun; k < parts_.size(); ++k)
    if (is_there(parts_[k])) r.there[k] = true;
  if (r.begun >= parts_.size() || !r.there[r.begun]) return;
  if (beside_) reducing_->wait(kComputeQueue, device_.record(kComputeQueue));
  while (r.begun < parts_.size() && r.there[r.begun]) reduce_part(g, parts_[r.begun++]);
}

/// Issues the steps of one part. All members have come when the first message has; on a clock of
/// stated times, and where a queue beside it waits for the stated time, this is so when the last
/// one has, because then each has heard of all.
void DeviceExecutor::reduce_part(std::uint32_t g, const Part& part) {
  Reduction& r = reductions_.at(g);
  const bool hears_of_all =
      in_.settings.pace && (beside_ || in_.settings.clock == Clock::virtual_clock);
  r.met = nullptr;
  for (const CollectiveStep& step : part.steps) {
    if (step.kind == CollectiveStep::Kind::send) {
      send_step(g, step);
      continue;
    }
    receive_step(r, step);
    if (!r.met && !hears_of_all) r.met = reducing_->record(kComputeQueue);
  }
  if (!r.met) r.met = reducing_->record(kComputeQueue);
  Event begin = r.met;
  r.end = nullptr;
  if (pacing_ != nullptr) {
    pacing_->wait(kComputeQueue, r.met);
    begin = pacing_->record(kComputeQueue);
    pacing_->pace(kComputeQueue, begin, part.stated.seconds);
    r.end = pacing_->record(kComputeQueue);
  } else if (beside_) {
    r.end = reducing_->record(kComputeQueue);
  }
  if (!r.start) r.start = begin;
}

void DeviceExecutor::send_step(std::uint32_t g, const CollectiveStep& step) {
  const std::int64_t bytes = (step.end - step.first) * 4;
  SendingEnd& end =
      in_.backend.sending(channel_between(rank_, step.peer, false, Transfer::Kind::reduction));
  Block* block = device_.allocate(beside_ ? end.queue() : kComputeQueue, bytes);
  if (beside_) reducing_->wait(kComputeQueue, device_.record(end.queue()));
  for_each_stage(step, [&](Tensor own, std::int64_t offset, std::int64_t n) {
    reducing_->math().copy(n * 4, own, {block, offset * 4});
  });
  end.send(reducing_->record(kComputeQueue), block, bytes, ops_[g]);
  device_.release(end.queue(), block);
}

void DeviceExecutor::receive_step(Reduction& r, const CollectiveStep& step) {
  const auto& [block, arrived] = r.received[r.taken++];
  Math& math = reducing_->math();
  reducing_->wait(kComputeQueue, arrived);
  if (const Block* piled = std::exchange(r.piled, nullptr); piled && step.end > step.first)
    math.accumulate(step.end - step.first, {piled}, {block});
  if (step.kind == CollectiveStep::Kind::pile) {
    r.piled = block;
    return;
  }
  for_each_stage(step, [&, from = block](Tensor own, std::int64_t offset, std::int64_t n) {
    if (step.kind == CollectiveStep::Kind::add)
      math.accumulate(n, {from, offset * 4}, own);
    else
      math.copy(n * 4, {from, offset * 4}, own);
  });
}

/// Beside a backward that completes its stage's gradient, parts leave with the piece of the
/// gradient that completes them.
void DeviceExecutor::reduce_pieces(std::uint32_t g, const Stage& stage, std::size_t piece) {
  std::int64_t first = stage.pieces()[piece].first;
  for (const auto& [number, s] : stages_)
    if (number < ops_[g].stage) first += s->sizes().parameters;
  reduce_parts(gradient_ends_.reduced_by(g), [&](const Part& part) {
    return part.stated.stage == ops_[g].stage && part.first >= first;
  });
}

/// Parts that op g completes before the device comes to their reduction leave when they are there:
/// where ops are paced when they are stated to be, otherwise at the end of the op.
void DeviceExecutor::end_early_parts(std::uint32_t g, const Event& begin, double duration_s) {
  const std::uint32_t reduce = gradient_ends_.reduced_by(g);
  if (reduce == kNoOp) return;
  const bool last = ops_.previous_compute(number_, reduce) == g;
  for (const Part& part : parts_) {
    if (part.stated.stage != ops_[g].stage) continue;
    if (last && (!in_.settings.pace || part.stated.ready >= 1)) continue;
    if (in_.settings.pace) device_.pace(kComputeQueue, begin, duration_s, part.stated.ready);
    reduce_parts(reduce, [&](const Part& other) { return &other == &part; });
  }
}

/// The compute queue goes on when the gradients are summed.
void DeviceExecutor::end_reduction(std::uint32_t g) {
  const auto r = reductions_.find(g);
  if (r->second.end) device_.wait(kComputeQueue, r->second.end);
  for (const auto& [block, arrived] : r->second.received) device_.release(kComputeQueue, block);
  reductions_.erase(r);
}

/// Calls `visit` with what of each stage's gradients a step moves: where it is, how many of the
/// step's elements are before it, and its own.
template <class Visit>
void DeviceExecutor::for_each_stage(const CollectiveStep& step, Visit visit) const {
  std::int64_t before = 0;
  for (const auto& [number, s] : stages_) {
    const std::int64_t n = s->sizes().parameters;
    const std::int64_t first = std::max(step.first, before);
    const std::int64_t end = std::min(step.end, before + n);
    if (first < end)
      visit(s->weights->summed().at((first - before) * 4), first - step.first, end - first);
    before += n;
  }
}

}  // namespace penstock
