// SPDX-License-Identifier: Apache-2.0
#include "traces/memory.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>

namespace penstock {
namespace {

/// At one instant: first what ends; then, op by op, what starts and what starts and ends at once.
enum class Turn : std::uint8_t { ends, starts, ends_at_once };

/// What all owners take, or give back, in one turn of an op.
struct Change {
  double at_s;
  std::uint64_t rank;               // among those of an instant: later than what ends?, op, turn
  std::int64_t bytes;               // negative: freed
  std::int64_t buffers, workspace;  // of these; the others are activations

  std::uint32_t op() const { return static_cast<std::uint32_t>(rank >> kOpShift); }
  void apply(MemoryUse& use) const {
    use[Owner::buffers] += buffers;
    use[Owner::workspace] += workspace;
    use[Owner::activations] += bytes - buffers - workspace;
  }

  static constexpr unsigned kOpShift = 2, kLaterShift = 34;
  static constexpr std::uint64_t rank_of(Turn turn, std::uint32_t op) {
    return (std::uint64_t{turn != Turn::ends} << kLaterShift) | (std::uint64_t{op} << kOpShift) |
           static_cast<std::uint64_t>(turn);
  }
};

/// Both keys at once: as integers, times that are not negative have the order that they have as
/// numbers, and before them comes -1, that of a message never sent.
__extension__ using Wide = __int128;
bool comes_before(const Change& a, const Change& b) {
  const auto key = [](const Change& c) {
    return Wide{std::bit_cast<std::int64_t>(c.at_s)} << 64 | c.rank;
  };
  return key(a) < key(b);
}

/// Before and after all others: -0.0 is the least integer.
constexpr Change kFirst = {-0.0, 0, 0, 0, 0};
constexpr Change kLast = {std::numeric_limits<double>::infinity(),
                          Change::rank_of(Turn::ends_at_once, kNoOp), 0, 0, 0};

/// Changes in order: what comes nearly so is moved to its place; what does not is sorted at the
/// end.
class Changes {
 public:
  explicit Changes(std::size_t most)
      : list_(most + 2), next_(list_.data() + 1), moves_left_(16 * most) {
    list_.front() = kFirst;
  }

  void add_change(const Change& change) {
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
        by_ops_(in_.ops.of_device(device).size() * kMostByOp),
        by_messages_(in_.ops.of_device(device).size() * 2) {
    const Placement& placement = in_.table.placement();
    for (const std::uint32_t stage : placement.stages_at(placement.position_of(device)))
      add_stage(stage);
    for (std::uint32_t g = in_.ops.begin(device); g < in_.ops.end(device);) {
      const std::uint32_t together = in_.ops.together(g);
      for (std::uint32_t i = g; i < g + together; ++i) add_op<true>(i);
      for (std::uint32_t i = g; i < g + together; ++i) add_op<false>(i);
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
    for (const Change* c = first_.op; c != after.op; ++c) c->apply(peak.use);
    for (const Change* c = first_.message; c != after.message; ++c) c->apply(peak.use);
    return peak;
  }

  void show(const MemorySample& sample) const {
    MemoryUse use = use_;
    sample(0, use);
    replay([&](const Change& change, const Heads& heads) {
      change.apply(use);
      if (heads.op->at_s != change.at_s && heads.message->at_s != change.at_s)
        sample(change.at_s, use);
    });
  }

 private:
  static constexpr std::size_t kMostByOp = 4;  // buffers and what it takes; what it frees and sends
  /// The next change of each kind.
  struct Heads {
    const Change *op, *message;
  };

  /// Calls `visit(change, the heads after it)` in order.
  template <class Visit>
  void replay(const Visit& visit) const {
    for (Heads heads = first_;;) {
      const bool message = comes_before(*heads.message, *heads.op);
      const Change& change = message ? *heads.message : *heads.op;
      heads = {heads.op + (message ? 0 : 1), heads.message + (message ? 1 : 0)};
      if (change.rank == kLast.rank) return;
      visit(change, heads);
    }
  }

  /// What an op of one kind takes and, negative, gives back: the sums of its holdings.
  struct Sums {
    std::int64_t received = 0, sent = 0;  ///< if it is so
    bool used_at_start = false;           ///< is what was received given back then, or at the end?
    std::int64_t workspace = 0;           ///< part of the following
    std::int64_t start_takes = 0, end_takes = 0, end_frees = 0;
  };
  struct OfStage {
    std::uint32_t stage;
    std::array<Sums, 8> sums;                              // [kind][stored]
    std::map<std::uint32_t, std::array<Sums, 4>> drawn{};  // by costs of a microbatch
  };

  void add_stage(std::uint32_t stage) {
    OfStage& made = stages_.emplace_back(OfStage{stage, {}});
    for (const bool stored : {false, true}) {
      const StageHoldings held =
          stage_holdings(in_.costs, stage, stored, in_.parts.empty() ? 1 : in_.parts[stage]);
      for (std::size_t kind = 0; kind < made.sums.size() / 2; ++kind)
        made.sums[2 * kind + (stored ? 1 : 0)] = sums(stage, static_cast<OpKind>(kind), held);
      if (stored) continue;
      for_each_constant_holding(held, in_.more_versions[stage],
                                [&](Owner owner, std::int64_t bytes) { use_[owner] += bytes; });
    }
  }
  Sums sums(std::uint32_t stage, OpKind kind, const StageHoldings& held) const {
    const Op op{.stage = static_cast<std::uint16_t>(stage),
                .kind = kind,
                .flags = Op::receives | Op::sends};
    const bool whole = kind == OpKind::backward;
    Sums s;
    const auto add = [&](OpPoint point, Owner owner, std::int64_t change) {
      if (owner == Owner::buffers) {
        if (point == OpPoint::departure) s.received = change;
        if (point == OpPoint::start) s.used_at_start = true;
        if (point == OpPoint::arrival) s.sent = -change;
      } else if (point == OpPoint::start) {
        s.start_takes += change;
        if (owner == Owner::workspace) s.workspace = change;
      } else {
        (change > 0 ? s.end_takes : s.end_frees) += change;
      }
    };
    for_each_holding(op, held, whole ? in_.costs[stage].backward_microbatches : 1, add);
    return s;
  }
  const Sums& sums_of(const Op& op) {
    OfStage* of = stages_.data();
    while (of->stage != op.stage) ++of;
    if (const DrawnCosts* drawn = in_.costs[op.stage].drawn.get()) {
      const std::uint32_t which = drawn->held[op.microbatch];
      const auto [found, added] = of->drawn.try_emplace(which);
      if (added) {
        const StageHoldings held = stage_holdings(in_.costs, op.stage, drawn->passes[which],
                                                  in_.parts.empty() ? 1 : in_.parts[op.stage]);
        for (std::size_t kind = 0; kind < found->second.size(); ++kind)
          found->second[kind] = sums(op.stage, static_cast<OpKind>(kind), held);
      }
      return found->second[static_cast<std::size_t>(op.kind)];
    }
    return of->sums[2 * static_cast<std::size_t>(op.kind) + (op.has(Op::stored) ? 1 : 0)];
  }

  /// What is given back at the instant at which it was taken ends after that.
  static Turn end_of(double taken_s, double at_s) {
    return taken_s == at_s ? Turn::ends_at_once : Turn::ends;
  }
  struct Part {
    std::int64_t bytes, buffers = 0, workspace = 0;
  };
  static void put(Changes& to, double at_s, const Part& part, Turn turn, std::uint32_t op) {
    if (part.bytes == 0) return;
    to.add_change({at_s, Change::rank_of(turn, op), part.bytes, part.buffers, part.workspace});
  }
  static Part message(std::int64_t bytes) { return {bytes, bytes}; }

  /// What an op changes until it has started, or from its end on.
  template <bool starts>
  void add_op(std::uint32_t g) {
    const Op& op = in_.ops[g];
    if (!is_compute(op.kind)) return;
    const Sums& s = sums_of(op);
    const Span& span = in_.timeline.op(g);
    const std::int64_t received = op.has(Op::receives) ? s.received : 0;
    if constexpr (starts) {
      if (received != 0) {
        const double taken_s = in_.timeline.message(g).start_s;
        put(by_messages_, taken_s, message(received), Turn::starts, g);
        if (s.used_at_start)
          put(by_ops_, span.start_s, message(-received), end_of(taken_s, span.start_s), g);
      }
      put(by_ops_, span.start_s, {s.start_takes, 0, s.workspace}, Turn::starts, g);
    } else {
      const Turn own = end_of(span.start_s, span.end_s);
      Part frees{s.end_frees, 0, -s.workspace};
      if (received != 0 && !s.used_at_start) {
        const Turn turn = end_of(in_.timeline.message(g).start_s, span.end_s);
        if (turn == own) {
          frees.bytes -= received;
          frees.buffers -= received;
        } else {
          put(by_ops_, span.end_s, message(-received), turn, g);
        }
      }
      put(by_ops_, span.end_s, frees, own, g);
      const std::int64_t sent = op.has(Op::sends) ? s.sent : 0;
      put(by_ops_, span.end_s, {s.end_takes + sent, sent}, Turn::starts, g);
      if (sent == 0) return;
      const double arrived_s = in_.timeline.message(in_.table.consumer(op)).end_s;
      put(by_messages_, arrived_s, message(-sent), end_of(span.end_s, arrived_s), g);
    }
  }

  const MemoryInput& in_;
  std::vector<OfStage> stages_;
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
