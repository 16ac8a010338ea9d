// SPDX-License-Identifier: Apache-2.0
// The exact engine: with a fixed order per device and a FIFO per channel, every time is a maximum
// of sums of earlier ones, so one walk over the ops computes them all.
//   start(op)   = max(end of the device's previous op, arrival of its message)
//   arrival     = departure + bytes/bandwidth + latency
//   departure   = max(end of the producer, the channel's previous departure + its bytes/bandwidth)
// A partial norm (post-validation) leaves when its STEP starts, and arrives a latency later.
// A reduction's part k starts when the last member has that part of its gradients and part k-1 has
// ended; on links of its own it takes the time of its phases.
// New weights of a further stage are gathered one stage after the other; its first forward waits
// for them (program/gather_queue.hpp).
#include "program/gather_queue.hpp"
#include "program/walk.hpp"
#include "sim/bucket_times.hpp"
#include "sim/durations.hpp"
#include "sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

template <Transfers transfers, bool disturbed>
class ExactClock {
 public:
  ExactClock(const SimulationInput& input, Timeline& timeline)
      : ops_(input.program.ops),
        table_(input.table),
        traffic_(input.traffic),
        timeline_(timeline),
        duration_(input),
        bucket_times_(input),
        costs_(input.costs),
        gathers_(input.program),
        gathering_(input.program.gathers ? static_cast<std::size_t>(ops_.devices()) : 0),
        free_at_(static_cast<std::size_t>(ops_.devices()), 0.0),
        reduces_(static_cast<std::size_t>(ops_.devices()), kNoOp),
        barriers_(input.program),
        ended_(barriers_.groups(), 0.0),
        ready_(barriers_.groups() * bucket_times_.most(), 0.0),
        all_ready_(barriers_.groups(), 0.0) {
    for (std::uint32_t s = 0; s < input.costs.size(); ++s) {
      const auto bytes = [&](OpKind kind) {
        const bool none = kind == OpKind::backward && s == 0;
        const Op sender{.stage = static_cast<std::uint16_t>(s), .kind = kind};
        return none ? 0 : static_cast<double>(message_bytes(input.costs, sender));
      };
      forward_bytes_.push_back(bytes(OpKind::forward));
      backward_bytes_.push_back(bytes(OpKind::backward));
    }
    for (std::size_t d = 0; d < gathering_.size(); ++d)
      gather_first(static_cast<int>(d), gathers_.first(static_cast<int>(d)), 0);
    for (const Transfer& m : traffic_.messages()) lanes_.push_back({m.bytes_per_s, m.latency_s, 0});
  }

  bool arrived(std::uint32_t g) const { return timeline_.has_message(g); }

  void run_op(int device, std::uint32_t g, std::uint32_t held_by) {
    const Op& op = ops_[g];
    double& free_at = free_at_[static_cast<std::size_t>(device)];
    double start = free_at;
    if (op.has(Op::receives) || (op.kind == OpKind::step && timeline_.has_message(g)))
      start = std::max(start, timeline_.message(g).end_s);
    const bool paired = op.has(Op::paired);
    if (paired && ops_[g + 1].has(Op::receives))
      start = std::max(start, timeline_.message(g + 1).end_s);
    if (held_by != kNoOp) start = std::max(start, timeline_.message(held_by).end_s);
    if (op.kind == OpKind::reduce_grad) {
      free_at = op.has(Op::detached) ? start : reduced_at_;
    } else {
      const double begin = op.has(Op::prefetched) ? with_weights(device, g, start) : start;
      if constexpr (disturbed)
        free_at = duration_.end_of(begin, op, device, g);
      else
        free_at = begin + duration_(op, device, g);
      if (op.kind == OpKind::step && !gathering_.empty())
        gather_first(device, gathers_.next(g), free_at);
    }
    timeline_.op(g) = {start, free_at};
    if (paired) timeline_.op(g + 1) = {start, free_at};
    latest_ = std::max(latest_, free_at);
  }

  void transfer(std::uint32_t from, int from_device, std::uint32_t to) {
    if (ops_[from].kind == OpKind::step) return hand_norm(from, to);
    double depart = timeline_.op(from).end_s;
    if constexpr (transfers == Transfers::free) {
      timeline_.message(to) = {depart, depart};
      return;
    }
    const Op& op = ops_[from];
    const std::uint32_t message = traffic_.message_of(op);
    Lane& lane = lanes_[message];
    const double occupied =
        (op.kind == OpKind::forward ? forward_bytes_ : backward_bytes_)[op.stage] /
        lane.bytes_per_s;
    if constexpr (transfers == Transfers::coupled) {
      // The receiver posts its part when its compute op before `to` ends.
      const int receiver = traffic_[message].destination;
      const std::uint32_t before = ops_.previous_compute(receiver, to);
      if (before != kNoOp) depart = std::max(depart, timeline_.op(before).end_s);
    } else {
      depart = std::max(depart, lane.free_at);
      lane.free_at = depart + occupied;
    }
    const double arrival = depart + occupied + lane.latency_s;
    timeline_.message(to) = {depart, arrival};
    if constexpr (transfers == Transfers::blocking) {
      double& free_at = free_at_[static_cast<std::size_t>(from_device)];
      free_at = std::max(free_at, arrival);  // of the two messages of a pair, the later
    }
  }

  void meet(int device, std::uint32_t g, std::uint32_t group, std::uint32_t held_by) {
    double ready = free_at_[static_cast<std::size_t>(device)];
    if (held_by != kNoOp) ready = std::max(ready, timeline_.message(held_by).end_s);
    double* at = &ready_[group * bucket_times_.most()];
    if (ops_[g].kind == OpKind::step) {
      *at = std::max(*at, ready);
      return;
    }
    reduces_[static_cast<std::size_t>(device)] = g;
    const auto& buckets = bucket_times_.buckets_of(barriers_.replica_group_of(device));
    const std::uint32_t backward = ops_.previous_compute(device, g);
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      const double part = buckets[k].ready;
      const std::uint32_t last = traffic_.gradient_ends().last_of(g, buckets[k].stage);
      const bool early = last != kNoOp && (part < 1 || last < backward);
      at[k] = std::max(at[k], early ? part_of(timeline_.op(last), part) : ready);
    }
    all_ready_[group] = std::max(all_ready_[group], ready);
  }

  /// Op g waited for a meeting: an attached REDUCE_GRAD or a STEP for the reduction, or a STEP for
  /// all devices.
  void leave(int device, std::uint32_t g, std::uint32_t group) {
    const double* at = &ready_[group * bucket_times_.most()];
    double& free_at = free_at_[static_cast<std::size_t>(device)];
    const std::uint32_t reduce = reduces_[static_cast<std::size_t>(device)];
    if (ops_[g].kind == OpKind::step && (reduce == kNoOp || !ops_[reduce].has(Op::detached))) {
      free_at = *at;
      return;
    }
    const std::uint32_t replica_group = barriers_.replica_group_of(device);
    const auto& buckets = bucket_times_.buckets_of(replica_group);
    // The replica group's reduction of the update before may still be on its way.
    const bool first = group == barriers_.reductions(replica_group).first;
    const double start = std::max(at[0], first ? 0.0 : ended_[group - 1]);
    double end = start + buckets[0].seconds;
    for (std::size_t k = 1; k < buckets.size(); ++k)
      end = std::max(end, at[k]) + buckets[k].seconds;
    ended_[group] = end;
    timeline_.message(reduce) = {start, end};
    if (ops_[g].kind == OpKind::step) {
      free_at = std::max(free_at, end);
    } else {
      free_at = std::max(free_at, all_ready_[group]);
      reduced_at_ = end;
    }
  }
  double latest() const { return latest_; }

 private:
  struct Lane {
    double bytes_per_s, latency_s, free_at;
  };

  static double part_of(const Span& span, double part) {
    return part < 1 ? span.start_s + part * span.length_s() : span.end_s;
  }

  /// The forward that waits for the weights a device gathers, and when they are there; of the first
  /// two stages of an update, which follow one another, both.
  struct Gathers {
    std::uint32_t op = kNoOp, second = kNoOp;
    double at = 0, second_at = 0;
  };

  double gather_s(int device, std::uint32_t g) const {
    const Gathered all = g == kNoOp ? Gathered{} : gathered_before(costs_, ops_[g]);
    if (all.bytes == 0) return 0;
    return traffic_[traffic_.collective_of(device, {Axis::data, Collective::all_gather})]
        .price()
        .seconds(all.bytes, all.calls);
  }
  void gather_first(int device, std::uint32_t first, double now) {
    if (first == kNoOp) return;
    const std::uint32_t second = gathers_.next(first);
    const double at = now + gather_s(device, first);
    gathering_[static_cast<std::size_t>(device)] = {first, second, at,
                                                    at + gather_s(device, second)};
  }
  /// Returns when forward g, which could start now, has its weights.
  double with_weights(int device, std::uint32_t g, double now) {
    Gathers& here = gathering_[static_cast<std::size_t>(device)];
    const double begin = std::max(now, here.at);
    if (here.second != kNoOp) {
      here = {here.second, kNoOp, here.second_at, 0};
    } else {
      const std::uint32_t next = gathers_.next(g);
      here = {next, kNoOp, begin + gather_s(device, next), 0};
    }
    return begin;
  }

  void hand_norm(std::uint32_t from, std::uint32_t to) {
    const double depart = timeline_.op(from).start_s;
    timeline_.message(to) = {
        depart, depart + traffic_[traffic_.norm_of(table_.device_of(ops_[to]))].latency_s};
  }

  const OpLists& ops_;
  const DependencyTable& table_;
  const Traffic& traffic_;
  Timeline& timeline_;
  Durations duration_;
  BucketTimes bucket_times_;
  std::vector<double> forward_bytes_, backward_bytes_;  // of a message, per sending stage
  const std::vector<StageCosts>& costs_;
  GatherQueue gathers_;
  std::vector<Gathers> gathering_;      // per device
  std::vector<double> free_at_;         // per device
  std::vector<std::uint32_t> reduces_;  // per device: its last REDUCE_GRAD
  Barriers barriers_;
  std::vector<double> ended_;      // per meeting: end of the reduction
  std::vector<double> ready_;      // per meeting and bucket: when the last member had come that far
  std::vector<double> all_ready_;  // per meeting: when the last member had all of its gradients
  double reduced_at_ = 0;          // of the REDUCE_GRAD that runs next
  std::vector<Lane> lanes_;        // per message of the traffic
  double latest_ = 0;
};

template <Transfers transfers, bool disturbed>
Timeline walk_through(const SimulationInput& input) {
  using Clock = ExactClock<transfers, disturbed>;
  Timeline timeline(input.program.ops.size());
  Clock clock(input, timeline);
  Walk<Clock> walk(input.program, input.table, clock);
  if (!walk.run()) throw Deadlock();
  timeline.makespan_s = clock.latest();
  timeline.peak_flows = input.traffic.flows_of_one();
  return timeline;
}

template <Transfers transfers>
Timeline evaluate(const SimulationInput& input) {
  return input.perturbation == nullptr ? walk_through<transfers, false>(input)
                                       : walk_through<transfers, true>(input);
}

}  // namespace

Timeline simulate_exact(const SimulationInput& input) {
  switch (input.program.transfers) {
    case Transfers::free: return evaluate<Transfers::free>(input);
    case Transfers::overlapped: return evaluate<Transfers::overlapped>(input);
    case Transfers::coupled: return evaluate<Transfers::coupled>(input);
    case Transfers::blocking: return evaluate<Transfers::blocking>(input);
  }
  throw InternalBug("unknown transfer semantics");
}

std::string why_not_exact(const SimulationInput& input) {
  if (input.perturbation != nullptr && !input.perturbation->link_share.empty()) {
    return "engine 'exact' cannot represent links whose bandwidth changes (perturbations.links); "
           "use --engine simgrid";
  }
  const std::optional<Contention> shared = input.traffic.contention();
  if (!shared) return "";
  const NetworkLink& link = input.traffic.links()[static_cast<std::size_t>(shared->link)];
  const std::string who = shared->second.empty()
                              ? fmt::format("the flows of {}", shared->first)
                              : fmt::format("{} and {}", shared->first, shared->second);
  return fmt::format(
      "engine 'exact' cannot represent contention: {} share the link '{}' ({}); use --engine "
      "simgrid",
      who, link.name, link.fifo ? "fifo" : "fair");
}

}  // namespace penstock
