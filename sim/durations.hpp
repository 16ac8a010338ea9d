// How long ops take: computing and, where several GPUs share a stage, what they exchange during
// it; and what disturbs them.
//   time(op) = compute(stage, kind, device) + exchange(stage, kind, device)
// The table has a row for each set of devices that are alike.
#pragma once

#include "sim/engine.hpp"

#include <map>
#include <tuple>

namespace penstock {

class Durations {
 public:
  explicit Durations(const SimulationInput& input)
      : ops_(input.program.ops), perturbation_(input.perturbation), stages_(input.costs.size()) {
    std::map<std::tuple<std::size_t, double, double>, std::size_t> rows;
    const auto& exchanges = input.channels.exchanges();
    for (std::size_t d = 0; d < static_cast<std::size_t>(ops_.devices()); ++d) {
      const Exchange exchange = exchanges.empty() ? Exchange{} : exchanges[d];
      const std::size_t kind = input.unlike == nullptr ? 0 : input.unlike->kind[d];
      const auto [row, added] =
          rows.try_emplace({kind, exchange.ring.latency_s, exchange.s_per_byte}, rows.size());
      first_.push_back(row->second * stages_ * kKinds);
      if (added)
        add_row(input.unlike == nullptr ? input.costs : input.unlike->costs[kind], exchange);
    }
  }

  /// Undisturbed and with its links for itself.
  double operator()(const Op& op, int device) const {
    const Time& time = at(op, device);
    return time.compute_s + time.exchange_s;
  }
  double exchange_s(const Op& op, int device) const { return at(op, device).exchange_s; }

  /// End of op g of a device that starts then, its links for itself. Only computing is disturbed.
  double end_of(double start_s, const Op& op, int device, std::uint32_t g) const {
    return end_of_part(start_s, op, device, g, 1) + at(op, device).exchange_s;
  }
  /// End of a part of its computing. Gradient reductions are never disturbed.
  double end_of_part(double start_s, const Op& op, int device, std::uint32_t g, double part) const {
    const double cost_s = part * at(op, device).compute_s;
    if (perturbation_ == nullptr || op.kind == OpKind::reduce_grad) return start_s + cost_s;
    return perturbation_->end_of(start_s, cost_s, static_cast<std::uint32_t>(device),
                                 g - ops_.begin(device));
  }

 private:
  struct Time {
    double compute_s, exchange_s;
  };
  static constexpr std::size_t kKinds = 6;

  void add_row(const std::vector<StageCosts>& costs, const Exchange& exchange) {
    for (const StageCosts& c : costs) {
      for (std::size_t kind = 0; kind < kKinds; ++kind) {
        const bool exchanges = kind < c.tensor.size();
        times_.push_back({c.duration_s(static_cast<OpKind>(kind)),
                          exchanges ? exchange.alone_s(c.tensor[kind]) : 0});
      }
    }
  }
  const Time& at(const Op& op, int device) const {
    return times_[first_[static_cast<std::size_t>(device)] + std::size_t{op.stage} * kKinds +
                  static_cast<std::size_t>(op.kind)];
  }

  const OpLists& ops_;
  const Perturbation* perturbation_;
  std::size_t stages_;
  std::vector<std::size_t> first_;  // per device: its row
  std::vector<Time> times_;         // [row][stage][kind]
};

}  // namespace penstock
