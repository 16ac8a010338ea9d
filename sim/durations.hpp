// SPDX-License-Identifier: Apache-2.0
// How long ops take: computing and, where several GPUs share a stage, what they exchange during
// it; and what disturbs them.
//   time(op) = compute(stage, kind, device) + exchange(stage, kind, device)
// An op computes longer where exchanges occupy multiprocessors beside it: as long as they take with
// their links for themselves, and evenly in all that it computes.
// Computing is as program/op_costs.hpp has it. The table has a row for each set of devices that are
// alike.
#pragma once

#include "program/op_costs.hpp"
#include "sim/engine.hpp"

#include <array>
#include <map>
#include <utility>

namespace penstock {

/// Of all that the ranks of a device do together.
using CollectivePrices = ByExchangeAxis<ByCollective<CollectivePrice>>;
inline auto& price_at(auto& prices, const AxisCollective& one) {
  return prices[static_cast<std::size_t>(one.axis)][static_cast<std::size_t>(one.what)];
}

class Durations {
 public:
  explicit Durations(const SimulationInput& input)
      : ops_(input.program.ops), perturbation_(input.perturbation), stages_(input.costs.size()) {
    std::map<std::pair<std::size_t, CollectivePrices>, std::size_t> rows;
    for (std::size_t d = 0; d < static_cast<std::size_t>(ops_.devices()); ++d) {
      CollectivePrices prices;
      for (const Axis axis : kExchangeAxes)
        prices[static_cast<std::size_t>(axis)].fill(
            input.traffic.ranks(axis) == 1 ? CollectivePrice{} : kNotMade);
      for (const AxisCollective& one : input.traffic.collectives())
        price_at(prices, one) =
            input.traffic[input.traffic.collective_of(static_cast<int>(d), one)].price();
      const std::size_t kind = input.unlike == nullptr ? 0 : input.unlike->kind[d];
      const auto [row, added] = rows.try_emplace({kind, prices}, rows.size());
      first_.push_back(row->second * stages_);
      if (added)
        add_row(input.unlike == nullptr ? input.costs : input.unlike->costs[kind], prices,
                input.program);
      add_pairs(input, static_cast<int>(d), prices);
    }
  }

  /// Undisturbed and with its links for itself.
  double operator()(const Op& op, int device, std::uint32_t g) const {
    const Time time = time_of(op, device, g);
    return time.compute_s + time.exchange_s;
  }
  double exchange_s(const Op& op, int device, std::uint32_t g) const {
    return time_of(op, device, g).exchange_s;
  }
  /// Returns what an op takes longer than it would compute without exchanges.
  double beyond_compute_s(const Op& op, int device, std::uint32_t g) const {
    const Time time = time_of(op, device, g);
    return time.exchange_s + time.slowed_s;
  }
  /// What an op computes by itself, whatever runs together with it.
  double own_compute_s(const Op& op, int device) const { return alone(op, device).compute_s; }
  /// Returns the same without exchanges beside it, which slow it.
  double free_compute_s(const Op& op, int device) const {
    const Time time = alone(op, device);
    return time.compute_s - time.slowed_s;
  }

  /// End of op g of a device that starts then, its links for itself. Only computing is disturbed.
  double end_of(double start_s, const Op& op, int device, std::uint32_t g) const {
    return end_of_part(start_s, op, device, g, 1) + time_of(op, device, g).exchange_s;
  }
  /// End of a part of its computing. Gradient reductions are never disturbed.
  double end_of_part(double start_s, const Op& op, int device, std::uint32_t g, double part) const {
    const double cost_s = part * time_of(op, device, g).compute_s;
    if (perturbation_ == nullptr || op.kind == OpKind::reduce_grad) return start_s + cost_s;
    return perturbation_->end_of(start_s, cost_s, static_cast<std::uint32_t>(device),
                                 g - ops_.begin(device));
  }

 private:
  static constexpr CollectivePrice kNotMade{-1, 0};
  struct Time {
    double compute_s, exchange_s;
    double slowed_s = 0;  // of compute_s: by exchanges beside it
  };
  struct OfPass {
    std::array<Time, kOpKinds> kinds;
    Time gathering;  // F that gathers new weights
  };
  struct OfStage {
    OfPass usual, stored;  // stored: of microbatches of which everything is
    double saving_s;
    const std::uint32_t* drawn = nullptr;  // by microbatch: one of the following; null: alike
    std::vector<OfPass> passes{};
  };

  /// Adds what pairs of a device exchange where one computes while the other one's tokens go to
  /// their experts.
  void add_pairs(const SimulationInput& input, int device, const CollectivePrices& prices) {
    const std::vector<AxisCollective>& made = input.traffic.collectives();
    if (std::ranges::find(made, Axis::expert, &AxisCollective::axis) == made.end()) return;
    for (std::uint32_t g = ops_.begin(device); g + 1 < ops_.end(device); ++g) {
      if (!ops_[g].has(Op::paired)) continue;
      const Op &op = ops_[g], &other = ops_[g + 1];
      const auto [pair, added] = pairs_.try_emplace(pair_of(device, g));
      if (!added) continue;
      const std::vector<StageCosts>& costs =
          input.unlike == nullptr
              ? input.costs
              : input.unlike->costs[input.unlike->kind[static_cast<std::size_t>(device)]];
      const double a_s = free_compute_s(op, device), b_s = free_compute_s(other, device);
      const double both_s = a_s + b_s;
      const PassCosts& pass = costs[op.stage].pass(op);
      const bool gathers = op.has(Op::gathers) && pass.gathering;
      const Recipe recipe =
          joined(gathers ? pass.gathering->recipe : pass[op].recipe,
                 both_s > 0 ? a_s / both_s : 0.5, costs[other.stage].pass(other)[other].recipe);
      pair->second = beside(recipe, both_s, [&](const Segment& segment) {
        return price_at(prices, {segment.axis, segment.what}).seconds(segment);
      });
    }
  }

  /// Names a pair by what it costs; pairs that are alike have the same name.
  using Pair = std::array<std::size_t, 6>;
  Pair pair_of(int device, std::uint32_t g) const {
    const Op &op = ops_[g], &other = ops_[g + 1];
    const std::size_t first = first_[static_cast<std::size_t>(device)];
    return {first + op.stage,
            first + other.stage,
            static_cast<std::size_t>(other.kind),
            (op.has(Op::stored) ? 1U : 0U) + (other.has(Op::stored) ? 2U : 0U) +
                (op.has(Op::gathers) ? 4U : 0U),
            drawn_of(op, device),
            drawn_of(other, device)};
  }
  std::size_t drawn_of(const Op& op, int device) const {
    const OfStage& stage = row(op, device);
    return stage.drawn == nullptr ? 0 : stage.drawn[op.microbatch];
  }

  void add_row(const std::vector<StageCosts>& costs, const CollectivePrices& prices,
               const Program& program) {
    const Placement& placement = program.placement;
    for (std::uint32_t s = 0; s < costs.size(); ++s) {
      const StageCosts& c = costs[s];
      OfStage& row = times_.emplace_back();
      row.saving_s = c.overlap_saving_s;
      const auto price = [&](const Segment& segment) {
        const CollectivePrice& one = price_at(prices, {segment.axis, segment.what});
        invariant(one != kNotMade, "a collective that the traffic was not made with");
        return one.seconds(segment);
      };
      if (c.drawn) {
        invariant(c.drawn->times.size() >= program.microbatches(), "microbatches without costs");
        row.drawn = c.drawn->times.data();
        for (const PassCosts& pass : c.drawn->passes) row.passes.push_back(of_pass(pass, price));
      }
      for (const std::uint8_t flags : {std::uint8_t{0}, std::uint8_t{Op::stored}}) {
        OfPass& times = flags == 0 ? row.usual : row.stored;
        const auto time_of = [&](const Op& op) {
          const Time time{is_compute(op.kind) ? 0 : op_seconds(placement, costs, op), 0};
          if (!is_compute(op.kind)) return time;
          return time_of_cost(c.pass((flags & Op::stored) != 0)[op], price);
        };
        Op op{0, static_cast<std::uint16_t>(s), OpKind::forward, flags};
        for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
          op.kind = static_cast<OpKind>(kind);
          times.kinds[kind] = time_of(op);
        }
        op.kind = OpKind::forward;
        op.flags |= Op::gathers;
        times.gathering = time_of(op);
        if (!c.stored) {
          row.stored = row.usual;
          break;
        }
      }
    }
  }

  template <class Price>
  static Time time_of_cost(const OpCost& cost, const Price& price) {
    return beside(cost.recipe, cost.seconds, price);
  }
  /// Returns the times of a recipe that computes so long without exchanges.
  static Time beside(const Recipe& recipe, double alone_s, const ExchangeTime& price) {
    const double compute_s = beside_exchanges_s(recipe, alone_s, price);
    return {compute_s, exposed_s(recipe, compute_s, price), compute_s - alone_s};
  }
  /// What the ops of microbatches with these costs take; steps and reductions have none.
  template <class Price>
  static OfPass of_pass(const PassCosts& pass, const Price& price) {
    OfPass times{};
    for (std::size_t kind = 0; kind < pass.ops.size(); ++kind)
      times.kinds[kind] = time_of_cost(pass.ops[kind], price);
    times.gathering = pass.gathering ? time_of_cost(*pass.gathering, price)
                                     : times.kinds[static_cast<std::size_t>(OpKind::forward)];
    return times;
  }

  Time time_of(const Op& op, int device, std::uint32_t g) const {
    if (op.flags < Op::paired) return alone(op, device);
    Time time = alone(op, device);
    if (!op.has(Op::paired)) return time;
    const Op& backward = ops_[g + 1];
    const Time other = alone(backward, device);
    const double saving_s = pair_saving_s(row(op, device).saving_s, row(backward, device).saving_s);
    const double compute_s = time.compute_s + other.compute_s - saving_s;
    const double slowed_s = time.slowed_s + other.slowed_s;
    if (const auto merged = pairs_.find(pair_of(device, g)); merged != pairs_.end()) {
      const Time& beside = merged->second;
      return {compute_s - slowed_s + beside.slowed_s, beside.exchange_s, beside.slowed_s};
    }
    return {compute_s, time.exchange_s + other.exchange_s, slowed_s};
  }
  Time alone(const Op& op, int device) const {
    const OfStage& stage = row(op, device);
    const OfPass& pass = stage.drawn != nullptr && is_compute(op.kind)
                             ? stage.passes[stage.drawn[op.microbatch]]
                         : op.has(Op::stored) ? stage.stored
                                              : stage.usual;
    return op.has(Op::gathers) ? pass.gathering : pass.kinds[static_cast<std::size_t>(op.kind)];
  }
  const OfStage& row(const Op& op, int device) const {
    return times_[first_[static_cast<std::size_t>(device)] + op.stage];
  }

  const OpLists& ops_;
  const Perturbation* perturbation_;
  std::size_t stages_;
  std::vector<std::size_t> first_;  // per device: its row
  std::vector<OfStage> times_;      // [row][stage]
  std::map<Pair, Time> pairs_;      // merged; empty: nothing is
};

}  // namespace penstock
