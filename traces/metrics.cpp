#include "traces/metrics.hpp"

#include <algorithm>

namespace penstock {
namespace {

bool ends_hold(Transfers transfers) {
  return transfers == Transfers::coupled || transfers == Transfers::blocking;
}

/// The gaps of one device, cut where the cause changes.
class GapFinder {
 public:
  GapFinder(const TimelineView& view, int device, const std::function<void(const Gap&)>& report)
      : view_(view), device_(device), report_(report) {}

  void run() {
    const std::uint32_t begin = view_.ops.begin(device_);
    const std::uint32_t end = view_.ops.end(device_);
    for (std::uint32_t g = begin; g < end; ++g) {
      const Span& span = view_.timeline.op(g);
      if (g == begin) {
        put(0, span.start_s, Cause::warmup, g);
      } else {
        before(g, view_.timeline.op(g - 1).end_s, span.start_s);
      }
      if (view_.ops[g].kind == OpKind::reduce_grad)
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
    const Op& op = view_.ops[g];
    std::array<Flight, 2> flights{};
    std::size_t count = 0;
    if (op.has(Op::receives)) {
      flights[count++] = {
          {view_.timeline.op(view_.table.producer(op)).end_s, view_.timeline.message(g).end_s}, g};
    }
    const Op& previous = view_.ops[g - 1];
    if (ends_hold(view_.transfers) && previous.has(Op::sends)) {
      const std::uint32_t to = view_.table.consumer(previous);
      flights[count++] = {view_.timeline.message(to), to};
    }
    if (count == 2 && flights[1].span.start_s < flights[0].span.start_s)
      std::swap(flights[0], flights[1]);
    double at = from_s;
    for (std::size_t i = 0; i < count; ++i) {
      const double start = std::clamp(flights[i].span.start_s, at, to_s);
      const double end = std::clamp(flights[i].span.end_s, start, to_s);
      put(at, start, Cause::imbalance, g);
      put(start, end, Cause::transfer_wait, g, flights[i].to);
      at = end;
    }
    put(at, to_s, is_compute(op.kind) ? Cause::imbalance : Cause::gradient_reduction, g);
  }

  const TimelineView& view_;
  int device_;
  const std::function<void(const Gap&)>& report_;
};

/// Follows what each op waited for, backwards from the last op.
class CriticalPath {
 public:
  explicit CriticalPath(const TimelineView& view) : view_(view) {}

  std::vector<PathSegment> trace() {
    std::uint32_t g = last_op();
    while (g != kNoOp) {
      add_op(g);
      g = before(g);
    }
    std::reverse(path_.begin(), path_.end());
    return std::move(path_);
  }

 private:
  std::uint32_t last_op() const {
    std::uint32_t last = kNoOp;
    for (int d = 0; d < view_.ops.devices(); ++d) {
      if (view_.ops.begin(d) == view_.ops.end(d)) continue;
      const std::uint32_t g = view_.ops.end(d) - 1;
      if (last == kNoOp || view_.timeline.op(g).end_s > view_.timeline.op(last).end_s) last = g;
    }
    return last;
  }

  int device_of(std::uint32_t g) const { return view_.table.device_of(view_.ops[g]); }

  void add_op(std::uint32_t g) {
    const Span& span = view_.timeline.op(g);
    const int device = device_of(g);
    const bool reduces = view_.ops[g].kind == OpKind::reduce_grad;
    const auto kind = reduces ? PathSegment::Kind::reduction : PathSegment::Kind::compute;
    const bool extends = !reduces && !path_.empty() && path_.back().kind == kind &&
                         path_.back().device == device && path_.back().first == g + 1;
    if (extends) {
      path_.back().first = g;
      path_.back().start_s = span.start_s;
    } else {
      path_.push_back({kind, device, g, g, span.start_s, span.end_s});
    }
  }

  /// The op that an op waited for by itself: the one before it, its message, or its held send.
  std::uint32_t cause_at(std::uint32_t g, double start) {
    const Op& op = view_.ops[g];
    const bool first = g == view_.ops.begin(device_of(g));
    if (!first && view_.timeline.op(g - 1).end_s == start) return g - 1;
    if (op.has(Op::receives) && view_.timeline.message(g).end_s == start) return message(g);
    if (!first && ends_hold(view_.transfers) && view_.ops[g - 1].has(Op::sends)) {
      const std::uint32_t to = view_.table.consumer(view_.ops[g - 1]);
      if (view_.timeline.message(to).end_s == start) return message(to);
    }
    return kNoOp;
  }

  /// At a barrier, what the last of its members waited for.
  std::uint32_t last_member(std::uint32_t g, double start) {
    const Op& op = view_.ops[g];
    const Placement& placement = view_.table.placement();
    const std::uint32_t position = placement.position_of(device_of(g));
    for (int d = 0; d < view_.ops.devices(); ++d) {
      if (op.kind == OpKind::reduce_grad && placement.position_of(d) != position) continue;
      const auto& ends = updates_of(d, op.kind);
      const std::uint32_t update = op.microbatch / placement.width_of(op.stage);
      if (update >= ends.size()) continue;
      const std::uint32_t cause = cause_at(ends[update], start);
      if (cause != kNoOp) return cause;
    }
    return kNoOp;
  }

  /// Indices of a device's reductions or steps, by update.
  const std::vector<std::uint32_t>& updates_of(int device, OpKind kind) {
    auto& all = kind == OpKind::step ? steps_ : reductions_;
    if (all.empty()) all.resize(static_cast<std::size_t>(view_.ops.devices()));
    auto& mine = all[static_cast<std::size_t>(device)];
    if (!mine.empty()) return mine;
    for (std::uint32_t g = view_.ops.begin(device); g < view_.ops.end(device); ++g) {
      if (view_.ops[g].kind == kind) mine.push_back(g);
    }
    return mine;
  }

  /// Adds the message or wait in front of `g` and returns the op that it came from.
  std::uint32_t before(std::uint32_t g) {
    const double start = view_.timeline.op(g).start_s;
    std::uint32_t cause = cause_at(g, start);
    if (cause == kNoOp && !is_compute(view_.ops[g].kind)) cause = last_member(g, start);
    return cause != kNoOp ? cause : latest_before(g, start);
  }

  /// In a measured timeline an op starts a little after the last thing it waited for: the wait
  /// between them, and that thing's op.
  std::uint32_t latest_before(std::uint32_t g, double start) {
    const bool first = g == view_.ops.begin(device_of(g));
    double from = first ? -1 : view_.timeline.op(g - 1).end_s;
    const bool by_message = view_.ops[g].has(Op::receives) &&
                            view_.timeline.message(g).end_s > from &&
                            view_.timeline.message(g).end_s <= start;
    if (first && !by_message) return kNoOp;
    if (by_message) from = view_.timeline.message(g).end_s;
    path_.push_back({PathSegment::Kind::wait, device_of(g), g, g, from, start});
    return by_message ? message(g) : g - 1;
  }

  std::uint32_t message(std::uint32_t to) {
    const std::uint32_t from = view_.table.producer(view_.ops[to]);
    const Span& sent = view_.timeline.message(to);
    const double ready = view_.timeline.op(from).end_s;
    if (sent.end_s > ready) {
      path_.push_back({PathSegment::Kind::transfer, device_of(to), to, to, ready, sent.end_s});
    }
    // A rendezvous that waited for its receiver came from there, not from the sender.
    const std::uint32_t posted = view_.ops.previous_compute(device_of(to), to);
    if (view_.transfers == Transfers::coupled && sent.start_s > ready && posted != kNoOp) {
      path_.back().start_s = sent.start_s;
      return posted;
    }
    return from;
  }

  const TimelineView& view_;
  std::vector<PathSegment> path_;
  std::vector<std::vector<std::uint32_t>> steps_, reductions_;  // per device, made when needed
};

}  // namespace

void for_each_gap(const TimelineView& view, int device,
                  const std::function<void(const Gap&)>& report) {
  GapFinder(view, device, report).run();
}

DeviceMetrics device_metrics(const TimelineView& view, int device) {
  DeviceMetrics metrics;
  const std::uint32_t begin = view.ops.begin(device);
  const std::uint32_t end = view.ops.end(device);
  for (std::uint32_t g = begin; g < end; ++g) {
    if (view.ops[g].kind != OpKind::reduce_grad) metrics.busy_s += view.timeline.op(g).length_s();
  }
  if (begin < end)
    metrics.stage_time_s = view.timeline.op(end - 1).end_s - view.timeline.op(begin).start_s;
  for_each_gap(view, device, [&](const Gap& gap) {
    metrics.idle_s[static_cast<std::size_t>(gap.cause)] += gap.span.length_s();
  });
  return metrics;
}

std::vector<PathSegment> critical_path(const TimelineView& view) {
  return CriticalPath(view).trace();
}

}  // namespace penstock
