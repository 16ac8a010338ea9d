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
  double share;      ///< of the link's bandwidth, on average
  std::size_t user;  ///< number of the channel, behind all channels that of the reduction's party,
                     ///< behind these that of the device that exchanges
};

/// Who used the links of contended messages and reductions, and when.
class LinkUses {
 public:
  LinkUses(const SimulationInput& input, const Timeline& timeline)
      : channels_(input.channels), barriers_(input.program), uses_(channels_.links().size()) {
    const OpLists& ops = input.program.ops;
    for (std::uint32_t g = 0; g < ops.size(); ++g) {
      const int device = input.table.device_of(ops[g]);
      if (!channels_.exchanges().empty() && is_compute(ops[g].kind))
        add_exchange(input, ops[g], device, timeline.op(g));
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
  void for_each_other(int link, const Span& span, std::size_t user, const Visit& visit) const {
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

  std::size_t user_of_party(std::uint32_t party) const { return channels_.all().size() + party; }

 private:
  void add_message(const SimulationInput& input, const Op& sender, const Span& message) {
    const std::uint32_t c = channels_.of_send(sender);
    const Channel& channel = channels_.all()[c];
    if (!channel.contended) return;
    const auto bytes = static_cast<double>(message_bytes(input.costs, sender));
    // Latency never occupies a link.
    add(channel.flows, bytes, {message.start_s, message.end_s - channel.latency_s}, c);
  }

  void add_exchange(const SimulationInput& input, const Op& op, int device, const Span& span) {
    const Exchange& exchange = channels_.exchanges()[static_cast<std::size_t>(device)];
    if (!exchange.contended) return;
    const TensorTraffic& traffic = input.costs[op.stage].tensor[static_cast<std::size_t>(op.kind)];
    add(exchange.ring.flows, static_cast<double>(traffic.bytes), span,
        channels_.all().size() + channels_.reductions().size() + static_cast<std::size_t>(device));
  }

  void add_reduction(const SimulationInput& input, int device, const Span& span) {
    const std::uint32_t party = barriers_.party(device);
    const Reduction& reduction = channels_.reductions()[party];
    // Every member has the same span.
    if (!reduction.contended || barriers_.of_party(party, 0) != device) return;
    const auto bytes = static_cast<double>(at_position(
        input.program.placement, input.costs, reduction.position, &StageCosts::reduced_bytes));
    for (const FlowGroup& phase : reduction.phases)
      add(phase.flows, bytes, span, user_of_party(party));
  }

  void add(const std::vector<LinkFlow>& flows, double bytes, const Span& span, std::size_t user) {
    if (span.length_s() <= 0) return;
    for (const LinkFlow& flow : flows) {
      for (const int link : flow.links) {
        const auto l = static_cast<std::size_t>(link);
        const double share =
            flow.bytes * bytes / channels_.links()[l].bytes_per_s / span.length_s();
        uses_[l].push_back({span, share, user});
      }
    }
  }

  const Channels& channels_;
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
    const std::uint32_t c = input_.channels.of_send(sender);
    const Channel& channel = input_.channels.all()[c];
    if (!channel.contended) return;
    const Span& message = timeline_.message(segment.first);
    const auto bytes = static_cast<double>(message_bytes(input_.costs, sender));
    const double alone_s = bytes / channel.bytes_per_s + channel.latency_s;
    const Span waits{segment.start_s, message.start_s};
    const double lost_s = in_line_s(channel, waits, c) + message.length_s() - alone_s;
    const double rounding_s = 8 * std::numeric_limits<double>::epsilon() * message.end_s;
    if (lost_s <= kNegligible * alone_s + rounding_s) return;
    segment.contended_s = std::min(lost_s, segment.end_s - segment.start_s);
    segment.link = most_used(crossed_by(channel.flows), {segment.start_s, segment.end_s}, c);
  }

  /// Time a message stands behind others at FIFO links, the longest of its links.
  double in_line_s(const Channel& channel, const Span& waits, std::size_t user) const {
    double longest_s = 0;
    for (const int link : crossed_by(channel.flows)) {
      if (!input_.channels.links()[static_cast<std::size_t>(link)].fifo) continue;
      double sum_s = 0;
      uses_.for_each_other(link, waits, user,
                           [&](double overlap_s, const Use&) { sum_s += overlap_s; });
      longest_s = std::max(longest_s, sum_s);
    }
    return longest_s;
  }

  void explain_reduction(PathSegment& segment) const {
    const std::uint32_t party = Barriers(input_.program).party(segment.device);
    std::vector<LinkFlow> flows;
    for (const FlowGroup& phase : input_.channels.reductions()[party].phases)
      flows.insert(flows.end(), phase.flows.begin(), phase.flows.end());
    segment.link =
        most_used(crossed_by(flows), {segment.start_s, segment.end_s}, uses_.user_of_party(party));
    if (segment.link < 0) segment.link = longest_occupied(flows);
  }

  int longest_occupied(const std::vector<LinkFlow>& flows) const {
    std::map<int, double> occupied_s;  // per byte
    for (const LinkFlow& flow : flows) {
      for (const int l : flow.links) {
        const double rate = input_.channels.links()[static_cast<std::size_t>(l)].bytes_per_s;
        occupied_s[l] += flow.bytes / rate;
      }
    }
    const auto longest =
        std::ranges::max_element(occupied_s, {}, [](const auto& entry) { return entry.second; });
    return longest == occupied_s.end() ? -1 : longest->first;
  }

  /// The link that others used most; -1 when nobody did.
  int most_used(const std::vector<int>& links, const Span& span, std::size_t user) const {
    int most = -1;
    double most_s = 0;
    for (const int link : links) {
      double used_s = 0;
      uses_.for_each_other(link, span, user, [&](double overlap_s, const Use& use) {
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
  for (std::uint32_t p = 0; p < input.channels.reductions().size(); ++p) {
    auto& mine = parts.emplace_back();
    for (const auto& bucket : times.of(p)) mine.push_back({bucket.ready, bucket.seconds});
  }
  return parts;
}

std::vector<PathSegment> contended_path(const SimulationInput& input, const Timeline& timeline) {
  const TimelineView view{input.program, input.table, timeline};
  std::vector<PathSegment> path = critical_path(view, reduction_parts(input));
  if (!input.channels.contention()) return path;
  const Explanation explanation(input, timeline);
  for (PathSegment& segment : path) explanation.explain(segment);
  return path;
}

}  // namespace penstock
