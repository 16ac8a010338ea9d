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

class DeviceMemory {
 public:
  DeviceMemory(const MemoryInput& input, int device) : in_(input) {
    const auto ops = in_.ops.of(device);
    changes_.reserve(ops.size() * 4);
    const Placement& placement = in_.table.placement();
    for (const std::uint32_t stage : placement.stages_at(placement.position_of(device)))
      add_static(stage);
    for (std::uint32_t g = in_.ops.begin(device); g < in_.ops.end(device); ++g) {
      const Op& op = in_.ops[g];
      if (!is_compute(op.kind)) continue;
      add_op(g, op);
      add_messages(g, op);
    }
    std::sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
      if (a.at_s != b.at_s) return a.at_s < b.at_s;
      if ((a.turn == Change::ends) != (b.turn == Change::ends)) return a.turn == Change::ends;
      return a.op != b.op ? a.op < b.op : a.turn < b.turn;
    });
  }

  MemoryPeak replay(const MemorySample& sample) {
    MemoryPeak peak{.use = use_};
    std::int64_t total = use_.total();
    std::int64_t highest = total;
    if (sample) sample(0, use_);
    for (std::size_t i = 0; i < changes_.size(); ++i) {
      const Change& change = changes_[i];
      use_[change.owner] += change.bytes;
      total += change.bytes;
      if (total > highest) {
        highest = total;
        peak = {use_, change.at_s, change.op};
      }
      const bool last_of_instant = i + 1 == changes_.size() || changes_[i + 1].at_s != change.at_s;
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

  void add(double at_s, std::int64_t bytes, std::uint32_t op, Owner owner, bool at_once = false) {
    if (bytes == 0) return;
    const Change::Turn turn = bytes > 0 ? Change::starts
                              : at_once ? Change::ends_at_once
                                        : Change::ends;
    changes_.push_back({at_s, bytes, op, owner, turn});
  }
  void hold(double from_s, double to_s, std::int64_t bytes, std::uint32_t op, Owner owner) {
    add(from_s, bytes, op, owner);
    add(to_s, -bytes, op, owner, from_s == to_s);
  }

  void add_op(std::uint32_t g, const Op& op) {
    const StageCosts& c = in_.costs[op.stage];
    const Span& span = in_.timeline.op(g);
    const bool forward = op.kind == OpKind::forward;
    const bool at_once = span.start_s == span.end_s;
    const bool stored = op.has(Op::stored);
    const std::int64_t kept = stored ? c.stored_activation_bytes : c.activation_bytes;
    const std::int64_t backward = stored ? c.stored_workspace_bytes : c.backward_workspace_bytes;
    hold(span.start_s, span.end_s, forward ? c.forward_workspace_bytes : backward, g,
         Owner::workspace);
    switch (op.kind) {
      case OpKind::forward: add(span.start_s, kept, g, Owner::activations); break;
      case OpKind::backward:
        add(span.end_s, -kept * c.backward_microbatches, g, Owner::activations, at_once);
        break;
      case OpKind::backward_input:
        add(span.end_s, c.activation_after_input_bytes - kept, g, Owner::activations, at_once);
        break;
      default: add(span.end_s, -c.activation_after_input_bytes, g, Owner::activations, at_once);
    }
  }

  /// Of the message that `sender` sends, on a GPU of this stage.
  std::int64_t held_bytes(const Op& sender, std::uint32_t stage) const {
    const std::int64_t bytes = message_bytes(in_.costs, sender);
    return in_.parts.empty() ? bytes : bytes / in_.parts[stage];
  }

  void add_messages(std::uint32_t g, const Op& op) {
    const Span& span = in_.timeline.op(g);
    if (op.has(Op::receives)) {
      const Span& message = in_.timeline.message(g);
      const double until = op.kind == OpKind::forward ? span.start_s : span.end_s;
      hold(message.start_s, until, held_bytes(in_.ops[in_.table.producer(op)], op.stage), g,
           Owner::buffers);
    }
    if (op.has(Op::sends)) {
      const Span& message = in_.timeline.message(in_.table.consumer(op));
      hold(span.end_s, message.end_s, held_bytes(op, op.stage), g, Owner::buffers);
    }
  }

  const MemoryInput& in_;
  MemoryUse use_;
  std::vector<Change> changes_;
};

}  // namespace

std::int64_t MemoryUse::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryPeak memory_over_time(const MemoryInput& input, int device, const MemorySample& sample) {
  return DeviceMemory(input, device).replay(sample);
}

}  // namespace penstock
