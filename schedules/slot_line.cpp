#include "schedules/slot_line.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

SlotLine::SlotLine(const SlotWidths& widths, std::span<const Placed> passes, bool fills_weights)
    : widths_(widths), fills_weights_(fills_weights) {
  const std::uint32_t end =
      passes.empty() ? 0 : passes.back().slot + widths_.of(passes.back().op.kind);
  uses_.assign(end, Use::idle);
  unsettled_.resize(end + 1);
  std::iota(unsettled_.begin(), unsettled_.end(), 0U);
  for (const Placed& pass : passes) put(pass);
  State state;
  for (std::uint32_t slot = 0; slot < end; ++slot) {
    state = after(state, slot);
    held_.push_back(state.held);
    if (fills_weights) states_.push_back(state);
  }
}

std::int32_t SlotLine::peak() const { return held_.empty() ? 0 : std::ranges::max(held_); }

SlotLine::Use SlotLine::use_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return Use::forward;
    case OpKind::backward: return Use::backward;
    case OpKind::backward_input: return Use::backward_input;
    default: return Use::backward_weight;
  }
}

void SlotLine::put(const Placed& pass) {
  const std::uint32_t width = widths_.of(pass.op.kind);
  std::fill_n(uses_.begin() + pass.slot, width, Use::going_on);
  uses_[pass.slot] = use_of(pass.op.kind);
}

void SlotLine::take(const Placed& pass) {
  std::fill_n(uses_.begin() + pass.slot, widths_.of(pass.op.kind), Use::idle);
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
  State state = before(from);
  for (std::uint32_t slot = from; slot < size(); ++slot) {
    state = after(state, slot);
    if (state.held > limit) return slot;
    if (slot > past && state == states_[slot]) break;
  }
  return kNowhere;
}

void SlotLine::update(std::uint32_t from, std::uint32_t past) {
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
  const std::uint32_t end = pass.slot + widths_.of(pass.op.kind);
  for (std::uint32_t slot = pass.slot; slot < end; ++slot) unsettled_[slot] = slot + 1;
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
  const bool holds = pass.op.kind == OpKind::forward;
  const bool frees = pass.op.kind != OpKind::backward_input && !holds;
  for (std::uint32_t slot = stays; holds && slot > earliest; --slot)
    if (held_[slot - 1] >= limit) earliest = slot;
  const std::uint32_t slot = next_free(earliest, widths_.of(pass.op.kind));
  if (slot >= stays) return;
  pass.slot = slot;
  const std::int32_t change = holds ? 1 : frees ? -1 : 0;
  if (change == 0) return;
  for (std::uint32_t i = slot; i < stays; ++i) held_[i] += change;
}

void SlotLine::move_filling(Placed& pass, std::uint32_t earliest, std::int32_t limit) {
  const std::uint32_t width = widths_.of(pass.op.kind);
  const Placed stays = pass;
  take(stays);
  for (std::uint32_t slot = next_free(earliest, width); slot < stays.slot;) {
    pass.slot = slot;
    put(pass);
    const std::uint32_t beyond = first_beyond(limit, slot, stays.slot + width);
    if (beyond == kNowhere) return update(slot, stays.slot + width);
    take(pass);
    // Later slots up to there do no better: the device holds as much, and frees no more.
    slot = beyond < stays.slot ? next_free(beyond + 1, width) : stays.slot;
  }
  pass = stays;
  put(pass);
}

}  // namespace penstock
