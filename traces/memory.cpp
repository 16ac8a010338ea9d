#include "traces/memory.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

struct Change {
  double at_s;
  std::int64_t bytes;  // negative: freed
  std::uint32_t op;
  Owner owner;
  // At one instant: first what ends; then, op by op, what starts and what starts and ends at once.
  enum Turn : std::uint8_t { ends, starts, ends_at_once } turn;
};

bool comes_before(const Change& a, const Change& b) {
  if (a.at_s != b.at_s) return a.at_s < b.at_s;
  if ((a.turn == Change::ends) != (b.turn == Change::ends)) return a.turn == Change::ends;
  return a.op != b.op ? a.op < b.op : a.turn < b.turn;
}

/// After all others.
constexpr Change kLast = {std::numeric_limits<double>::infinity(), 0, kNoOp, Owner::buffers,
                          Change::ends_at_once};
bool is_last(const Change* change) { return change->op == kNoOp; }

/// Sorts what is nearly in order, by insertion; what is not, as usual.
void put_in_order(std::vector<Change>& changes) {
  std::size_t moves_left = 16 * changes.size();
  for (std::size_t i = 1; i < changes.size(); ++i) {
    if (!comes_before(changes[i], changes[i - 1])) continue;
    const Change late = changes[i];
    std::size_t at = i;
    for (; at > 0 && comes_before(late, changes[at - 1]); --at) changes[at] = changes[at - 1];
    changes[at] = late;
    if (i - at > moves_left) return std::sort(changes.begin(), changes.end(), comes_before);
    moves_left -= i - at;
  }
}

/// What ops do to memory comes in the order of the device; messages come and go beside them.
class DeviceMemory {
 public:
  DeviceMemory(const MemoryInput& input, int device) : in_(input) {
    const auto ops = in_.ops.of(device);
    by_ops_.reserve(ops.size() * 5);
    by_messages_.reserve(ops.size() * 2);
    const Placement& placement = in_.table.placement();
    for (const std::uint32_t stage : placement.stages_at(placement.position_of(device)))
      add_static(stage);
    for (std::uint32_t g = in_.ops.begin(device); g < in_.ops.end(device);) {
      const std::uint32_t together = in_.ops.together(g);
      for (std::uint32_t i = g; i < g + together; ++i) add_start(i);
      for (std::uint32_t i = g; i < g + together; ++i) add_end(i);
      g += together;
    }
    for (std::vector<Change>* changes : {&by_ops_, &by_messages_}) {
      put_in_order(*changes);
      changes->push_back(kLast);
    }
  }

  MemoryPeak replay(const MemorySample& sample) {
    MemoryPeak peak{.use = use_};
    std::int64_t total = use_.total();
    std::int64_t highest = total;
    if (sample) sample(0, use_);
    const Change* message = by_messages_.data();
    const Change* op = by_ops_.data();
    while (!is_last(op) || !is_last(message)) {
      const Change& change = comes_before(*message, *op) ? *message++ : *op++;
      use_[change.owner] += change.bytes;
      total += change.bytes;
      if (total > highest) {
        highest = total;
        peak = {use_, change.at_s, change.op};
      }
      if (sample && op->at_s != change.at_s && message->at_s != change.at_s)
        sample(change.at_s, use_);
    }
    return peak;
  }

 private:
  void add_static(std::uint32_t stage) {
    const StageCosts& c = in_.costs[stage];
    use_[Owner::weights] += c.weight_bytes;
    use_[Owner::weight_versions] += c.version_bytes * in_.more_versions[stage];
    use_[Owner::gradients] += c.gradient_bytes;
    use_[Owner::optimizer] += c.optimizer_bytes;
  }

  static void add(std::vector<Change>& to, double at_s, std::int64_t bytes, std::uint32_t op,
                  Owner owner, bool at_once = false) {
    if (bytes == 0) return;
    const Change::Turn turn = bytes > 0 ? Change::starts
                              : at_once ? Change::ends_at_once
                                        : Change::ends;
    to.push_back({at_s, bytes, op, owner, turn});
  }

  const Span& span(std::uint32_t g) const { return in_.timeline.op(g); }
  std::int64_t workspace(const Op& op) const {
    const StageCosts& c = in_.costs[op.stage];
    if (op.kind == OpKind::forward) return c.forward_workspace_bytes;
    return op.has(Op::stored) ? c.stored_workspace_bytes : c.backward_workspace_bytes;
  }
  std::int64_t kept(const Op& op) const {
    const StageCosts& c = in_.costs[op.stage];
    return op.has(Op::stored) ? c.stored_activation_bytes : c.activation_bytes;
  }
  /// Of the activations, what the end of an op frees.
  std::int64_t freed(const Op& op) const {
    const StageCosts& c = in_.costs[op.stage];
    switch (op.kind) {
      case OpKind::forward: return 0;
      case OpKind::backward: return kept(op) * c.backward_microbatches;
      case OpKind::backward_input: return kept(op) - c.activation_after_input_bytes;
      default: return c.activation_after_input_bytes;
    }
  }

  void add_start(std::uint32_t g) {
    const Op& op = in_.ops[g];
    if (!is_compute(op.kind)) return;
    const double start_s = span(g).start_s;
    const bool forward = op.kind == OpKind::forward;
    if (op.has(Op::receives)) {
      const std::int64_t received = held_received(op);
      const double sent_s = in_.timeline.message(g).start_s;
      add(by_messages_, sent_s, received, g, Owner::buffers);
      if (forward) add(by_ops_, start_s, -received, g, Owner::buffers, sent_s == start_s);
    }
    add(by_ops_, start_s, workspace(op), g, Owner::workspace);
    if (forward) add(by_ops_, start_s, kept(op), g, Owner::activations);
  }

  void add_end(std::uint32_t g) {
    const Op& op = in_.ops[g];
    if (!is_compute(op.kind)) return;
    const double end_s = span(g).end_s;
    const bool at_once = span(g).start_s == end_s;
    add(by_ops_, end_s, -workspace(op), g, Owner::workspace, at_once);
    add(by_ops_, end_s, -freed(op), g, Owner::activations, at_once);
    if (op.has(Op::receives) && op.kind != OpKind::forward)
      add(by_ops_, end_s, -held_received(op), g, Owner::buffers,
          in_.timeline.message(g).start_s == end_s);
    if (op.has(Op::sends)) {
      const double arrived_s = in_.timeline.message(in_.table.consumer(op)).end_s;
      const std::int64_t sent = held(message_bytes(in_.costs, op), op.stage);
      add(by_ops_, end_s, sent, g, Owner::buffers);
      add(by_messages_, arrived_s, -sent, g, Owner::buffers, end_s == arrived_s);
    }
  }

  /// Of a message, on a GPU of this stage.
  std::int64_t held(std::int64_t bytes, std::uint32_t stage) const {
    return in_.parts.empty() ? bytes : bytes / in_.parts[stage];
  }
  /// What its neighbour sends, without looking for the op that does.
  std::int64_t held_received(const Op& op) const {
    const std::uint16_t stage = op.stage;
    const bool forward = op.kind == OpKind::forward;
    const auto from = static_cast<std::uint16_t>(forward ? stage - 1 : stage + 1);
    const Op sender{.stage = from, .kind = forward ? OpKind::forward : OpKind::backward};
    return held(message_bytes(in_.costs, sender), stage);
  }

  const MemoryInput& in_;
  MemoryUse use_;
  std::vector<Change> by_ops_, by_messages_;
};

}  // namespace

std::int64_t MemoryUse::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryPeak memory_over_time(const MemoryInput& input, int device, const MemorySample& sample) {
  return DeviceMemory(input, device).replay(sample);
}

}  // namespace penstock
