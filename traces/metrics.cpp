// SPDX-License-Identifier: Apache-2.0
#include "traces/metrics.hpp"

#include "program/gradient_ends.hpp"
#include "program/walk.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// The gaps of one device, cut where the cause changes.
class GapFinder {
 public:
  GapFinder(const TimelineView& view, int device, const std::function<void(const Gap&)>& report)
      : view_(view), device_(device), report_(report) {}

  void run() {
    const std::uint32_t begin = view_.program.ops.begin(device_);
    const std::uint32_t end = view_.program.ops.end(device_);
    for (std::uint32_t g = begin; g < end; ++g) {
      const Span& span = view_.timeline.op(g);
      if (g == begin) {
        put(0, span.start_s, Cause::warmup, g);
      } else {
        before(g, view_.timeline.op(g - 1).end_s, span.start_s);
      }
      if (view_.program.ops[g].kind == OpKind::reduce_grad)
        put(span.start_s, span.end_s, Cause::gradient_reduction, g);
    }
    const double last = begin == end ? 0 : view_.timeline.op(end - 1).end_s;
    put(last, view_.timeline.makespan_s, Cause::drain, kNoOp);
  }

 private:
  struct Flight {
    Span span;
    std::uint32_t to;
  };

  void put(double from_s, double to_s, Cause cause, std::uint32_t g,
           std::uint32_t message = kNoOp) {
    if (to_s > from_s) report_({{from_s, to_s}, cause, g, message});
  }

  void before(std::uint32_t g, double from_s, double to_s) {
    if (to_s <= from_s) return;
    collect_flights(g);
    if (flights_.size() > 1)
      std::ranges::sort(flights_, {}, [](const Flight& f) { return f.span.start_s; });
    double at = from_s;
    for (const Flight& flight : flights_) {
      const double start = std::clamp(flight.span.start_s, at, to_s);
      const double end = std::clamp(flight.span.end_s, start, to_s);
      put(at, start, Cause::imbalance, g);
      put(start, end, Cause::transfer_wait, g, flight.to);
      at = end;
    }
    const bool compute = is_compute(view_.program.ops[g].kind);
    put(at, to_s, compute ? Cause::imbalance : Cause::gradient_reduction, g);
  }

  /// The messages that op g, and what runs together with it, wait for; and those that hold what ran
  /// before.
  void collect_flights(std::uint32_t g) {
    flights_.clear();
    for (std::uint32_t i = g; i < g + view_.program.ops.together(g); ++i) {
      const Op& op = view_.program.ops[i];
      if (!op.has(Op::receives)) continue;
      const double sent_s = view_.timeline.op(view_.table.producer(op)).end_s;
      flights_.push_back({{sent_s, view_.timeline.message(i).end_s}, i});
    }
    if (!holds_sender(view_.program.transfers)) return;
    for (std::uint32_t i = g - (view_.program.ops.second_of_pair(g - 1) ? 2 : 1); i < g; ++i) {
      if (!view_.program.ops[i].has(Op::sends)) continue;
      const std::uint32_t to = view_.table.consumer(view_.program.ops[i]);
      flights_.push_back({view_.timeline.message(to), to});
    }
  }

  const TimelineView& view_;
  int device_;
  const std::function<void(const Gap&)>& report_;
  std::vector<Flight> flights_;
};

/// Follows what each op waited for, backwards from the last op.
class CriticalPath {
 public:
  CriticalPath(const TimelineView& view, const ReductionParts& parts)
      : view_(view), barriers_(view.program), parts_(parts) {
    const auto several = [](const auto& known) { return known.size() > 1; };
    if (!view.program.asynchronous && std::ranges::any_of(parts, several))
      ends_ = GradientEnds(view.program);
  }

  std::vector<PathSegment> trace() {
    std::uint32_t g = last_op();
    while (g != kNoOp) {
      const Op& op = view_.program.ops[g];
      const bool reduces = op.kind == OpKind::reduce_grad;
      if (reduces && !op.has(Op::detached) && view_.timeline.has_message(g)) {
        g = reduction(g);
        continue;
      }
      // A detached reduction only starts something.
      if (!op.has(Op::detached)) add_op(g);
      g = before(g);
    }
    std::reverse(path_.begin(), path_.end());
    return std::move(path_);
  }

 private:
  std::uint32_t last_op() const {
    std::uint32_t last = kNoOp;
    for (int d = 0; d < view_.program.ops.devices(); ++d) {
      if (view_.program.ops.begin(d) == view_.program.ops.end(d)) continue;
      const std::uint32_t g = view_.program.ops.end(d) - 1;
      if (last == kNoOp || view_.timeline.op(g).end_s > view_.timeline.op(last).end_s) last = g;
    }
    return last;
  }

  int device_of(std::uint32_t g) const { return view_.table.device_of(view_.program.ops[g]); }

  /// The op whose start is that of op g: the first of a pair.
  std::uint32_t first_of(std::uint32_t g) const {
    return view_.program.ops.second_of_pair(g) ? g - 1 : g;
  }

  /// Adds an op, up to where the one after it on the path needed it.
  void add_op(std::uint32_t g) {
    g = first_of(g);
    Span span = view_.timeline.op(g);
    if (until_s_ >= 0) span.end_s = until_s_;
    until_s_ = -1;
    const int device = device_of(g);
    const bool reduces = view_.program.ops[g].kind == OpKind::reduce_grad;
    const auto kind = reduces ? PathSegment::Kind::reduction : PathSegment::Kind::compute;
    const bool extends = !reduces && !path_.empty() && path_.back().kind == kind &&
                         path_.back().device == device && follows(path_.back().first, g);
    if (extends) {
      path_.back().first = g;
      path_.back().start_s = span.start_s;
    } else {
      path_.push_back({kind, device, g, g, span.start_s, span.end_s});
    }
  }

  /// Does `next` come after g on its device, but for detached reductions?
  bool follows(std::uint32_t next, std::uint32_t g) const {
    const std::uint32_t after = g + view_.program.ops.together(g);
    return next == after || (next == after + 1 && view_.program.ops[after].has(Op::detached));
  }

  /// The op that an op waited for by itself: the one before it, its message, its held send, or what
  /// its detached reduction came from.
  std::uint32_t cause_at(std::uint32_t g, double start) {
    g = first_of(g);
    const Op& op = view_.program.ops[g];
    const bool first = g == view_.program.ops.begin(device_of(g));
    if (!first && view_.timeline.op(g - 1).end_s == start) return g - 1;
    for (std::uint32_t i = g; i < g + view_.program.ops.together(g); ++i) {
      if (view_.program.ops[i].has(Op::receives) && view_.timeline.message(i).end_s == start)
        return message(i);
    }
    if (!first && holds_sender(view_.program.transfers)) {
      for (std::uint32_t i = first_of(g - 1); i < g; ++i) {
        if (!view_.program.ops[i].has(Op::sends)) continue;
        const std::uint32_t to = view_.table.consumer(view_.program.ops[i]);
        if (view_.timeline.message(to).end_s == start) return message(to);
      }
    }
    if (op.kind != OpKind::step) return kNoOp;
    if (view_.timeline.has_message(g) && view_.timeline.message(g).end_s == start) return norm(g);
    const std::uint32_t reduce =
        of_update(device_of(g), OpKind::reduce_grad, view_.program.local(op));
    const bool waited = reduce != kNoOp && view_.program.ops[reduce].has(Op::detached) &&
                        view_.timeline.has_message(reduce) &&
                        view_.timeline.message(reduce).end_s == start;
    return waited ? reduction(reduce) : kNoOp;
  }

  /// Adds the message that brought a STEP the partial norm; returns the STEP that it left from the
  /// start of.
  std::uint32_t norm(std::uint32_t g) {
    const Span& message = view_.timeline.message(g);
    const int device = device_of(g);
    if (message.length_s() > 0) {
      path_.push_back({PathSegment::Kind::transfer, device, g, g, message.start_s, message.end_s});
    }
    until_s_ = message.start_s;
    return of_update(view_.table.placement().norm_from(device), OpKind::step,
                     view_.program.local(view_.program.ops[g]));
  }

  /// What a reduction waited for at its last pause: its part `part` could start at `at_s`, when
  /// `member` came (kNoOp: when the position's reduction before had ended).
  struct Pause {
    double at_s;
    double rest_s;  ///< of the parts from there on, alone
    std::uint32_t member;
    std::uint32_t early;  ///< the op within which it was there; kNoOp: when the member came
  };

  /// Adds the reduction that ends with REDUCE_GRAD g, and those it stood in line behind; returns
  /// the op they came from.
  std::uint32_t reduction(std::uint32_t g) {
    Pause pause = add_reduction(g);
    while (pause.member == kNoOp) {
      g = earlier_reduction(g);
      pause = add_reduction(g);
    }
    if (pause.early == kNoOp) return cause_at(pause.member, pause.at_s);
    until_s_ = pause.at_s;
    return pause.early;
  }

  Pause add_reduction(std::uint32_t g) {
    const double end_s = view_.timeline.message(g).end_s;
    const Pause pause = last_pause(g);
    path_.push_back({PathSegment::Kind::reduction, device_of(g), g, g, pause.at_s, end_s});
    const double lost_s = end_s - pause.at_s - pause.rest_s;
    const bool known = !parts_of(g).empty();
    if (known && lost_s > kNegligible * (end_s - pause.at_s)) path_.back().contended_s = lost_s;
    return pause;
  }

  /// Where the chain of parts that leads to the end of a reduction begins: the part k with the
  /// largest (time it was there) + (time of the parts from k on).
  Pause last_pause(std::uint32_t g) {
    static const std::vector<ReductionPart> kWhole(1);
    const auto& known = parts_of(g);
    const auto& parts = known.empty() ? kWhole : known;
    double rest_s = 0;
    Pause best{-1, 0, kNoOp, kNoOp};
    for (std::size_t k = parts.size(); k-- > 0;) {
      rest_s += parts[k].seconds;
      const Pause pause = last_member_of(g, parts[k], rest_s);
      if (best.member == kNoOp || pause.at_s + rest_s > best.at_s + best.rest_s) best = pause;
    }
    const std::uint32_t before = earlier_reduction(g);
    if (before == kNoOp || !view_.timeline.has_message(before)) return best;
    const double free_s = view_.timeline.message(before).end_s;
    if (free_s + rest_s > best.at_s + best.rest_s) return {free_s, rest_s, kNoOp, kNoOp};
    return best;
  }

  /// The last replica to have a part of its gradient.
  Pause last_member_of(std::uint32_t g, const ReductionPart& part, double rest_s) {
    const std::uint32_t update = view_.program.local(view_.program.ops[g]);
    Pause last{-1, rest_s, kNoOp, kNoOp};
    for (int d = 0; d < view_.program.ops.devices(); ++d) {
      if (!reduce_together(d, device_of(g))) continue;
      const std::uint32_t member = of_update(d, OpKind::reduce_grad, update);
      if (member == kNoOp) continue;
      const std::uint32_t early = early_op(d, member, part);
      const double at_s = early == kNoOp ? arrival(member) : within(early, part.ready);
      if (at_s > last.at_s) last = {at_s, rest_s, member, early};
    }
    return last;
  }

  /// The op within which, or at whose end, a part was there before its device came to the
  /// reduction; kNoOp where there is none.
  std::uint32_t early_op(int device, std::uint32_t reduce, const ReductionPart& part) const {
    const std::uint32_t last = ends_.last_of(reduce, part.stage);
    const bool early = last != kNoOp && (part.ready < 1 ||
                                         last < view_.program.ops.previous_compute(device, reduce));
    return early ? last : kNoOp;
  }
  double within(std::uint32_t g, double share) const {
    const Span& span = view_.timeline.op(g);
    return share < 1 ? span.start_s + share * span.length_s() : span.end_s;
  }

  /// When a device came to its REDUCE_GRAD.
  double arrival(std::uint32_t g) const {
    double free_s = view_.timeline.op(g - 1).end_s;
    for (std::uint32_t i = first_of(g - 1); i < g && holds_sender(view_.program.transfers); ++i) {
      if (view_.program.ops[i].has(Op::sends))
        free_s = std::max(free_s,
                          view_.timeline.message(view_.table.consumer(view_.program.ops[i])).end_s);
    }
    return free_s;
  }

  const std::vector<ReductionPart>& parts_of(std::uint32_t g) const {
    static const std::vector<ReductionPart> kUnknown;
    const int device = device_of(g);
    const std::uint32_t replica_group = barriers_.replica_group_of(device);
    return replica_group < parts_.size() ? parts_[replica_group] : kUnknown;
  }

  bool reduce_together(int a, int b) const {
    return barriers_.replica_group_of(a) == barriers_.replica_group_of(b);
  }

  /// A device's reduction or step of an update, or kNoOp.
  std::uint32_t of_update(int device, OpKind kind, std::uint32_t update) {
    const auto& mine = updates_of(device, kind);
    return update < mine.size() ? mine[update] : kNoOp;
  }
  std::uint32_t earlier_reduction(std::uint32_t g) {
    const std::uint32_t update = view_.program.local(view_.program.ops[g]);
    return update == 0 ? kNoOp : of_update(device_of(g), OpKind::reduce_grad, update - 1);
  }

  /// At a barrier, what the last of its members waited for.
  std::uint32_t last_member(std::uint32_t g, double start) {
    const Op& op = view_.program.ops[g];
    for (int d = 0; d < view_.program.ops.devices(); ++d) {
      if (op.kind == OpKind::reduce_grad && !reduce_together(d, device_of(g))) continue;
      const std::uint32_t member = of_update(d, op.kind, view_.program.local(op));
      if (member == kNoOp) continue;
      const std::uint32_t cause = cause_at(member, start);
      if (cause != kNoOp) return cause;
    }
    return kNoOp;
  }

  /// Indices of a device's reductions or steps, by update.
  const std::vector<std::uint32_t>& updates_of(int device, OpKind kind) {
    auto& all = kind == OpKind::step ? steps_ : reductions_;
    if (all.empty()) all.resize(static_cast<std::size_t>(view_.program.ops.devices()));
    auto& mine = all[static_cast<std::size_t>(device)];
    if (!mine.empty()) return mine;
    for (std::uint32_t g = view_.program.ops.begin(device); g < view_.program.ops.end(device);
         ++g) {
      if (view_.program.ops[g].kind == kind) mine.push_back(g);
    }
    return mine;
  }

  /// Adds the message or wait in front of `g` and returns the op that it came from.
  std::uint32_t before(std::uint32_t g) {
    const double start = view_.timeline.op(g).start_s;
    std::uint32_t cause = cause_at(g, start);
    if (cause == kNoOp && !is_compute(view_.program.ops[g].kind)) cause = last_member(g, start);
    return cause != kNoOp ? cause : latest_before(g, start);
  }

  /// In a measured timeline an op starts a little after the last thing it waited for: the wait
  /// between them, and that thing's op.
  std::uint32_t latest_before(std::uint32_t g, double start) {
    g = first_of(g);
    const bool first = g == view_.program.ops.begin(device_of(g));
    double from = first ? -1 : view_.timeline.op(g - 1).end_s;
    const bool by_message = waits_for_message(g) && view_.timeline.message(g).end_s > from &&
                            view_.timeline.message(g).end_s <= start;
    if (first && !by_message) return kNoOp;
    if (by_message) from = view_.timeline.message(g).end_s;
    path_.push_back({PathSegment::Kind::wait, device_of(g), g, g, from, start});
    return by_message ? message(g) : g - 1;
  }

  /// Another stage's, or a partial norm?
  bool waits_for_message(std::uint32_t g) const {
    const Op& op = view_.program.ops[g];
    return op.has(Op::receives) || (op.kind == OpKind::step && view_.timeline.has_message(g));
  }

  std::uint32_t message(std::uint32_t to) {
    if (view_.program.ops[to].kind == OpKind::step) return norm(to);
    const std::uint32_t from = view_.table.producer(view_.program.ops[to]);
    const Span& sent = view_.timeline.message(to);
    const double ready = view_.timeline.op(from).end_s;
    if (sent.end_s > ready) {
      path_.push_back({PathSegment::Kind::transfer, device_of(to), to, to, ready, sent.end_s});
    }
    // A rendezvous that waited for its receiver came from there, not from the sender.
    const std::uint32_t posted = view_.program.ops.previous_compute(device_of(to), to);
    if (view_.program.transfers == Transfers::coupled && posted != kNoOp) {
      const double posted_s = view_.timeline.op(posted).end_s;
      if (posted_s > ready && posted_s <= sent.start_s) {
        path_.back().start_s = posted_s;
        return posted;
      }
    }
    return from;
  }

  /// A share of a segment that is rounding.
  static constexpr double kNegligible = 1e-6;

  const TimelineView& view_;
  Barriers barriers_;
  const ReductionParts& parts_;
  GradientEnds ends_;
  std::vector<PathSegment> path_;
  double until_s_ = -1;  // where the op added next is left; < 0: at its end
  std::vector<std::vector<std::uint32_t>> steps_, reductions_;  // per device, made when needed
};

}  // namespace

void for_each_gap(const TimelineView& view, int device,
                  const std::function<void(const Gap&)>& report) {
  GapFinder(view, device, report).run();
}

DeviceMetrics device_metrics(const TimelineView& view, int device) {
  DeviceMetrics metrics;
  const std::uint32_t begin = view.program.ops.begin(device);
  const std::uint32_t end = view.program.ops.end(device);
  for (std::uint32_t g = begin; g < end; ++g) {
    if (view.program.ops[g].kind != OpKind::reduce_grad && !view.program.ops.second_of_pair(g))
      metrics.busy_s += view.timeline.op(g).length_s();
  }
  if (begin < end)
    metrics.stage_time_s = view.timeline.op(end - 1).end_s - view.timeline.op(begin).start_s;
  for_each_gap(view, device, [&](const Gap& gap) {
    metrics.idle_s[static_cast<std::size_t>(gap.cause)] += gap.span.length_s();
  });
  return metrics;
}

std::vector<PathSegment> critical_path(const TimelineView& view, const ReductionParts& parts) {
  return CriticalPath(view, parts).trace();
}

}  // namespace penstock
