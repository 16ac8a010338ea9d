// SPDX-License-Identifier: Apache-2.0
#include "sim/path_contention.hpp"

#include "program/walk.hpp"
#include "sim/bucket_times.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace penstock {
namespace {

constexpr double kNegligible = 1e-6;  // share of a message's time that is rounding

/// Somebody's use of a link.
struct Use {
  Span span;
  double share;        ///< of the link's bandwidth, on average
  std::uint32_t user;  ///< a transfer of the traffic
};

/// Who used the links of contended messages and reductions, and when.
class LinkUses {
 public:
  LinkUses(const SimulationInput& input, const Timeline& timeline)
      : traffic_(input.traffic), barriers_(input.program), uses_(traffic_.links().size()) {
    const OpLists& ops = input.program.ops;
    for (std::uint32_t g = 0; g < ops.size(); ++g) {
      const int device = input.table.device_of(ops[g]);
      if (is_compute(ops[g].kind)) add_collective(input, ops[g], device, timeline.op(g));
      if (!timeline.has_message(g)) continue;
      if (ops[g].kind == OpKind::reduce_grad) {
        add_reduction(input, device, timeline.message(g));
      } else if (ops[g].has(Op::receives)) {
        add_message(input, ops[input.table.producer(ops[g])], timeline.message(g));
      }
    }
    for (auto& uses : uses_) {
      std::ranges::sort(uses, {}, [](const Use& u) { return u.span.start_s; });
      double longest_s = 0;
      for (const Use& u : uses) longest_s = std::max(longest_s, u.span.length_s());
      longest_s_.push_back(longest_s);
    }
  }

  /// Calls `visit(overlap_s, use)` for the uses of a link by others in a span of time.
  template <class Visit>
  void for_each_other(int link, const Span& span, std::uint32_t user, const Visit& visit) const {
    const auto l = static_cast<std::size_t>(link);
    const auto& uses = uses_[l];
    const auto start_of = [](const Use& u) { return u.span.start_s; };
    auto it = std::ranges::lower_bound(uses, span.start_s - longest_s_[l], {}, start_of);
    for (; it != uses.end() && it->span.start_s < span.end_s; ++it) {
      const double overlap_s =
          std::min(it->span.end_s, span.end_s) - std::max(it->span.start_s, span.start_s);
      if (it->user != user && overlap_s > 0) visit(overlap_s, *it);
    }
  }

 private:
  void add_message(const SimulationInput& input, const Op& sender, const Span& message) {
    const std::uint32_t number = traffic_.message_of(sender);
    const auto bytes = static_cast<double>(message_bytes(input.costs, sender));
    // Latency never occupies a link.
    add_transfer(number, bytes, {message.start_s, message.end_s - traffic_[number].latency_s});
  }

  void add_collective(const SimulationInput& input, const Op& op, int device, const Span& span) {
    const Recipe& recipe = input.costs[op.stage].pass(op)[op].recipe;
    // One after the other on the same links: one use.
    for (const Axis axis : kExchangeAxes) {
      std::map<int, double> busy_s;
      std::uint32_t user = kNoOp;
      for (const AxisCollective& one : traffic_.collectives()) {
        const auto bytes = static_cast<double>(recipe.bytes(one.axis, one.what));
        const std::uint32_t number = traffic_.collective_of(device, one);
        if (one.axis != axis || bytes == 0 || !traffic_[number].contended) continue;
        user = std::min(user, number);
        for_each_link(traffic_[number], bytes, [&](int l, double s) { busy_s[l] += s; });
      }
      for (const auto& [link, s] : busy_s) add_use(link, s, span, user);
    }
  }

  void add_reduction(const SimulationInput& input, int device, const Span& span) {
    const std::uint32_t replica_group = barriers_.replica_group_of(device);
    const std::uint32_t number = traffic_.reduction_of(replica_group);
    if (barriers_.replica_group_member(replica_group, 0) != device)
      return;  // every member has the same span
    const auto position = static_cast<std::uint32_t>(traffic_[number].source);
    add_transfer(number,
                 static_cast<double>(at_position(input.program.placement, input.costs, position,
                                                 &StageCosts::reduced_bytes)),
                 span);
  }

  void add_transfer(std::uint32_t number, double bytes, const Span& span) {
    if (!traffic_[number].contended) return;
    for_each_link(traffic_[number], bytes,
                  [&](int link, double busy_s) { add_use(link, busy_s, span, number); });
  }

  void add_use(int link, double busy_s, const Span& span, std::uint32_t user) {
    if (span.length_s() > 0)
      uses_[static_cast<std::size_t>(link)].push_back({span, busy_s / span.length_s(), user});
  }

  /// Calls `visit(link, seconds that a flow keeps it busy)`.
  template <class Visit>
  void for_each_link(const Transfer& transfer, double bytes, const Visit& visit) const {
    for (const Transfer::Phase& phase : transfer.phases)
      for (const LinkFlow& flow : phase.flows)
        for (const int l : flow.links)
          visit(l, flow.bytes * bytes / traffic_.links()[static_cast<std::size_t>(l)].bytes_per_s);
  }

  const Traffic& traffic_;
  Barriers barriers_;
  std::vector<std::vector<Use>> uses_;  // per link, by start
  std::vector<double> longest_s_;       // per link
};

class Explanation {
 public:
  Explanation(const SimulationInput& input, const Timeline& timeline)
      : input_(input), timeline_(timeline), uses_(input, timeline) {}

  void explain(PathSegment& segment) const {
    if (segment.kind == PathSegment::Kind::transfer) explain_message(segment);
    if (segment.kind == PathSegment::Kind::reduction && segment.contended_s > 0)
      explain_reduction(segment);
  }

 private:
  void explain_message(PathSegment& segment) const {
    if (!input_.program.ops[segment.first].has(Op::receives)) return;  // a partial norm
    const Op& sender = input_.program.ops[input_.table.producer(input_.program.ops[segment.first])];
    const std::uint32_t number = input_.traffic.message_of(sender);
    const Transfer& transfer = input_.traffic[number];
    if (!transfer.contended) return;
    const Span& message = timeline_.message(segment.first);
    const double alone_s =
        transfer.alone_s(static_cast<double>(message_bytes(input_.costs, sender)));
    const Span waits{segment.start_s, message.start_s};
    const double lost_s = in_line_s(number, waits) + message.length_s() - alone_s;
    const double rounding_s = 8 * std::numeric_limits<double>::epsilon() * message.end_s;
    if (lost_s <= kNegligible * alone_s + rounding_s) return;
    segment.contended_s = std::min(lost_s, segment.end_s - segment.start_s);
    segment.link = most_used(number, {segment.start_s, segment.end_s});
  }

  /// Time a message stands behind others at FIFO links, the longest of its links.
  double in_line_s(std::uint32_t message, const Span& waits) const {
    double longest_s = 0;
    for (const int link : input_.traffic[message].crossed_links()) {
      if (!input_.traffic.links()[static_cast<std::size_t>(link)].fifo) continue;
      double sum_s = 0;
      uses_.for_each_other(link, waits, message,
                           [&](double overlap_s, const Use&) { sum_s += overlap_s; });
      longest_s = std::max(longest_s, sum_s);
    }
    return longest_s;
  }

  void explain_reduction(PathSegment& segment) const {
    const std::uint32_t replica_group = Barriers(input_.program).replica_group_of(segment.device);
    const std::uint32_t number = input_.traffic.reduction_of(replica_group);
    segment.link = most_used(number, {segment.start_s, segment.end_s});
    if (segment.link < 0) segment.link = longest_occupied(input_.traffic[number]);
  }

  int longest_occupied(const Transfer& transfer) const {
    std::map<int, double> occupied_s;  // per byte
    for (const Transfer::Phase& phase : transfer.phases) {
      for (const LinkFlow& flow : phase.flows) {
        for (const int l : flow.links) {
          const double rate = input_.traffic.links()[static_cast<std::size_t>(l)].bytes_per_s;
          occupied_s[l] += flow.bytes / rate;
        }
      }
    }
    const auto longest =
        std::ranges::max_element(occupied_s, {}, [](const auto& entry) { return entry.second; });
    return longest == occupied_s.end() ? -1 : longest->first;
  }

  /// The link that others used most; -1 when nobody did.
  int most_used(std::uint32_t transfer, const Span& span) const {
    int most = -1;
    double most_s = 0;
    for (const int link : input_.traffic[transfer].crossed_links()) {
      double used_s = 0;
      uses_.for_each_other(link, span, transfer, [&](double overlap_s, const Use& use) {
        used_s += overlap_s * use.share;
      });
      if (used_s > most_s) {
        most_s = used_s;
        most = link;
      }
    }
    return most;
  }

  const SimulationInput& input_;
  const Timeline& timeline_;
  LinkUses uses_;
};

}  // namespace

ReductionParts reduction_parts(const SimulationInput& input) {
  const BucketTimes times(input);
  ReductionParts parts;
  for (std::uint32_t p = 0; p < input.traffic.reductions().size(); ++p) {
    auto& mine = parts.emplace_back();
    for (const auto& bucket : times.buckets_of(p))
      mine.push_back({bucket.ready, bucket.seconds, bucket.stage});
  }
  return parts;
}

std::vector<PathSegment> contended_path(const SimulationInput& input, const Timeline& timeline) {
  const TimelineView view{input.program, input.table, timeline};
  std::vector<PathSegment> path = critical_path(view, reduction_parts(input));
  if (!input.traffic.contention()) return path;
  const Explanation explanation(input, timeline);
  for (PathSegment& segment : path) explanation.explain(segment);
  return path;
}

}  // namespace penstock
