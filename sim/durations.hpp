// When ops end: their costs as a flat table [stage][kind], seconds, and what disturbs them.
#pragma once

#include "sim/engine.hpp"

namespace penstock {

class Durations {
 public:
  explicit Durations(const SimulationInput& input)
      : ops_(input.program.ops), perturbation_(input.perturbation) {
    for (const StageCosts& c : input.costs) {
      for (int kind = 0; kind < kKinds; ++kind)
        seconds_.push_back(c.duration_s(static_cast<OpKind>(kind)));
    }
  }
  /// Undisturbed.
  double operator()(const Op& op) const {
    return seconds_[std::size_t{op.stage} * kKinds + static_cast<std::size_t>(op.kind)];
  }
  /// End of op g of a device that starts then. Gradient reductions are never disturbed.
  double end_of(double start_s, const Op& op, int device, std::uint32_t g) const {
    if (perturbation_ == nullptr || op.kind == OpKind::reduce_grad) return start_s + (*this)(op);
    return perturbation_->end_of(start_s, (*this)(op), static_cast<std::uint32_t>(device),
                                 g - ops_.begin(device));
  }

 private:
  static constexpr int kKinds = 6;
  const OpLists& ops_;
  const Perturbation* perturbation_;
  std::vector<double> seconds_;
};

}  // namespace penstock
