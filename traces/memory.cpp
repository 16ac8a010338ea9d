#include "traces/memory.hpp"

#include <algorithm>
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

/// Changes in order of time, taken one by one.
class Changes {
 public:
  void reserve(std::size_t count) { all_.reserve(count); }
  void add(const Change& change) { all_.push_back(change); }
  /// They mostly are already.
  void put_in_order() {
    if (!std::is_sorted(all_.begin(), all_.end(), comes_before))
      std::sort(all_.begin(), all_.end(), comes_before);
  }
  const Change* first() const { return next_ < all_.size() ? &all_[next_] : nullptr; }
  void take() { ++next_; }

 private:
  std::vector<Change> all_;
  std::size_t next_ = 0;
};

/// What ops do to memory comes in the order of the device; messages come and go beside them.
class DeviceMemory {
 public:
  DeviceMemory(const MemoryInput& input, int device) : in_(input) {
    const auto ops = in_.ops.of(device);
    by_ops_.reserve(ops.size() * 4);
    received_.reserve(ops.size());
    sent_.reserve(ops.size());
    const Placement& placement = in_.table.placement();
    for (const std::uint32_t stage : placement.stages_at(placement.position_of(device)))
      add_static(stage);
    for (std::uint32_t g = in_.ops.begin(device); g < in_.ops.end(device);) {
      const std::uint32_t together = in_.ops.together(g);
      for (std::uint32_t i = g; i < g + together; ++i) add_start(i);
      for (std::uint32_t i = g; i < g + together; ++i) add_end(i);
      g += together;
    }
    for (Changes* changes : {&by_ops_, &received_, &sent_}) changes->put_in_order();
  }

  MemoryPeak replay(const MemorySample& sample) {
    MemoryPeak peak{.use = use_};
    std::int64_t total = use_.total();
    std::int64_t highest = total;
    if (sample) sample(0, use_);
    const Change* next = take_first();
    while (next != nullptr) {
      const Change& change = *next;
      use_[change.owner] += change.bytes;
      total += change.bytes;
      if (total > highest) {
        highest = total;
        peak = {use_, change.at_s, change.op};
      }
      next = take_first();
      const bool last_of_instant = next == nullptr || next->at_s != change.at_s;
      if (sample && last_of_instant) sample(change.at_s, use_);
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

  /// The earliest change that was not taken yet; null: all were.
  const Change* take_first() {
    Changes* earliest = nullptr;
    for (Changes* changes : {&by_ops_, &received_, &sent_}) {
      if (changes->first() == nullptr) continue;
      if (earliest == nullptr || comes_before(*changes->first(), *earliest->first()))
        earliest = changes;
    }
    if (earliest == nullptr) return nullptr;
    const Change* first = earliest->first();
    earliest->take();
    return first;
  }

  static void add(Changes& to, double at_s, std::int64_t bytes, std::uint32_t op, Owner owner,
                  bool at_once = false) {
    if (bytes == 0) return;
    const Change::Turn turn = bytes > 0 ? Change::starts
                              : at_once ? Change::ends_at_once
                                        : Change::ends;
    to.add({at_s, bytes, op, owner, turn});
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
      const double sent_s = in_.timeline.message(g).start_s;
      add(received_, sent_s, received_bytes(op), g, Owner::buffers);
      if (forward)
        add(by_ops_, start_s, -received_bytes(op), g, Owner::buffers, sent_s == start_s);
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
      add(by_ops_, end_s, -received_bytes(op), g, Owner::buffers,
          in_.timeline.message(g).start_s == end_s);
    if (op.has(Op::sends)) {
      const double arrived_s = in_.timeline.message(in_.table.consumer(op)).end_s;
      add(by_ops_, end_s, held_bytes(op, op.stage), g, Owner::buffers);
      add(sent_, arrived_s, -held_bytes(op, op.stage), g, Owner::buffers, end_s == arrived_s);
    }
  }

  /// Of the message that `sender` sends, on a GPU of this stage.
  std::int64_t held_bytes(const Op& sender, std::uint32_t stage) const {
    const std::int64_t bytes = message_bytes(in_.costs, sender);
    return in_.parts.empty() ? bytes : bytes / in_.parts[stage];
  }

  std::int64_t received_bytes(const Op& op) const {
    return held_bytes(in_.ops[in_.table.producer(op)], op.stage);
  }

  const MemoryInput& in_;
  MemoryUse use_;
  Changes by_ops_, received_, sent_;
};

}  // namespace

std::int64_t MemoryUse::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryPeak memory_over_time(const MemoryInput& input, int device, const MemorySample& sample) {
  return DeviceMemory(input, device).replay(sample);
}

}  // namespace penstock
