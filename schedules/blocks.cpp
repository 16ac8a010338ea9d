// SPDX-License-Identifier: Apache-2.0
#include "schedules/blocks.hpp"

#include "schedules/evaluate.hpp"
#include "schedules/repeated_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>

namespace penstock {
namespace {

/// A microbatch's route from its first pass to its last takes at most this many intervals.
constexpr std::uint64_t kMostIntervals = 16384;
/// Slots are a coarse measure of time: an interval has at most this many, a pass of it one in 16.
constexpr std::uint32_t kMostSlots = 65536;
constexpr double kNoTime = std::numeric_limits<double>::infinity();

/// The slots of one kind of pass.
struct Passes {
  OpKind kind;
  std::string_view key;
  const std::vector<std::uint32_t>& slots;
};

std::string_view key_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return "forward";
    case OpKind::backward: return "backward";
    case OpKind::backward_input: return "backward_input";
    default: return "backward_weight";
  }
}

std::vector<Passes> passes(const BuildingBlock& b) {
  const auto of = [](OpKind kind, const std::vector<std::uint32_t>& slots) {
    return Passes{kind, key_of(kind), slots};
  };
  return {of(OpKind::forward, b.forward), of(OpKind::backward, b.backward),
          of(OpKind::backward_input, b.backward_input),
          of(OpKind::backward_weight, b.backward_weight)};
}

std::vector<BlockProblem> malformed(const BuildingBlock& b) {
  std::vector<BlockProblem> found;
  const auto add = [&](std::string_view key, std::string why) {
    found.push_back({.why = std::move(why), .key = key});
  };
  if (b.layout == Layout::mirrored) add("layout", "the layout of a block is loop or snake");
  if (b.forward.empty()) add("forward", "forward needs a slot for every virtual stage");
  if (b.chunks == 0 || b.stages() % std::max(b.chunks, 1U) != 0)
    add("chunks", fmt::format("{} virtual stages do not divide into {} chunks per device",
                              b.stages(), b.chunks));
  if (b.backward.empty() == b.backward_input.empty())
    add("backward", "a block has either backward or backward_input");
  if (!b.backward.empty() && !b.backward_weight.empty())
    add("backward_weight",
        "backward_weight belongs to backward_input; backward already contains it");
  if (b.interval > kMostSlots)
    add("interval", fmt::format("interval must be at most {} slots", kMostSlots));
  for (const Passes& list : passes(b)) {
    if (!list.slots.empty() && list.slots.size() != b.forward.size())
      add(list.key, fmt::format("{} has {} slots, forward has {}: one per virtual stage", list.key,
                                list.slots.size(), b.stages()));
    if (b.widths.slots_of(list.kind) == 0 || b.widths.slots_of(list.kind) > kMostSlots / 16)
      add("slots", fmt::format("a pass of {} takes 1 to {} slots", list.key, kMostSlots / 16));
  }
  return found;
}

/// A problem of one pass.
BlockProblem problem_of(const Op& op, std::string why) {
  return {.why = std::move(why), .key = key_of(op.kind), .stage = op.stage};
}

std::string name(const Op& op) { return fmt::format("{}{}", op.stage, token(op.kind)); }

/// One pass of a block.
struct BlockPass {
  Op op;
  std::uint32_t slot = 0;
};

std::vector<std::vector<BlockPass>> by_device(const BuildingBlock& b) {
  const Placement where = layout(b.layout, std::vector<int>(b.depth(), 1), b.chunks, 1);
  std::vector<std::vector<BlockPass>> devices(b.depth());
  for (const Passes& list : passes(b)) {
    for (std::uint32_t s = 0; s < list.slots.size(); ++s)
      devices[where.positions()[s]].push_back({make_op(list.kind, s, 0), list.slots[s]});
  }
  for (auto& device : devices) std::ranges::stable_sort(device, {}, &BlockPass::slot);
  return devices;
}

/// Every pass that starts before what it waits for has ended.
std::vector<BlockProblem> too_early(const BuildingBlock& b) {
  std::vector<BlockProblem> found;
  const auto after = [&](const BlockPass& pass, const BlockPass& producer) {
    const std::uint32_t end = producer.slot + b.widths.slots_of(producer.op.kind);
    if (pass.slot >= end) return;
    found.push_back(problem_of(
        pass.op, fmt::format("{} in slot {} needs {}, which ends with slot {}: slot {} or later",
                             name(pass.op), pass.slot, name(producer.op), end - 1, end)));
  };
  const OpKind gradient = b.splits_backward() ? OpKind::backward_input : OpKind::backward;
  for (std::uint32_t s = 0; s < b.stages(); ++s) {
    const BlockPass f{make_op(OpKind::forward, s, 0), b.forward[s]};
    const BlockPass g{make_op(gradient, s, 0), b.gradients()[s]};
    if (s > 0) after(f, {make_op(OpKind::forward, s - 1, 0), b.forward[s - 1]});
    after(g, f);
    if (s + 1 < b.stages()) after(g, {make_op(gradient, s + 1, 0), b.gradients()[s + 1]});
    if (!b.backward_weight.empty())
      after({make_op(OpKind::backward_weight, s, 0), b.backward_weight[s]}, g);
  }
  return found;
}

/// Passes of a device that meet in a slot of the interval, and devices with more passes than slots.
std::vector<BlockProblem> collisions(const BuildingBlock& b) {
  std::vector<BlockProblem> found;
  const std::uint32_t T = b.period();
  const auto devices = by_device(b);
  for (std::uint32_t d = 0; d < devices.size(); ++d) {
    std::uint64_t work = 0;
    for (const BlockPass& pass : devices[d]) work += b.widths.slots_of(pass.op.kind);
    if (b.splits_backward() && b.backward_weight.empty())
      work += std::uint64_t{b.chunks} * b.widths.backward_weight;
    if (work > T) {
      found.push_back(
          {.why = fmt::format("device {} works {} slots in every interval of {}: interval must "
                              "be at least {}",
                              d, work, T, work),
           .key = "interval"});
      continue;
    }
    const auto within = [&](const BlockPass& pass) {
      const std::uint32_t slot = pass.slot % T, width = b.widths.slots_of(pass.op.kind);
      return width == 1 ? fmt::format("{}", slot) : fmt::format("{}-{}", slot, slot + width - 1);
    };
    std::vector<const BlockPass*> taken(T, nullptr);
    for (const BlockPass& pass : devices[d]) {
      const BlockPass* other = nullptr;
      for (std::uint32_t i = 0; i < b.widths.slots_of(pass.op.kind); ++i) {
        const BlockPass*& slot = taken[(pass.slot + i) % T];
        if (slot != nullptr) other = slot;
        slot = &pass;
      }
      if (other == nullptr) continue;
      found.push_back(problem_of(
          pass.op, fmt::format("{} in slot {} and {} in slot {} meet on device {}: {} and {} "
                               "modulo the interval {}",
                               name(other->op), other->slot, name(pass.op), pass.slot, d,
                               within(*other), within(pass), T)));
    }
  }
  return found;
}

std::vector<BlockProblem> too_late(const BuildingBlock& b) {
  std::vector<BlockProblem> found;
  const std::uint64_t most = kMostIntervals * b.period();
  for (const Passes& list : passes(b)) {
    for (std::uint32_t s = 0; s < list.slots.size(); ++s) {
      if (list.slots[s] <= most) continue;
      found.push_back(
          {.why = fmt::format("{}: slot {} is too late, the last one is {} ({} intervals)",
                              list.key, list.slots[s], most, kMostIntervals),
           .key = list.key,
           .stage = s});
    }
  }
  return found;
}

/// Gives every W of a device the slots it takes when the block repeats for ever, first come, first
/// served; false when the free slots do not suffice.
bool fill_device(const BuildingBlock& b, const std::vector<BlockPass>& device,
                 std::vector<std::uint32_t>& weights) {
  const std::uint32_t T = b.period(), width = b.widths.backward_weight;
  std::vector<BlockPass> cycle = device;  // in the slots of one interval
  for (BlockPass& pass : cycle) pass.slot %= T;
  std::ranges::sort(cycle, {}, &BlockPass::slot);
  struct Waiting {
    std::uint32_t stage, since;
  };
  std::deque<Waiting> waiting;
  std::uint32_t free = 0;
  // What waits after one interval is what waits after any; the second one serves them all.
  constexpr std::uint32_t kRounds = 4;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (const BlockPass& pass : cycle) {
      const std::uint32_t slot = pass.slot + round * T;
      for (; !waiting.empty() && free + width <= slot; free += width) {
        weights[waiting.front().stage] =
            b.backward_input[waiting.front().stage] + (free - waiting.front().since);
        waiting.pop_front();
      }
      if (pass.op.kind == OpKind::backward_input) waiting.push_back({pass.op.stage, slot});
      free = std::max(free, slot) + b.widths.slots_of(pass.op.kind);
    }
  }
  return waiting.size() <= b.chunks;
}

/// By device, what is in each slot up to its last pass.
std::vector<std::vector<std::string>> slot_rows(const BuildingBlock& b) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& device : by_device(b)) {
    auto& row = rows.emplace_back();
    for (const BlockPass& pass : device) {
      row.resize(pass.slot, ".");
      row.push_back(name(pass.op));
      row.resize(pass.slot + b.widths.slots_of(pass.op.kind), "=");
    }
  }
  return rows;
}

std::string draw_bounds(const BuildingBlock& b) {
  const auto spans = lifespans(b);
  const Placement where = layout(b.layout, std::vector<int>(b.depth(), 1), b.chunks, 1);
  std::string text;
  for (std::uint32_t d = 0; d < b.depth(); ++d) {
    text += fmt::format("device {} holds at most {} activations:", d, memory_bound(b, d));
    for (const std::uint32_t s : where.stages_at(d))
      text += fmt::format(" stage {} for {} slots", s, spans[s]);
    text += '\n';
  }
  return text;
}

}  // namespace

std::uint32_t SlotWidths::slots_of(OpKind kind) const {
  switch (kind) {
    case OpKind::forward: return forward;
    case OpKind::backward: return backward;
    case OpKind::backward_input: return backward_input;
    case OpKind::backward_weight: return backward_weight;
    default: return 0;
  }
}

std::uint32_t BuildingBlock::period() const {
  if (interval != 0) return interval;
  const std::uint32_t gradient =
      splits_backward() ? widths.backward_input + widths.backward_weight : widths.backward;
  return chunks * (widths.forward + gradient);
}

std::vector<BlockProblem> problems(const BuildingBlock& block) {
  std::vector<BlockProblem> found = malformed(block);
  if (found.empty()) found = too_late(block);
  if (!found.empty()) return found;
  found = too_early(block);
  std::ranges::move(collisions(block), std::back_inserter(found));
  if (found.empty() && block.splits_backward() && block.backward_weight.empty() &&
      with_weights(block).backward_weight.empty())
    found.push_back(
        {.why = "the free slots of a device leave no room for every W", .key = "interval"});
  return found;
}

BuildingBlock with_weights(const BuildingBlock& block) {
  if (!block.splits_backward() || !block.backward_weight.empty()) return block;
  BuildingBlock filled = block;
  filled.backward_weight.assign(block.stages(), 0);
  for (const auto& device : by_device(block))
    if (!fill_device(block, device, filled.backward_weight)) return block;
  return filled;
}

std::vector<std::uint32_t> lifespans(const BuildingBlock& block) {
  const BuildingBlock b = with_weights(block);
  const bool split = b.splits_backward();
  const auto& last = split ? b.backward_weight : b.backward;
  const std::uint32_t slots = split ? b.widths.backward_weight : b.widths.backward;
  std::vector<std::uint32_t> spans;
  for (std::uint32_t s = 0; s < b.stages(); ++s) spans.push_back(last[s] + slots - b.forward[s]);
  return spans;
}

std::uint32_t memory_bound(const BuildingBlock& block, std::uint32_t device) {
  const Placement where = layout(block.layout, std::vector<int>(block.depth(), 1), block.chunks, 1);
  const auto spans = lifespans(block);
  std::uint32_t bound = 0;
  for (const std::uint32_t s : where.stages_at(device))
    bound += (spans[s] + block.period() - 1) / block.period();
  return bound;
}

namespace {

OpLists reordered(const BuildingBlock& block, const ScheduleShape& shape, Reorder how,
                  std::int32_t limit) {
  RepeatedBlock repeated(block, shape.microbatches_per_update);
  repeated.reorder(how, limit);
  OpLists order;
  repeated.append_to(order);
  return order;
}

/// The order that is through first; of those, the one with the shortest longest device.
OpLists best(const BuildingBlock& block, const ScheduleShape& shape, std::int32_t limit) {
  const Placement where = layout(block.layout, std::vector<int>(block.depth(), 1), block.chunks, 1);
  OpLists least;
  auto shortest = std::pair{kNoTime, kNoTime};
  for (const Reorder how : {Reorder::both_ends, Reorder::everywhere, Reorder::none}) {
    OpLists order = reordered(block, shape, how, limit);
    const Evaluation found = evaluate(order, where, shape);
    const auto takes = std::pair{found.makespan, found.stage_time};
    if (takes >= shortest) continue;
    shortest = takes;
    least = std::move(order);
  }
  return least;
}

}  // namespace

void generate_from_block(const BuildingBlock& block, const ScheduleShape& shape, OpLists& order,
                         Reorder reorder, std::int32_t limit) {
  const OpLists made = reorder == Reorder::best ? best(block, shape, limit)
                                                : reordered(block, shape, reorder, limit);
  for (int d = 0; d < made.devices(); ++d) {
    for (const Op& op : made.of_device(d)) order.add_op(op);
    order.end_device();
  }
}

std::string draw(const BuildingBlock& block, std::size_t columns) {
  const BuildingBlock b = with_weights(block);
  const auto rows = slot_rows(b);
  const std::size_t digits = fmt::formatted_size("{}", rows.size() - 1);
  const std::size_t cell = fmt::formatted_size("{}", b.stages() - 1) + 2, label = 8 + digits;
  std::size_t slots = 0;
  for (const auto& row : rows) slots = std::max(slots, row.size());
  const std::size_t room = columns > label + cell ? (columns - label) / cell : 1;
  std::string text = fmt::format("interval {} slots\n", b.period());
  for (std::size_t from = 0; from < slots; from += room) {
    const std::size_t to = std::min(slots, from + room);
    if (slots > room) text += fmt::format("slots {} to {}\n", from, to - 1);
    for (std::size_t d = 0; d < rows.size(); ++d) {
      text += fmt::format("device {:<{}}", d, digits + 1);
      for (std::size_t i = from; i < std::min(to, rows[d].size()); ++i)
        text += fmt::format(" {:<{}}", rows[d][i], cell - 1);
      text.erase(text.find_last_not_of(' ') + 1);
      text += '\n';
    }
  }
  return text + draw_bounds(b);
}

BuildingBlock v_block(std::uint32_t depth, const VShape& shape) {
  BuildingBlock block;
  block.forward.resize(2 * std::size_t{depth});
  block.backward_input.resize(2 * std::size_t{depth});
  std::uint32_t slot = 0;
  for (std::uint32_t leg = 0; leg < 4; ++leg) {
    auto& slots = leg < 2 ? block.forward : block.backward_input;
    for (std::uint32_t i = 0; i < depth; ++i) {
      const std::uint32_t s = leg % 2 * depth + i;
      slots[leg < 2 ? s : 2 * depth - 1 - s] = slot;
      slot += i + 1 < depth ? shape.legs[leg] : leg < 3 ? shape.turns[leg] : 0;
    }
  }
  return block;
}

}  // namespace penstock
