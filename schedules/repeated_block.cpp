// SPDX-License-Identifier: Apache-2.0
#include "schedules/repeated_block.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

/// From which slot on what a pass waits for has ended, as far as passes have been recorded.
class Ends {
 public:
  /// `placeholders`: Ws are numbered by the Is of their device, not by microbatch.
  Ends(const BuildingBlock& block, std::uint32_t microbatches, bool placeholders)
      : widths_(block.widths),
        placeholders_(placeholders),
        stages_(block.stages()),
        microbatches_(microbatches),
        devices_(block.depth()) {
    for (auto& ends : ends_) ends.resize(std::size_t{stages_} * microbatches);
  }

  std::uint32_t ready(const Op& op, std::uint32_t device) const {
    if (is_placeholder(op)) return placeholder_ready(op, device);
    std::uint32_t from = op.microbatch > 0 ? end(op.kind, op.stage, op.microbatch - 1) : 0;
    const auto wait = [&](OpKind kind, std::uint32_t stage) {
      from = std::max(from, end(kind, stage, op.microbatch));
    };
    if (op.kind == OpKind::backward_weight) {
      wait(OpKind::backward_input, op.stage);
    } else if (op.kind == OpKind::forward) {
      if (op.stage > 0) wait(op.kind, op.stage - 1U);
    } else {
      wait(OpKind::forward, op.stage);
      if (op.stage + 1U < stages_) wait(op.kind, op.stage + 1U);
    }
    return from;
  }

  void record(const Placed& pass, std::uint32_t device) {
    const Op& op = pass.op;
    const std::uint32_t done = pass.slot + widths_.slots_of(op.kind);
    auto& [inputs, weight] = devices_[device];
    if (is_placeholder(op)) {
      weight = done;
      return;
    }
    ends_[row(op.kind)][std::size_t{op.stage} * microbatches_ + op.microbatch] = done;
    if (op.kind == OpKind::backward_input)
      inputs.insert(std::ranges::upper_bound(inputs, done), done);
  }

 private:
  struct Device {
    std::vector<std::uint32_t> inputs;  // ends of its Is, sorted
    std::uint32_t weight = 0;           // end of its last W
  };

  static std::size_t row(OpKind kind) { return static_cast<std::size_t>(kind); }
  std::uint32_t end(OpKind kind, std::uint32_t stage, std::uint32_t microbatch) const {
    return ends_[row(kind)][std::size_t{stage} * microbatches_ + microbatch];
  }
  bool is_placeholder(const Op& op) const {
    return placeholders_ && op.kind == OpKind::backward_weight;
  }
  std::uint32_t placeholder_ready(const Op& op, std::uint32_t device) const {
    return std::max(devices_[device].inputs[op.microbatch], devices_[device].weight);
  }

  SlotWidths widths_;
  bool placeholders_;
  std::uint32_t stages_, microbatches_;
  std::vector<std::uint32_t> ends_[4];  // by kind: [stage][microbatch]
  std::vector<Device> devices_;
};

void sort_by_slot(std::vector<Placed>& device) { std::ranges::sort(device, {}, &Placed::slot); }

}  // namespace

RepeatedBlock::RepeatedBlock(const BuildingBlock& block, std::uint32_t microbatches)
    : block_(block),
      position_(
          layout(block.layout, std::vector<int>(block.depth(), 1), block.chunks, 1).positions()),
      microbatches_(microbatches),
      weights_fill_(block.splits_backward() && block.backward_weight.empty()),
      devices_(block.depth()) {
  repeat(OpKind::forward, block.forward);
  repeat(OpKind::backward, block.backward);
  repeat(OpKind::backward_input, block.backward_input);
  repeat(OpKind::backward_weight, block.backward_weight);
  for (auto& device : devices_) sort_by_slot(device);
}

void RepeatedBlock::repeat(OpKind kind, const std::vector<std::uint32_t>& slots) {
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    for (std::uint32_t k = 0; k < microbatches_; ++k)
      devices_[position_[s]].push_back({make_op(kind, s, k), slots[s] + k * block_.period()});
  }
}

/// All passes by slot, then by device.
std::vector<RepeatedBlock::Where> RepeatedBlock::by_slot() const {
  std::vector<std::size_t> first;
  for (const auto& device : devices_) {
    for (const Placed& pass : device) {
      if (pass.slot + 1 >= first.size()) first.resize(pass.slot + 2);
      ++first[pass.slot + 1];
    }
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<Where> walk(first.empty() ? 0 : first.back());
  for (std::uint32_t d = 0; d < devices_.size(); ++d) {
    for (std::uint32_t i = 0; i < devices_[d].size(); ++i)
      walk[first[devices_[d][i].slot]++] = {d, i};
  }
  return walk;
}

void RepeatedBlock::move_passes(Part part, std::int32_t limit) {
  std::vector<SlotLine> lines;
  for (const auto& device : devices_) {
    lines.emplace_back(block_.widths, device, weights_fill_ && part == Part::end);
    limit = std::max(limit, lines.back().peak());
  }
  Ends ends(block_, microbatches_, weights_fill_);
  enum class Phase { fill, steady, drain } phase = Phase::fill;
  for (const auto [d, i] : by_slot()) {
    Placed& pass = devices_[d][i];
    const bool first_is_through = is_backward(pass.op.kind) && pass.op.stage == 0;
    const bool last_enters = pass.op.kind == OpKind::forward && pass.op.stage < block_.depth() &&
                             pass.op.microbatch + 1 == microbatches_;
    if (phase == Phase::fill && first_is_through) phase = Phase::steady;
    const bool moves = phase == Phase::drain || part == Part::all ||
                       (phase == Phase::fill && part == Part::both_ends);
    if (phase == Phase::steady && last_enters) phase = Phase::drain;
    if (moves) {
      lines[d].move(pass, ends.ready(pass.op, d), limit);
    } else {
      lines[d].settle(pass);
    }
    ends.record(pass, d);
  }
  for (auto& device : devices_) sort_by_slot(device);
}

void RepeatedBlock::squeeze() {
  Ends ends(block_, microbatches_, weights_fill_);
  std::vector<std::uint32_t> free_at(devices_.size());
  for (const auto [d, i] : by_slot()) {
    Placed& pass = devices_[d][i];
    const bool placeholder = weights_fill_ && pass.op.kind == OpKind::backward_weight;
    pass.slot = placeholder ? free_at[d] : std::max(free_at[d], ends.ready(pass.op, d));
    free_at[d] = pass.slot + block_.widths.slots_of(pass.op.kind);
    ends.record(pass, d);
  }
}

/// Calls `weight(slot)` for every W, as early as a device's free slots allow, and `pass` for what
/// is there, in the order of their slots. Every I makes one W possible.
template <typename OnPass, typename OnWeight>
void fill_weights(const std::vector<Placed>& device, const SlotWidths& widths, OnPass&& on_pass,
                  OnWeight&& on_weight) {
  std::uint32_t waiting = 0, free = 0;
  for (const Placed& pass : device) {
    for (; waiting > 0 && free + widths.backward_weight <= pass.slot; --waiting) {
      on_weight(free);
      free += widths.backward_weight;
    }
    on_pass(pass);
    free = pass.slot + widths.slots_of(pass.op.kind);
    if (pass.op.kind == OpKind::backward_input) ++waiting;
  }
  for (; waiting > 0; --waiting) {
    on_weight(free);
    free += widths.backward_weight;
  }
}

void RepeatedBlock::add_placeholders() {
  for (auto& device : devices_) {
    std::vector<Placed> filled;
    std::uint32_t k = 0;
    fill_weights(
        device, block_.widths, [&](const Placed& pass) { filled.push_back(pass); },
        [&](std::uint32_t slot) {
          filled.push_back({make_op(OpKind::backward_weight, 0, k++), slot});
        });
    device = std::move(filled);
  }
}

void RepeatedBlock::take_out_weights() {
  for (auto& device : devices_)
    std::erase_if(device,
                  [](const Placed& pass) { return pass.op.kind == OpKind::backward_weight; });
}

void RepeatedBlock::reorder(Reorder how, std::int32_t limit) {
  if (how == Reorder::none) return;
  const Part part = how == Reorder::everywhere ? Part::all : Part::both_ends;
  if (!weights_fill_) return move_passes(part, limit);
  add_placeholders();
  move_passes(part, limit);
  squeeze();
  take_out_weights();
  move_passes(Part::end, limit);
  add_placeholders();
  squeeze();
  take_out_weights();
}

/// A device's passes with a W in every free slot: of the latest stage that has one to run.
std::vector<Op> RepeatedBlock::with_every_weight(const std::vector<Placed>& device) const {
  struct Stage {
    std::uint32_t weights = 0, inputs = 0;  // run so far
  };
  std::vector<Stage> chunks(block_.chunks);
  std::vector<std::uint32_t> stage_of(block_.chunks);
  std::vector<Op> ops;
  fill_weights(
      device, block_.widths,
      [&](const Placed& pass) {
        ops.push_back(pass.op);
        const std::uint32_t chunk = pass.op.stage / block_.depth();
        stage_of[chunk] = pass.op.stage;
        if (pass.op.kind == OpKind::backward_input) ++chunks[chunk].inputs;
      },
      [&](std::uint32_t) {
        std::uint32_t chunk = block_.chunks - 1;
        while (chunks[chunk].weights == chunks[chunk].inputs) --chunk;
        ops.push_back(make_op(OpKind::backward_weight, stage_of[chunk], chunks[chunk].weights++));
      });
  return ops;
}

void RepeatedBlock::append_to(OpLists& order) const {
  for (const auto& device : devices_) {
    if (weights_fill_) {
      for (const Op& op : with_every_weight(device)) order.add_op(op);
    } else {
      for (const Placed& pass : device) order.add_op(pass.op);
    }
    order.end_device();
  }
}

}  // namespace penstock
