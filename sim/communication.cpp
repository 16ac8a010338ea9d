#include "sim/communication.hpp"

#include <algorithm>

namespace penstock {
namespace {

double overlap_s(const Span& a, const Span& b) {
  return std::max(0.0, std::min(a.end_s, b.end_s) - std::max(a.start_s, b.start_s));
}

class Sums {
 public:
  explicit Sums(const CommunicationInput& input)
      : input_(input),
        program_(input.simulated.program),
        ops_(program_.ops),
        table_(input.simulated.table),
        timeline_(input.timeline),
        gpus_(input.gpus_per_device) {}

  CommunicationByDimension add_up() {
    for (int d = 0; d < ops_.devices(); ++d) add_device(d);
    for (std::uint32_t p = 0; p < input_.simulated.channels.reductions().size(); ++p)
      add_reduced_bytes(p);
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
      if (is_compute(op.kind)) add_exchange(g);
    }
  }

  bool sender_held() const {
    return program_.transfers == Transfers::blocking || program_.transfers == Transfers::coupled;
  }

  /// What op g of a device receives, and what its last compute op before g sent where that holds.
  void add_messages(int d, std::uint32_t g, const Span& idle) {
    Span received{0, 0}, sent{0, 0};
    if (ops_[g].has(Op::receives) && timeline_.has_message(g)) {
      received = timeline_.message(g);
      sums_.pipeline.total_s += received.length_s();
      sums_.pipeline.bytes +=
          static_cast<double>(gpus_) * static_cast<double>(message_bytes(
                                           input_.simulated.costs, ops_[table_.producer(ops_[g])]));
    }
    const std::uint32_t to = held_by(d, g);
    if (to != kNoOp && timeline_.has_message(to)) sent = timeline_.message(to);
    const double both = overlap_s(idle, received) + overlap_s(idle, sent);
    const Span common{std::max(received.start_s, sent.start_s),
                      std::min(received.end_s, sent.end_s)};
    sums_.pipeline.exposed_s += both - overlap_s(idle, common);
    if (sender_held() && ops_[g].has(Op::sends)) {
      const std::uint32_t consumer = table_.consumer(ops_[g]);
      if (timeline_.has_message(consumer))
        sums_.pipeline.total_s += timeline_.message(consumer).length_s();
    }
  }

  /// The receiver of the message that holds a device in front of op g, or kNoOp.
  std::uint32_t held_by(int d, std::uint32_t g) const {
    if (!sender_held() || g == ops_.begin(d) || !ops_[g - 1].has(Op::sends)) return kNoOp;
    return table_.consumer(ops_[g - 1]);
  }

  void add_reduction(std::uint32_t g) {
    if (timeline_.has_message(g)) sums_.data.total_s += timeline_.message(g).length_s();
  }
  void expose(std::uint32_t reduction, const Span& idle) {
    if (timeline_.has_message(reduction))
      sums_.data.exposed_s += overlap_s(idle, timeline_.message(reduction));
  }

  void add_exchange(std::uint32_t g) {
    if (gpus_ == 1 || timeline_.never_ran(g)) return;
    const double seconds = input_.exchange_s(g);
    sums_.tensor.total_s += seconds;
    sums_.tensor.exposed_s += seconds;
    // A ring of t sends 2(t-1)/t of the bytes from each of the t.
    const Op& op = ops_[g];
    const TensorTraffic& traffic =
        input_.simulated.costs[op.stage].tensor[static_cast<std::size_t>(op.kind)];
    sums_.tensor.bytes += 2.0 * (gpus_ - 1) * static_cast<double>(traffic.bytes);
  }

  /// What the replicas of a position send: as its flows do, as a ring where it is priced.
  void add_reduced_bytes(std::uint32_t position) {
    const Reduction& reduction = input_.simulated.channels.reductions()[position];
    const auto& positions = program_.placement.positions();
    const auto stage =
        static_cast<std::uint32_t>(std::ranges::find(positions, position) - positions.begin());
    const int width = program_.placement.widths()[position];
    double shares = reduction.phases.empty() ? 2.0 * (width - 1) : 0.0;
    for (const auto& phase : reduction.phases) {
      for (const LinkFlow& flow : phase.flows) shares += flow.bytes;
    }
    sums_.data.bytes += gpus_ * shares *
                        static_cast<double>(input_.simulated.costs[stage].reduced_bytes) *
                        program_.updates(stage);
  }

  const CommunicationInput& input_;
  const Program& program_;
  const OpLists& ops_;
  const DependencyTable& table_;
  const Timeline& timeline_;
  int gpus_;
  CommunicationByDimension sums_;
};

}  // namespace

CommunicationByDimension communication(const CommunicationInput& input) {
  return Sums(input).add_up();
}

}  // namespace penstock
