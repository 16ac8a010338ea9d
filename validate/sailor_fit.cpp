#include "validate/sailor_fit.hpp"

#include <array>
#include <cmath>

namespace penstock {
namespace {

/// What is fitted. Each is positive, so the search moves its logarithm.
constexpr std::array kFitted = {&SailorParameters::message_latency_s,
                                &SailorParameters::message_share, &SailorParameters::reduction_s,
                                &SailorParameters::speed_spread, &SailorParameters::context_bytes};

double loss(double error) {
  constexpr double kScale = 0.02;
  return std::sqrt(1 + error * error / (kScale * kScale));
}

double total_loss(const std::vector<SailorRow>& rows, const SailorParameters& parameters) {
  double sum = 0;
  for (const SailorRow& row : rows) {
    const SailorPrediction p = predict(row.plan, *row.data, parameters);
    if (row.plan.max_bytes) {
      const auto measured = static_cast<double>(*row.plan.max_bytes);
      sum += loss(static_cast<double>(p.max_bytes) / measured - 1);
    }
    if (!row.plan.measured_s) continue;
    sum += loss(p.iteration_s / *row.plan.measured_s - 1);
    if (row.plan.reduction_s)
      sum += loss((p.reduction_s - *row.plan.reduction_s) / *row.plan.measured_s);
  }
  return sum;
}

}  // namespace

SailorParameters fit_sailor(const std::vector<SailorRow>& rows, const SailorParameters& start) {
  SailorParameters best = start;
  double least = total_loss(rows, best);
  for (double step = 0.4; step > 1e-3;) {
    bool better = false;
    for (const auto part : kFitted) {
      for (const double factor : {std::exp(step), std::exp(-step)}) {
        SailorParameters trial = best;
        trial.*part *= factor;
        const double value = total_loss(rows, trial);
        if (value >= least) continue;
        least = value;
        best = trial;
        better = true;
        break;
      }
    }
    if (!better) step /= 2;
  }
  return best;
}

}  // namespace penstock
