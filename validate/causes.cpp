// SPDX-License-Identifier: Apache-2.0
#include "validate/causes.hpp"

#include "validate/iterations.hpp"
#include "base/statistics.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

double& duration(StageCosts& costs, OpKind kind) {
  switch (kind) {
    case OpKind::reduce_grad: return costs.reduce_grad_s;
    case OpKind::step: return costs.step_s;
    default: return costs[kind].seconds;
  }
}

/// Values by (stage, kind) or by channel.
using Groups = std::vector<std::vector<double>>;

std::size_t group_of(const Op& op) {
  return std::size_t{op.stage} * kOpKinds + static_cast<std::size_t>(op.kind);
}

class Attribution {
 public:
  Attribution(const SimulationInput& input, const Timeline& predicted,
              std::span<const RecordedTimeline> runs)
      : program_(input.program),
        table_(input.table),
        predicted_(predicted),
        runs_(runs),
        steady_(compared_updates(input.program)),
        costs_(input.costs),
        traffic_(input.traffic),
        shared_(!why_not_exact(input).empty()) {
    if (program_.transfers == Transfers::free) use_free_channels();
    if (shared_) use_private_channels();
  }

  Causes attribute(double predicted_s, double measured_s) {
    Causes causes;
    causes.links_shared = shared_;
    const double replayed = shared_ ? evaluate() : predicted_s;
    double before = replayed;
    const auto swap = [&](void (Attribution::*piece)()) {
      (this->*piece)();
      const double after = evaluate();
      return std::exchange(before, after) - after;
    };
    causes.op_time_s = swap(&Attribution::use_op_times);
    causes.exchange_s = swap(&Attribution::use_exchanges);
    causes.transfer_time_s = swap(&Attribution::use_message_times);
    causes.wait_s = swap(&Attribution::use_departures);
    causes.launch_overhead_s = swap(&Attribution::use_launch_overhead);
    causes.rest_s = before - measured_s + (predicted_s - replayed);
    return causes;
  }

 private:
  double evaluate() const {
    const Timeline timeline = simulate_exact({program_, table_, costs_, traffic_});
    return quantile(iteration_samples(program_, timeline, steady_), 0.5);
  }

  bool counts(const Timeline& timeline, std::uint32_t g) const {
    return happened(timeline, g) && steady_.contains(update_of(program_, program_.ops[g]));
  }
  std::uint32_t channel_of(std::uint32_t receiver) const {
    return traffic_.message_of(program_.ops[table_.producer(program_.ops[receiver])]);
  }
  double occupied_s(const Op& sender) const {
    return static_cast<double>(message_bytes(costs_, sender)) /
           traffic_.messages()[traffic_.message_of(sender)].bytes_per_s;
  }

  /// Calls `each(timeline, g)` for the measured messages that op g waited for.
  template <class Each>
  void for_each_message(Each&& each) const {
    for (const RecordedTimeline& run : runs_) {
      for (std::uint32_t g = 0; g < program_.ops.size(); ++g) {
        if (program_.ops[g].has(Op::receives) && counts(run.timeline, g) &&
            run.timeline.has_message(g))
          each(run.timeline, g);
      }
    }
  }

  /// Overlapped messages that cost nothing: free ones would ignore what was measured of them.
  void use_free_channels() {
    program_.transfers = Transfers::overlapped;
    for (std::uint32_t c = 0; c < traffic_.messages().size(); ++c)
      traffic_.set_private(c, 0, kUnlimited);
  }

  void use_private_channels() {
    Groups lengths(traffic_.messages().size());
    for (std::uint32_t g = 0; g < program_.ops.size(); ++g) {
      if (program_.ops[g].has(Op::receives))
        lengths[channel_of(g)].push_back(predicted_.message(g).length_s());
    }
    for (std::uint32_t c = 0; c < lengths.size(); ++c) {
      if (!lengths[c].empty()) traffic_.set_private(c, quantile(lengths[c], 0.5), kUnlimited);
    }
  }

  void use_op_times() { replace_op_times(false); }
  void use_exchanges() { replace_op_times(true); }

  /// Without what was exchanged inside of ops, the exchanges stay those that are predicted; they
  /// become a part of the op where they are measured, or were not recorded apart.
  void replace_op_times(bool with_exchanges) {
    Groups times(costs_.size() * kOpKinds);
    std::vector<char> apart(times.size());
    for (const RecordedTimeline& run : runs_) {
      for (std::uint32_t g = 0; g < program_.ops.size(); ++g) {
        if (!counts(run.timeline, g)) continue;
        const double exchanged_s = run.exchange_s.empty() ? 0 : run.exchange_s[g];
        const std::size_t group = group_of(program_.ops[g]);
        times[group].push_back(run.timeline.op(g).length_s() - (with_exchanges ? 0 : exchanged_s));
        if (exchanged_s > 0) apart[group] = 1;
      }
    }
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i].empty()) continue;
      StageCosts& costs = costs_[i / kOpKinds];
      const auto kind = static_cast<OpKind>(i % kOpKinds);
      duration(costs, kind) = quantile(times[i], 0.5);
      if (is_compute(kind) && (with_exchanges || apart[i] == 0)) costs[kind].recipe = {};
    }
  }

  /// Where a message's time was modelled, latency and occupancy grow by the same ratio.
  void use_message_times() {
    Groups ratios(traffic_.messages().size()), lengths(traffic_.messages().size());
    for_each_message([&](const Timeline& timeline, std::uint32_t g) {
      const double modelled = predicted_.message(g).length_s();
      const double measured = timeline.message(g).length_s();
      const bool scales = modelled > 0 && !shared_;
      (scales ? ratios : lengths)[channel_of(g)].push_back(scales ? measured / modelled : measured);
    });
    for (std::uint32_t c = 0; c < traffic_.messages().size(); ++c) {
      const Transfer& message = traffic_.messages()[c];
      if (!ratios[c].empty()) {
        const double ratio = quantile(ratios[c], 0.5);
        if (ratio > 0)
          traffic_.set_private(c, message.latency_s * ratio, message.bytes_per_s / ratio);
      } else if (!lengths[c].empty()) {
        traffic_.set_private(c, quantile(lengths[c], 0.5), kUnlimited);
      }
    }
  }

  void use_departures() {
    Groups delays(traffic_.messages().size());
    for (const RecordedTimeline& run : runs_) collect_departures(run.timeline, delays);
    for (std::uint32_t c = 0; c < delays.size(); ++c) {
      if (delays[c].empty()) continue;
      const Transfer& message = traffic_.messages()[c];
      traffic_.set_private(c, message.latency_s + quantile(delays[c], 0.5), message.bytes_per_s);
    }
  }

  /// How much later than it could each message left.
  void collect_departures(const Timeline& timeline, Groups& delays) const {
    std::vector<double> free_at(traffic_.messages().size(), 0.0);
    for (std::uint32_t from = 0; from < program_.ops.size(); ++from) {
      const Op& op = program_.ops[from];
      if (!op.has(Op::sends)) continue;
      const std::uint32_t to = table_.consumer(op);
      if (!happened(timeline, from) || !timeline.has_message(to)) continue;
      const std::uint32_t c = traffic_.message_of(op);
      double ready = timeline.op(from).end_s;
      if (program_.transfers == Transfers::coupled) {
        const int receiver = table_.consumer_device(op);
        const std::uint32_t before = program_.ops.previous_compute(receiver, to);
        if (before != kNoOp) ready = std::max(ready, timeline.op(before).end_s);
      } else {
        ready = std::max(ready, free_at[c]);
      }
      const double departed = timeline.message(to).start_s;
      free_at[c] = departed + occupied_s(op);
      if (counts(timeline, to)) delays[c].push_back(std::max(0.0, departed - ready));
    }
  }

  void use_launch_overhead() {
    Groups gaps(costs_.size() * kOpKinds);
    for (const RecordedTimeline& run : runs_) {
      for (int d = 0; d < program_.ops.devices(); ++d) collect_gaps(run.timeline, d, gaps);
    }
    for (std::size_t i = 0; i < gaps.size(); ++i) {
      if (gaps[i].empty()) continue;
      duration(costs_[i / kOpKinds], static_cast<OpKind>(i % kOpKinds)) += quantile(gaps[i], 0.5);
    }
  }

  /// How much later than it could each op started; ops that wait for other devices are left out.
  void collect_gaps(const Timeline& timeline, int device, Groups& gaps) const {
    double ready = 0;
    for (std::uint32_t g = program_.ops.begin(device); g < program_.ops.end(device); ++g) {
      const Op& op = program_.ops[g];
      if (!happened(timeline, g)) continue;
      const bool meets = op.kind == OpKind::reduce_grad ||
                         (op.kind == OpKind::step && program_.step_sync != StepSync::device);
      const bool known = !op.has(Op::receives) || timeline.has_message(g);
      if (op.has(Op::receives)) ready = std::max(ready, timeline.message(g).end_s);
      const Span& span = timeline.op(g);
      if (counts(timeline, g) && known && !meets)
        gaps[group_of(op)].push_back(std::max(0.0, span.start_s - ready));
      ready = span.end_s;
      if (holds_sender(program_.transfers) && op.has(Op::sends))
        ready = std::max(ready, timeline.message(table_.consumer(op)).end_s);
    }
  }

  Program program_;
  const DependencyTable& table_;
  const Timeline& predicted_;
  std::span<const RecordedTimeline> runs_;
  SteadyUpdates steady_;
  std::vector<StageCosts> costs_;
  Traffic traffic_;
  bool shared_;
};

}  // namespace

Causes attribute_error(const SimulationInput& input, const Timeline& predicted,
                       std::span<const RecordedTimeline> runs, double predicted_s,
                       double measured_s) {
  return Attribution(input, predicted, runs).attribute(predicted_s, measured_s);
}

}  // namespace penstock
