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

  /// Of a stage, and of those of its microbatches that are stored.
  struct OfStage {
    std::uint32_t stage;
    StageBytes usual, stored;
  };

  void add_stage(std::uint32_t stage) {
    const int parts = in_.parts.empty() ? 1 : in_.parts[stage];
    const OfStage& made =
        stages_.emplace_back(OfStage{stage, stage_bytes(in_.costs, stage, false, parts),
                                     stage_bytes(in_.costs, stage, true, parts)});
    use_[Owner::weights] += made.usual.weights;
    use_[Owner::weight_versions] += made.usual.version * in_.more_versions[stage];
    use_[Owner::gradients] += made.usual.gradients;
    use_[Owner::optimizer] += made.usual.optimizer;
  }
  const StageBytes& bytes_of(const Op& op) const {
    const OfStage* of = stages_.data();
    while (of->stage != op.stage) ++of;
    return op.has(Op::stored) ? of->stored : of->usual;
  }

  /// What is given back at the instant at which it was taken ends after that.
  static void put(Changes& to, double at_s, std::int64_t bytes, std::uint32_t op, Owner owner,
                  double taken_s) {
    if (bytes == 0) return;
    const Turn turn = bytes > 0 ? Turn::starts : taken_s == at_s ? Turn::ends_at_once : Turn::ends;
    to.add({at_s, Change::rank_of(turn, op, owner), bytes});
  }

  /// What an op changes until it has started, or from its end on.
  template <bool starts>
  void add_op(std::uint32_t g) {
    const Op& op = in_.ops[g];
    if (!is_compute(op.kind)) return;
    const Span& span = in_.timeline.op(g);
    const auto change = [&](OpPoint point, Owner owner, std::int64_t bytes) {
      const bool received = owner == Owner::buffers;
      switch (point) {
        case OpPoint::departure:
          if constexpr (starts)
            put(by_messages_, in_.timeline.message(g).start_s, bytes, g, owner, -1);
          return;
        case OpPoint::start:
          if constexpr (starts)
            put(by_ops_, span.start_s, bytes, g, owner, in_.timeline.message(g).start_s);
          return;
        case OpPoint::end:
          if constexpr (!starts)
            put(by_ops_, span.end_s, bytes, g, owner,
                received ? in_.timeline.message(g).start_s : span.start_s);
          return;
        case OpPoint::arrival:
          if constexpr (!starts) {
            const double arrived_s = in_.timeline.message(in_.table.consumer(op)).end_s;
            put(by_messages_, arrived_s, bytes, g, owner, span.end_s);
          }
      }
    };
    const bool whole = op.kind == OpKind::backward;
    for_each_holding(op, bytes_of(op), whole ? in_.costs[op.stage].backward_microbatches : 1,
                     change);
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
