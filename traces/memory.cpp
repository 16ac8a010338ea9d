#include "traces/memory.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

/// At one instant: first what ends; then, op by op, what starts and what starts and ends at once.
enum class Turn : std::uint8_t { ends, starts, ends_at_once };

struct Change {
  double at_s;
  std::uint64_t rank;  // among those of an instant: later than what ends?, op, turn, owner
  std::int64_t bytes;  // negative: freed

  std::uint32_t op() const { return static_cast<std::uint32_t>(rank >> kOpShift); }
  Owner owner() const { return static_cast<Owner>(rank & ((1U << kTurnShift) - 1)); }

  static constexpr unsigned kTurnShift = 3, kOpShift = 5, kLaterShift = 37;
  static constexpr std::uint64_t rank_of(Turn turn, std::uint32_t op, Owner owner) {
    return (std::uint64_t{turn != Turn::ends} << kLaterShift) | (std::uint64_t{op} << kOpShift) |
           (static_cast<std::uint64_t>(turn) << kTurnShift) | static_cast<std::uint64_t>(owner);
  }
};

bool comes_before(const Change& a, const Change& b) {
  return a.at_s != b.at_s ? a.at_s < b.at_s : a.rank < b.rank;
}

/// Before and after all others.
constexpr Change kFirst = {-std::numeric_limits<double>::infinity(), 0, 0};
constexpr Change kLast = {std::numeric_limits<double>::infinity(),
                          Change::rank_of(Turn::ends_at_once, kNoOp, Owner::workspace), 0};

/// Changes in order: what comes nearly so is moved to its place; what does not is sorted at the
/// end.
class Changes {
 public:
  explicit Changes(std::size_t most)
      : list_(most + 2), next_(list_.data() + 1), moves_left_(16 * most) {
    list_.front() = kFirst;
  }

  void add(const Change& change) {
    Change* at = next_++;
    if (comes_before(change, at[-1])) at = make_room(change, at);
    *at = change;
  }
  /// The first one; `kLast` stands behind the last.
  const Change* finish() {
    invariant(next_ < list_.data() + list_.size(), "memory has room for the changes of every op");
    if (moves_left_ == 0) std::sort(list_.data() + 1, next_, comes_before);
    *next_ = kLast;
    return list_.data() + 1;
  }

 private:
  Change* make_room(const Change& change, Change* at) {
    for (; moves_left_ > 0 && comes_before(change, at[-1]); --at, --moves_left_) *at = at[-1];
    return at;
  }

  LargeVector<Change> list_;
  Change* next_;
  std::size_t moves_left_;
};

/// What ops do to memory comes in the order of the device; messages come and go beside them.
class DeviceMemory {
 public:
  DeviceMemory(const MemoryInput& input, int device)
      : in_(input),
        by_ops_(in_.ops.of(device).size() * kMostByOp),
        by_messages_(in_.ops.of(device).size() * 2) {
    const Placement& placement = in_.table.placement();
    for (const std::uint32_t stage : placement.stages_at(placement.position_of(device)))
      add_static(stage);
    for (std::uint32_t g = in_.ops.begin(device); g < in_.ops.end(device);) {
      const std::uint32_t together = in_.ops.together(g);
      for (std::uint32_t i = g; i < g + together; ++i) add_start(i);
      for (std::uint32_t i = g; i < g + together; ++i) add_end(i);
      g += together;
    }
    first_ = {by_ops_.finish(), by_messages_.finish()};
  }

  /// Follows the sum alone: what the owners have is only asked for at its peak.
  MemoryPeak peak() const {
    std::int64_t total = use_.total();
    std::int64_t highest = total;
    Heads after = first_;
    const Change* last = nullptr;
    replay([&](const Change& change, const Heads& heads) {
      total += change.bytes;
      if (total <= highest) return;
      highest = total;
      last = &change;
      after = heads;
    });
    if (last == nullptr) return {.use = use_};
    MemoryPeak peak{use_, last->at_s, last->op()};
    for (const Change* c = first_.op; c != after.op; ++c) peak.use[c->owner()] += c->bytes;
    for (const Change* c = first_.message; c != after.message; ++c)
      peak.use[c->owner()] += c->bytes;
    return peak;
  }

  void show(const MemorySample& sample) const {
    MemoryUse use = use_;
    sample(0, use);
    replay([&](const Change& change, const Heads& heads) {
      use[change.owner()] += change.bytes;
      if (heads.op->at_s != change.at_s && heads.message->at_s != change.at_s)
        sample(change.at_s, use);
    });
  }

 private:
  static constexpr std::size_t kMostByOp = 5;
  /// The next change of each kind.
  struct Heads {
    const Change *op, *message;
  };

  /// Calls `visit(change, the heads after it)` in order.
  template <class Visit>
  void replay(const Visit& visit) const {
    for (Heads heads = first_;;) {
      const Change& change =
          comes_before(*heads.message, *heads.op) ? *heads.message++ : *heads.op++;
      if (change.rank == kLast.rank) return;
      visit(change, heads);
    }
  }

  void add_static(std::uint32_t stage) {
    const StageCosts& c = in_.costs[stage];
    use_[Owner::weights] += c.weight_bytes;
    use_[Owner::weight_versions] += c.version_bytes * in_.more_versions[stage];
    use_[Owner::gradients] += c.gradient_bytes;
    use_[Owner::optimizer] += c.optimizer_bytes;
  }

  static void start(Changes& to, double at_s, std::int64_t bytes, std::uint32_t op, Owner owner) {
    if (bytes != 0) to.add({at_s, Change::rank_of(Turn::starts, op, owner), bytes});
  }
  static void end(Changes& to, double at_s, std::int64_t bytes, std::uint32_t op, Owner owner,
                  bool at_once) {
    // Of a B split in two, the first may leave more than the whole B would: it takes.
    if (bytes < 0) return start(to, at_s, -bytes, op, owner);
    const Turn turn = at_once ? Turn::ends_at_once : Turn::ends;
    if (bytes != 0) to.add({at_s, Change::rank_of(turn, op, owner), -bytes});
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
      start(by_messages_, sent_s, received, g, Owner::buffers);
      if (forward) end(by_ops_, start_s, received, g, Owner::buffers, sent_s == start_s);
    }
    start(by_ops_, start_s, workspace(op), g, Owner::workspace);
    if (forward) start(by_ops_, start_s, kept(op), g, Owner::activations);
  }

  void add_end(std::uint32_t g) {
    const Op& op = in_.ops[g];
    if (!is_compute(op.kind)) return;
    const double end_s = span(g).end_s;
    const bool at_once = span(g).start_s == end_s;
    end(by_ops_, end_s, workspace(op), g, Owner::workspace, at_once);
    end(by_ops_, end_s, freed(op), g, Owner::activations, at_once);
    if (op.has(Op::receives) && op.kind != OpKind::forward)
      end(by_ops_, end_s, held_received(op), g, Owner::buffers,
          in_.timeline.message(g).start_s == end_s);
    if (op.has(Op::sends)) {
      const double arrived_s = in_.timeline.message(in_.table.consumer(op)).end_s;
      const std::int64_t sent = held(message_bytes(in_.costs, op), op.stage);
      start(by_ops_, end_s, sent, g, Owner::buffers);
      end(by_messages_, arrived_s, sent, g, Owner::buffers, end_s == arrived_s);
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
  Changes by_ops_, by_messages_;
  Heads first_;
};

}  // namespace

std::int64_t MemoryUse::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryPeak memory_over_time(const MemoryInput& input, int device, const MemorySample& sample) {
  const DeviceMemory memory(input, device);
  if (sample) memory.show(sample);
  return memory.peak();
}

}  // namespace penstock
