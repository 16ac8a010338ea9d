// SPDX-License-Identifier: Apache-2.0
// TiMePReSt (Dutta et al., FGCS 2026, 108260): "nF1B". A minibatch of N = m microbatches goes
// forward microbatch by microbatch, and back at once, on the mean loss; an update follows every
// backward. The order is that of unit slots: an op may use what an earlier slot finished; a stage
// runs the backward of its next minibatch if that is ready (the last stage: all N forwards done),
// else its next forward if that has arrived. These are the grids of the paper's figure 2.
//
// Versions, as of those slots. A forward uses, on every stage, the version stage 0 had when its
// microbatch entered (vertical sync: the microbatches of a minibatch may differ). A backward uses,
// on every stage, the newest version that all stages had applied when it began on the last stage:
// v updates behind the one it makes, where backwards follow each other every N + 1 slots and take
// p - 1 to come to stage 0:
//   v = floor((p-1) / (N+1)) + 1         so v = 1 if and only if p <= N + 1
// (the paper's formula, floor((p+N-2) / N), is larger for some p > N + 3). Its gradient is added to
// the newest weights, as every optimizer here does.
//
// V-TiMePReSt and I-TiMePReSt (arXiv 2509.23241) run the same order. V uses the weights as they are
// in every F and B and keeps no other. I runs the forwards as TiMePReSt and the backward on weights
// between stale and latest ones. Its formula is not at hand; assumed:
//   e^-d W_stale + (1 - e^-d) W_latest
// with W_stale the version the minibatch entered with (that of its first forward), W_latest the
// stage's when the backward starts, and d the updates between them. It takes one buffer more.
#include "program/live_versions.hpp"
#include "schedules/catalog.hpp"

namespace penstock {
namespace {

/// The unit-slot pipeline. A slot looks only at stages that have just run or been given something,
/// so the work is proportional to the ops.
class UnitSlots {
 public:
  explicit UnitSlots(const ScheduleShape& shape)
      : n_(shape.microbatches_per_update),
        total_(shape.total()),
        stages_(shape.depth),
        seen_(shape.depth, kNoOp) {
    for (Stage& s : stages_) s.ops.reserve(total_ + shape.batches);
    entered_.reserve(total_);
    applied_.reserve(shape.batches);
  }

  void run() {
    std::vector<std::uint32_t> now{0}, next;
    std::vector<Op> run_now;
    for (std::uint32_t slot = 0; !now.empty(); ++slot) {
      run_now.clear();
      for (const std::uint32_t s : now) choose(s, run_now);
      next.clear();
      for (const Op& op : run_now) finish(op, slot, next);
      now.swap(next);
    }
  }

  std::span<const Op> order(std::uint32_t stage) const { return stages_[stage].ops; }
  /// By microbatch: updates that stage 0 had made when it entered.
  const std::vector<std::uint32_t>& entered() const { return entered_; }
  /// By minibatch: updates that all stages had made when its backward began.
  const std::vector<std::uint32_t>& applied() const { return applied_; }

 private:
  struct Stage {
    std::uint32_t forwards = 0, backwards = 0;  // done in earlier slots
    std::vector<Op> ops;
  };

  bool last(std::uint32_t s) const { return s + 1 == stages_.size(); }

  bool backward_ready(std::uint32_t s) const {
    const std::uint32_t j = stages_[s].backwards;
    return last(s) ? stages_[s].forwards >= (j + 1) * n_ : stages_[s + 1].backwards > j;
  }
  bool forward_ready(std::uint32_t s) const {
    const std::uint32_t k = stages_[s].forwards;
    return k < total_ && (s == 0 || stages_[s - 1].forwards > k);
  }

  void choose(std::uint32_t s, std::vector<Op>& run_now) {
    const Stage& stage = stages_[s];
    if (stage.backwards * n_ < total_ && backward_ready(s)) {
      if (last(s)) applied_.push_back(stages_[0].backwards);
      run_now.push_back(make_op(OpKind::backward, s, (stage.backwards + 1) * n_ - 1));
    } else if (forward_ready(s)) {
      if (s == 0) entered_.push_back(stage.backwards);
      run_now.push_back(make_op(OpKind::forward, s, stage.forwards));
    }
  }

  void finish(const Op& op, std::uint32_t slot, std::vector<std::uint32_t>& next) {
    const bool forward = op.kind == OpKind::forward;
    ++(forward ? stages_[op.stage].forwards : stages_[op.stage].backwards);
    stages_[op.stage].ops.push_back(op);
    look_at(op.stage, slot, next);
    if (forward && !last(op.stage)) look_at(op.stage + 1U, slot, next);
    if (!forward && op.stage > 0) look_at(op.stage - 1U, slot, next);
  }

  /// In the slot after this one, once.
  void look_at(std::uint32_t s, std::uint32_t slot, std::vector<std::uint32_t>& next) {
    if (seen_[s] == slot) return;
    seen_[s] = slot;
    next.push_back(s);
  }

  std::uint32_t n_, total_;
  std::vector<Stage> stages_;
  std::vector<std::uint32_t> seen_;  // by stage: the last slot after which it is looked at
  std::vector<std::uint32_t> entered_, applied_;
};

void generate_timeprest(const ScheduleShape& shape, OpLists& order) {
  UnitSlots slots(shape);
  slots.run();
  for (std::uint32_t s = 0; s < shape.depth; ++s) {
    for (const Op& op : slots.order(s)) order.add_op(op);
    order.end_device();
  }
}

void set_held(const OpLists& order, VersionRule& rule) {
  const auto version_of = [&](const Op& op) {
    const bool forward = op.kind == OpKind::forward;
    return (forward ? rule.forward_listed : rule.backward_listed)[op.stage][op.microbatch];
  };
  const auto updates = [](const Op& op) { return op.kind == OpKind::backward; };
  for (int s = 0; s < order.devices(); ++s)
    rule.listed_held.push_back(live_versions(order.of_device(s), version_of, updates));
}

/// By microbatch, what `of` says of its minibatch.
template <class Of>
std::vector<std::uint32_t> by_minibatch(const ScheduleShape& shape, const Of& of) {
  std::vector<std::uint32_t> versions(shape.total());
  for (std::uint32_t k = 0; k < shape.total(); ++k)
    versions[k] = of(k / shape.microbatches_per_update);
  return versions;
}

void list_synchronized(const ScheduleShape& shape, const OpLists& order, VersionRule& rule) {
  UnitSlots slots(shape);
  slots.run();
  rule.forward_listed.assign(shape.depth, slots.entered());
  rule.backward_listed.assign(
      shape.depth, by_minibatch(shape, [&](std::uint32_t j) { return slots.applied()[j]; }));
  set_held(order, rule);
}

void list_latest(const ScheduleShape& shape, const OpLists& order, VersionRule& rule) {
  for (int s = 0; s < order.devices(); ++s) {
    std::vector<std::uint32_t> versions;
    std::uint32_t made = 0;
    for (const Op& op : order.of_device(s)) {
      if (op.kind == OpKind::forward) versions.push_back(made);
      if (op.kind == OpKind::backward) ++made;
    }
    rule.forward_listed.push_back(std::move(versions));
  }
  rule.backward_listed.assign(shape.depth, by_minibatch(shape, [](std::uint32_t j) { return j; }));
  set_held(order, rule);
}

void list_mixed(const ScheduleShape& shape, const OpLists& order, VersionRule& rule) {
  UnitSlots slots(shape);
  slots.run();
  const auto stale = [&](std::uint32_t j) {
    return slots.entered()[j * shape.microbatches_per_update];
  };
  rule.forward_listed.assign(shape.depth, slots.entered());
  rule.backward_listed.assign(shape.depth, by_minibatch(shape, stale));
  rule.backward = VersionRule::Backward::mixed;
  ++rule.extra_copies;
  set_held(order, rule);
}

/// The slots have no gaps once the pipeline is full, but a backward is a slot only where it takes
/// as long as a forward.
double none_in_unit_slots(const ScheduleShape& shape) {
  const StageTimes t = shape.time(0);
  return t.forward == shape.microbatches_per_update * t.backward() ? 0 : kNoClaim;
}

Schedule row() {
  return {
      .name = "timeprest",
      .paper = "TiMePReSt, FGCS 2026",
      .summary =
          "N forwards, then one backward of the whole minibatch; no flush, backward on newer "
          "weights than the forward",
      .bubble = "0 in steady state where a backward takes one forward's time",
      .stash = "by the order of unit slots",
      .when =
          "When PipeDream's weight versions do not fit and the backward of a whole minibatch "
          "is short; with backwards as long as N of a microbatch the stages wait for them.",
      .update = UpdateRule::listed,
      .generate = generate_timeprest,
      .ideal_bubble = none_in_unit_slots,
      .refuse_shape = [](const ScheduleShape& shape) { return refuse_uneven("timeprest", shape); },
      .list_versions = list_synchronized,
      .whole_backward = true};
}

}  // namespace

Schedule timeprest() { return row(); }

Schedule v_timeprest() {
  Schedule v = row();
  v.name = "v-timeprest";
  v.paper = "V-TiMePReSt, arXiv 2509.23241";
  v.summary = "TiMePReSt's order with the latest weights in every forward and backward";
  v.when = "TiMePReSt where one weight version is all that fits.";
  v.refuse_shape = [](const ScheduleShape& s) { return refuse_uneven("v-timeprest", s); };
  v.list_versions = list_latest;
  return v;
}

Schedule i_timeprest() {
  Schedule i = row();
  i.name = "i-timeprest";
  i.paper = "I-TiMePReSt, arXiv 2509.23241";
  i.summary = "TiMePReSt's order, the backward on a mix of the forward's weights and the latest";
  i.when =
      "TiMePReSt where forward and backward on different weights harm training and memory is left "
      "for the mix.";
  i.refuse_shape = [](const ScheduleShape& s) { return refuse_uneven("i-timeprest", s); };
  i.list_versions = list_mixed;
  return i;
}

}  // namespace penstock
