#include "traces/memory.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

/// At one instant: first what ends; then, op by op, what starts and what starts and ends at once.
enum class Turn : std::uint8_t { ends, starts, ends_at_once };

/// What all owners take, or give back, in one turn of an op at one point of it.
struct Change {
  double at_s;
  std::uint64_t rank;  // among those of an instant: later than what ends?, op, turn, point
  std::int64_t bytes;  // negative: freed

  std::uint32_t op() const { return static_cast<std::uint32_t>(rank >> kOpShift); }
  Turn turn() const { return static_cast<Turn>((rank >> kTurnShift) & 3U); }
  OpPoint point() const { return static_cast<OpPoint>(rank & 3U); }

  static constexpr unsigned kTurnShift = 2, kOpShift = 4, kLaterShift = 36;
  static constexpr std::uint64_t rank_of(Turn turn, std::uint32_t op, OpPoint point) {
    return (std::uint64_t{turn != Turn::ends} << kLaterShift) | (std::uint64_t{op} << kOpShift) |
           (static_cast<std::uint64_t>(turn) << kTurnShift) | static_cast<std::uint64_t>(point);
  }
};

/// As integers, times that are not negative have the order that they have as numbers: both keys are
/// compared at once. (-1, of a message that was never sent, comes first.)
__extension__ using Wide = __int128;
bool comes_before(const Change& a, const Change& b) {
  const auto key = [](const Change& c) {
    return Wide{std::bit_cast<std::int64_t>(c.at_s)} << 64 | c.rank;
  };
  return key(a) < key(b);
}

/// Before and after all others.
constexpr Change kFirst = {-std::numeric_limits<double>::infinity(), 0, 0};
constexpr Change kLast = {std::numeric_limits<double>::infinity(),
                          Change::rank_of(Turn::ends_at_once, kNoOp, OpPoint::arrival), 0};

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
    for (const Change* c = first_.op; c != after.op; ++c) apply(*c, peak.use);
    for (const Change* c = first_.message; c != after.message; ++c) apply(*c, peak.use);
    return peak;
  }

  void show(const MemorySample& sample) const {
    MemoryUse use = use_;
    sample(0, use);
    replay([&](const Change& change, const Heads& heads) {
      apply(change, use);
      if (heads.op->at_s != change.at_s && heads.message->at_s != change.at_s)
        sample(change.at_s, use);
    });
  }

 private:
  static constexpr std::size_t kMostByOp = 5;  // buffers at its start; its own; buffers at its end
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
    std::int64_t start_takes = 0, end_takes = 0, end_frees = 0;
  };
  /// Of a stage, and of those of its microbatches that are stored.
  struct OfStage {
    std::uint32_t stage;
    std::array<StageBytes, 2> bytes;
    std::array<Sums, 8> sums;  // [kind][stored]
  };

  void add_stage(std::uint32_t stage) {
    const int parts = in_.parts.empty() ? 1 : in_.parts[stage];
    OfStage& made = stages_.emplace_back(OfStage{
        stage,
        {stage_bytes(in_.costs, stage, false, parts), stage_bytes(in_.costs, stage, true, parts)},
        {}});
    const StageBytes& usual = made.bytes[0];
    use_[Owner::weights] += usual.weights;
    use_[Owner::weight_versions] += usual.version * in_.more_versions[stage];
    use_[Owner::gradients] += usual.gradients;
    use_[Owner::optimizer] += usual.optimizer;
    for (std::size_t i = 0; i < made.sums.size(); ++i) {
      const Op op{.stage = static_cast<std::uint16_t>(stage),
                  .kind = static_cast<OpKind>(i / 2),
                  .flags = static_cast<std::uint8_t>(Op::receives | Op::sends |
                                                     (i % 2 != 0 ? Op::stored : 0))};
      made.sums[i] = sums(op, made);
    }
  }
  const OfStage& stage_of(const Op& op) const {
    const OfStage* of = stages_.data();
    while (of->stage != op.stage) ++of;
    return *of;
  }
  /// Calls `change(point, owner, bytes)`.
  template <class Visit>
  void for_each_change(const Op& op, const OfStage& of, const Visit& change) const {
    const bool whole = op.kind == OpKind::backward;
    for_each_holding(op, of.bytes[op.has(Op::stored) ? 1 : 0],
                     whole ? in_.costs[op.stage].backward_microbatches : 1, change);
  }
  Sums sums(const Op& op, const OfStage& of) const {
    Sums s;
    for_each_change(op, of, [&](OpPoint point, Owner owner, std::int64_t bytes) {
      const bool buffer = owner == Owner::buffers;
      if (point == OpPoint::departure) s.received = bytes;
      if (point == OpPoint::arrival) s.sent = -bytes;
      if (buffer && point == OpPoint::start) s.used_at_start = true;
      if (buffer) return;
      if (point == OpPoint::start) s.start_takes += bytes;
      if (point == OpPoint::end) (bytes > 0 ? s.end_takes : s.end_frees) += bytes;
    });
    return s;
  }

  /// What is given back at the instant at which it was taken ends after that.
  static Turn end_of(double taken_s, double at_s) {
    return taken_s == at_s ? Turn::ends_at_once : Turn::ends;
  }
  Turn turn_of(std::uint32_t g, OpPoint point, Owner owner, std::int64_t bytes) const {
    if (bytes > 0) return Turn::starts;
    const Span& span = in_.timeline.op(g);
    if (point == OpPoint::arrival)
      return end_of(span.end_s, in_.timeline.message(in_.table.consumer(in_.ops[g])).end_s);
    const double taken_s = owner == Owner::buffers ? in_.timeline.message(g).start_s : span.start_s;
    return end_of(taken_s, point == OpPoint::start ? span.start_s : span.end_s);
  }
  /// By owner.
  void apply(const Change& change, MemoryUse& use) const {
    const std::uint32_t g = change.op();
    const Op& op = in_.ops[g];
    for_each_change(op, stage_of(op), [&](OpPoint point, Owner owner, std::int64_t bytes) {
      if (point == change.point() && turn_of(g, point, owner, bytes) == change.turn())
        use[owner] += bytes;
    });
  }

  static void put(Changes& to, double at_s, std::int64_t bytes, Turn turn, std::uint32_t op,
                  OpPoint point) {
    if (bytes != 0) to.add({at_s, Change::rank_of(turn, op, point), bytes});
  }

  /// What an op changes until it has started, or from its end on.
  template <bool starts>
  void add_op(std::uint32_t g) {
    const Op& op = in_.ops[g];
    if (!is_compute(op.kind)) return;
    const Sums& s = stage_of(op).sums[static_cast<std::size_t>(op.kind) * 2 +
                                      static_cast<std::size_t>(op.has(Op::stored))];
    const Span& span = in_.timeline.op(g);
    const std::int64_t received = op.has(Op::receives) ? s.received : 0;
    if constexpr (starts) {
      if (received != 0) {
        const double taken_s = in_.timeline.message(g).start_s;
        put(by_messages_, taken_s, received, Turn::starts, g, OpPoint::departure);
        if (s.used_at_start)
          put(by_ops_, span.start_s, -received, end_of(taken_s, span.start_s), g, OpPoint::start);
      }
      put(by_ops_, span.start_s, s.start_takes, Turn::starts, g, OpPoint::start);
    } else {
      std::int64_t frees = s.end_frees;
      const Turn own = end_of(span.start_s, span.end_s);
      if (received != 0 && !s.used_at_start) {
        const Turn turn = end_of(in_.timeline.message(g).start_s, span.end_s);
        if (turn == own)
          frees -= received;
        else
          put(by_ops_, span.end_s, -received, turn, g, OpPoint::end);
      }
      put(by_ops_, span.end_s, frees, own, g, OpPoint::end);
      const std::int64_t sent = op.has(Op::sends) ? s.sent : 0;
      put(by_ops_, span.end_s, s.end_takes + sent, Turn::starts, g, OpPoint::end);
      if (sent == 0) return;
      const double arrived_s = in_.timeline.message(in_.table.consumer(op)).end_s;
      put(by_messages_, arrived_s, -sent, end_of(span.end_s, arrived_s), g, OpPoint::arrival);
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
