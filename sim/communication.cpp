// SPDX-License-Identifier: Apache-2.0
#include "sim/communication.hpp"

#include "program/gather_queue.hpp"
#include "sim/durations.hpp"

#include <algorithm>

namespace penstock {
namespace {

double overlap_s(const Span& a, const Span& b) {
  return std::max(0.0, std::min(a.end_s, b.end_s) - std::max(a.start_s, b.start_s));
}

class Sums {
 public:
  Sums(const SimulationInput& input, const Timeline& timeline)
      : input_(input),
        program_(input.program),
        ops_(program_.ops),
        table_(input.table),
        timeline_(timeline),
        duration_(input) {}

  CommunicationByDimension add_up() {
    sums_.exposed_of_device.resize(static_cast<std::size_t>(ops_.devices()));
    for (int d = 0; d < ops_.devices(); ++d) add_device(d);
    for (const Transfer& t : input_.traffic.reductions()) add_reduced_bytes(t);
    return sums_;
  }

 private:
  void add_device(int d) {
    double free_s = 0;
    std::uint32_t detached = kNoOp;
    for (std::uint32_t g = ops_.begin(d); g < ops_.end(d); ++g) {
      const Op& op = ops_[g];
      Span idle{free_s, timeline_.op(g).start_s};
      free_s = timeline_.op(g).end_s;
      add_messages(d, g, idle);
      const std::uint32_t held = held_by(d, g);
      if (held != kNoOp) idle.start_s = std::max(idle.start_s, timeline_.message(held).end_s);
      if (op.kind == OpKind::reduce_grad) {
        add_reduction(g);
        if (op.has(Op::detached)) {
          detached = g;  // its step comes before the next one
        } else {
          expose(g, {idle.start_s, free_s});
        }
      }
      if (op.kind == OpKind::step && detached != kNoOp) {
        expose(detached, idle);
        detached = kNoOp;
      }
      if (is_compute(op.kind)) add_collective(d, g);
    }
  }

  /// What op g of a device receives, and what its last compute op before g sent where that holds.
  void add_messages(int d, std::uint32_t g, const Span& idle) {
    Span received{0, 0}, sent{0, 0};
    if (ops_[g].has(Op::receives) && timeline_.has_message(g)) {
      received = timeline_.message(g);
      sums_.pipeline.total_s += received.length_s();
      const Op& sender = ops_[table_.producer(ops_[g])];
      const Transfer& message = input_.traffic[input_.traffic.message_of(sender)];
      sums_.pipeline.bytes +=
          message.sent_per_byte * static_cast<double>(message_bytes(input_.costs, sender));
    }
    const std::uint32_t to = held_by(d, g);
    if (to != kNoOp && timeline_.has_message(to)) sent = timeline_.message(to);
    const double both = overlap_s(idle, received) + overlap_s(idle, sent);
    const Span common{std::max(received.start_s, sent.start_s),
                      std::min(received.end_s, sent.end_s)};
    sums_.pipeline.exposed_s += both - overlap_s(idle, common);
    if (holds_sender(program_.transfers) && ops_[g].has(Op::sends)) {
      const std::uint32_t consumer = table_.consumer(ops_[g]);
      if (timeline_.has_message(consumer))
        sums_.pipeline.total_s += timeline_.message(consumer).length_s();
    }
  }

  /// The receiver of the message that holds a device in front of op g, or kNoOp.
  std::uint32_t held_by(int d, std::uint32_t g) const {
    if (!holds_sender(program_.transfers) || g == ops_.begin(d) || !ops_[g - 1].has(Op::sends))
      return kNoOp;
    return table_.consumer(ops_[g - 1]);
  }

  void add_reduction(std::uint32_t g) {
    if (timeline_.has_message(g)) sums_.data.total_s += timeline_.message(g).length_s();
  }
  void expose(std::uint32_t reduction, const Span& idle) {
    if (timeline_.has_message(reduction))
      sums_.data.exposed_s += overlap_s(idle, timeline_.message(reduction));
  }

  void add_collective(int d, std::uint32_t g) {
    if (input_.traffic.collectives().empty() || timeline_.never_ran(g)) return;
    const Op& op = ops_[g];
    const Span& span = timeline_.op(g);
    // The seconds of a pair are counted once.
    double left_s =
        ops_.second_of_pair(g)
            ? 0
            : std::max(0.0, span.end_s - duration_.end_of_part(span.start_s, op, d, g, 1));
    const Recipe& recipe = recipe_of(op);
    for (const AxisCollective& one : input_.traffic.collectives()) {
      sums_.inner[static_cast<std::size_t>(one.axis)].bytes +=
          input_.traffic[input_.traffic.collective_of(d, one)].sent_per_byte *
          static_cast<double>(recipe.bytes(one.axis, one.what));
    }
    if (ops_.second_of_pair(g)) return;
    if (op.has(Op::prefetched)) left_s -= add_gathered(d, g, left_s);
    for (const Axis axis : kExchangeAxes) {
      Communication& sum = sums_.inner[static_cast<std::size_t>(axis)];
      const double alone = alone_s(d, g, axis);
      const double exposed_s =
          axis == last_axis(g) ? left_s : std::min(left_s, exposed_alone_s(d, g, axis));
      left_s -= exposed_s;
      sum.exposed_s += exposed_s;
      sums_.exposed_of_device[static_cast<std::size_t>(d)][static_cast<std::size_t>(axis)] +=
          exposed_s;
      sum.total_s += serial(g) ? exposed_s : std::max(alone, exposed_s);
    }
  }

  /// Returns how long op g waited for its weights, of what it took longer than its computing.
  double add_gathered(int d, std::uint32_t g, double left_s) {
    const Gathered all = gathered_before(input_.costs, ops_[g]);
    if (all.bytes == 0) return 0;
    const Transfer& gather =
        input_.traffic[input_.traffic.collective_of(d, {Axis::data, Collective::all_gather})];
    const double waited_s = std::max(0.0, left_s - duration_.exchange_s(ops_[g], d, g));
    Communication& sum = sums_.inner[static_cast<std::size_t>(Axis::data)];
    sum.bytes += gather.sent_per_byte * all.bytes;
    sum.exposed_s += waited_s;
    sum.total_s += std::max(waited_s, gather.price().seconds(all.bytes, all.calls));
    sums_.exposed_of_device[static_cast<std::size_t>(d)][static_cast<std::size_t>(Axis::data)] +=
        waited_s;
    return waited_s;
  }

  const Recipe& recipe_of(const Op& op) const { return input_.costs[op.stage].pass(op)[op].recipe; }
  /// Returns the axis of op g, and of the one that runs together with it, to which what the others
  /// cannot have taken belongs.
  Axis last_axis(std::uint32_t g) const {
    Axis last = kExchangeAxes.front();
    for (const Axis axis : kExchangeAxes)
      for (std::uint32_t i = g; i < g + ops_.together(g); ++i)
        if (recipe_of(ops_[i]).exchanges(axis)) last = axis;
    return last;
  }
  bool serial(std::uint32_t g) const {
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i)
      if (!recipe_of(ops_[i]).serial()) return false;
    return true;
  }
  /// Of an op and the one that runs together with it, on links of their own.
  double alone_s(int d, std::uint32_t g, Axis axis) const {
    double seconds = 0;
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i) {
      recipe_of(ops_[i]).for_each([&](const Segment& s) {
        if (!s.exchanges() || s.axis != axis || input_.traffic.ranks(axis) == 1) return;
        seconds += input_.traffic[input_.traffic.collective_of(d, s)].price().seconds(s);
      });
    }
    return seconds;
  }

  /// What of them nothing hides, were there no others.
  double exposed_alone_s(int d, std::uint32_t g, Axis axis) const {
    double seconds = 0;
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i)
      seconds +=
          exposed_s(recipe_of(ops_[i]), duration_.own_compute_s(ops_[i], d), [&](const Segment& s) {
            if (s.axis != axis || input_.traffic.ranks(axis) == 1) return 0.0;
            return input_.traffic[input_.traffic.collective_of(d, s)].price().seconds(s);
          });
    return seconds;
  }

  /// What the replicas of a position send: as its algorithm does.
  void add_reduced_bytes(const Transfer& reduction) {
    const auto position = static_cast<std::uint32_t>(reduction.source);
    const std::int64_t bytes =
        at_position(program_.placement, input_.costs, position, &StageCosts::reduced_bytes);
    const std::uint32_t stage = program_.placement.stages_at(position).front();
    sums_.data.bytes +=
        reduction.sent_per_byte * static_cast<double>(bytes) * program_.updates(stage);
  }

  const SimulationInput& input_;
  const Program& program_;
  const OpLists& ops_;
  const DependencyTable& table_;
  const Timeline& timeline_;
  Durations duration_;
  CommunicationByDimension sums_;
};

}  // namespace

CommunicationByDimension communication(const SimulationInput& input, const Timeline& timeline) {
  return Sums(input, timeline).add_up();
}

}  // namespace penstock
