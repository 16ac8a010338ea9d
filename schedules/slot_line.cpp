// SPDX-License-Identifier: Apache-2.0
#include "schedules/slot_line.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock {

SlotLine::SlotLine(const SlotWidths& widths, std::span<const Placed> passes, bool fills_weights)
    : widths_(widths), fills_weights_(fills_weights) {
  const std::uint32_t end =
      passes.empty() ? 0 : passes.back().slot + widths_.slots_of(passes.back().op.kind);
  uses_.assign(end, Use::idle);
  unsettled_.resize(end + 1);
  std::iota(unsettled_.begin(), unsettled_.end(), 0U);
  for (const Placed& pass : passes) put_pass(pass);
  if (fills_weights && widths.backward_weight > 1) {
    for (std::uint32_t slot = 0; slot < end; ++slot) states_.push_back(after(before(slot), slot));
    return;
  }
  std::vector<HeldTree::Change> changes;
  changes.reserve(end);
  for (const Use use : uses_) changes.push_back(change(use));
  tree_.emplace(std::move(changes));
}

std::int32_t SlotLine::peak() const {
  if (tree_) return tree_->peak();
  return states_.empty() ? 0 : std::ranges::max(states_, {}, &State::held).held;
}

SlotLine::Use SlotLine::use_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return Use::forward;
    case OpKind::backward: return Use::backward;
    case OpKind::backward_input: return Use::backward_input;
    default: return Use::backward_weight;
  }
}

HeldTree::Change SlotLine::change(Use use) const {
  switch (use) {
    case Use::forward: return {1, 0};
    case Use::backward:
    case Use::backward_weight: return {-1, 0};
    // What a W in the queue holds counts there.
    case Use::backward_input: return fills_weights_ ? HeldTree::Change{-1, 1} : HeldTree::Change{};
    case Use::idle: return fills_weights_ ? HeldTree::Change{0, -1} : HeldTree::Change{};
    default: return {};
  }
}

void SlotLine::put_pass(const Placed& pass) {
  const std::uint32_t end = pass.slot + widths_.slots_of(pass.op.kind);
  set(pass.slot, use_of(pass.op.kind));
  for (std::uint32_t slot = pass.slot + 1; slot < end; ++slot) set(slot, Use::going_on);
}

void SlotLine::take_pass(const Placed& pass) {
  const std::uint32_t end = pass.slot + widths_.slots_of(pass.op.kind);
  for (std::uint32_t slot = pass.slot; slot < end; ++slot) set(slot, Use::idle);
}

void SlotLine::set(std::uint32_t slot, Use use) {
  uses_[slot] = use;
  if (tree_) tree_->set(slot, change(use));
}

bool SlotLine::room_for_weight(std::uint32_t slot) const {
  const std::uint32_t end = std::min(slot + widths_.backward_weight, size());
  for (; slot < end; ++slot)
    if (uses_[slot] != Use::idle) return false;
  return true;
}

SlotLine::State SlotLine::after(State state, std::uint32_t slot) const {
  switch (uses_[slot]) {
    case Use::forward: ++state.held; break;
    case Use::backward:
    case Use::backward_weight: --state.held; break;
    case Use::backward_input: state.waiting += fills_weights_ ? 1 : 0; break;
    case Use::going_on: break;
    case Use::idle:
      if (state.left > 0) {
        --state.left;
      } else if (state.waiting > 0 && room_for_weight(slot)) {
        --state.held;
        --state.waiting;
        state.left = widths_.backward_weight - 1;
      }
  }
  return state;
}

std::uint32_t SlotLine::first_beyond(std::int32_t limit, std::uint32_t from,
                                     std::uint32_t past) const {
  if (tree_) return tree_->first_beyond(limit);
  State state = before(from);
  for (std::uint32_t slot = from; slot < size(); ++slot) {
    state = after(state, slot);
    if (state.held > limit) return slot;
    if (slot > past && state == states_[slot]) break;
  }
  return HeldTree::kNowhere;
}

void SlotLine::update(std::uint32_t from, std::uint32_t past) {
  if (tree_) return;
  State state = before(from);
  for (std::uint32_t slot = from; slot < size(); ++slot) {
    state = after(state, slot);
    if (slot > past && state == states_[slot]) break;
    states_[slot] = state;
  }
}

std::uint32_t SlotLine::free_from(std::uint32_t slot) {
  while (unsettled_[slot] != slot) {
    unsettled_[slot] = unsettled_[unsettled_[slot]];
    slot = unsettled_[slot];
  }
  return slot;
}

std::uint32_t SlotLine::next_free(std::uint32_t slot, std::uint32_t width) {
  for (slot = free_from(slot);;) {
    std::uint32_t end = slot + 1;
    while (end < slot + width && free_from(end) == end) ++end;
    if (end == slot + width) return slot;
    slot = free_from(end);
  }
}

void SlotLine::settle(const Placed& pass) {
  const std::uint32_t end = pass.slot + widths_.slots_of(pass.op.kind);
  for (std::uint32_t slot = pass.slot; slot < end; ++slot) unsettled_[slot] = slot + 1;
  held_ += change(use_of(pass.op.kind)).held;
}

void SlotLine::move(Placed& pass, std::uint32_t earliest, std::int32_t limit) {
  if (fills_weights_) {
    move_filling(pass, earliest, limit);
  } else {
    move_listed(pass, earliest, limit);
  }
  settle(pass);
}

void SlotLine::move_listed(Placed& pass, std::uint32_t earliest, std::int32_t limit) {
  const std::uint32_t stays = pass.slot;
  const HeldTree::Change moved = change(use_of(pass.op.kind));
  if (moved.held > 0) earliest = tree_->below_from(limit, earliest, stays, held_);
  pass.slot = std::min(next_free(earliest, widths_.slots_of(pass.op.kind)), stays);
  if (pass.slot == stays || moved.held == 0) return;
  tree_->set(stays, {});
  tree_->set(pass.slot, moved);
  tree_->refresh(pass.slot, stays);
}

void SlotLine::move_filling(Placed& pass, std::uint32_t earliest, std::int32_t limit) {
  const std::uint32_t width = widths_.slots_of(pass.op.kind);
  const Placed stays = pass;
  const auto shift_to = [&](std::uint32_t slot) {
    take_pass(pass);
    const std::uint32_t was = std::exchange(pass.slot, slot);
    put_pass(pass);
    for (std::uint32_t i = 0; tree_ && i < width; ++i) tree_->refresh(was + i, slot + i);
  };
  for (std::uint32_t slot = next_free(earliest, width); slot < stays.slot;) {
    shift_to(slot);
    // A W that had room before this slot may have none now.
    const std::uint32_t from = slot - std::min(slot, widths_.backward_weight - 1);
    const std::uint32_t beyond = first_beyond(limit, from, stays.slot + width);
    if (beyond == HeldTree::kNowhere) return update(from, stays.slot + width);
    // Until it leaves a slot up to there to a W, the device holds as much and frees no more.
    const std::uint32_t leaves = beyond + 2 > width && tree_ ? beyond + 2 - width : 0;
    slot = std::max(leaves, slot + 1) < stays.slot ? next_free(std::max(leaves, slot + 1), width)
                                                   : stays.slot;
  }
  if (pass.slot != stays.slot) shift_to(stays.slot);
}

}  // namespace penstock
