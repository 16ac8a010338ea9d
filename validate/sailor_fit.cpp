#include "validate/sailor_fit.hpp"

#include "validate/least_squares.hpp"

#include <array>

namespace penstock {
namespace {

struct Fitted {
  double SailorParameters::*part;
  FitRange range;
};
constexpr std::array kFitted = {
    Fitted{&SailorParameters::message_latency_s, {5e-4, 1e-5, 5e-3}},
    Fitted{&SailorParameters::message_share, {0.7, 0.1, 1}},
    Fitted{&SailorParameters::reduction_s, {5e-3, 1e-4, 0.1}},
    Fitted{&SailorParameters::speed_spread, {0.01, 1e-4, 0.1}},
    Fitted{&SailorParameters::context_bytes, {4e9, 5e8, 1e10}},
};

SailorParameters with(const SailorParameters& start, const std::vector<double>& values) {
  SailorParameters out = start;
  for (std::size_t i = 0; i < kFitted.size(); ++i) out.*kFitted[i].part = values[i];
  return out;
}

std::vector<double> residuals(const std::vector<SailorRow>& rows,
                              const SailorParameters& parameters) {
  std::vector<double> out;
  for (const auto& [plan, data] : rows) {
    const SailorPrediction p = predict(plan, *data, parameters);
    if (plan.max_bytes)
      out.push_back(static_cast<double>(p.max_bytes) / static_cast<double>(*plan.max_bytes) - 1);
    if (!plan.measured_s) continue;
    out.push_back(p.iteration_s / *plan.measured_s - 1);
    if (plan.reduction_s) out.push_back((p.reduction_s - *plan.reduction_s) / *plan.measured_s);
  }
  return out;
}

}  // namespace

SailorParameters fit_sailor(const std::vector<SailorRow>& rows, const SailorParameters& start) {
  std::vector<FitRange> ranges;
  std::vector<double> first;
  for (const Fitted& fitted : kFitted) {
    ranges.push_back(fitted.range);
    first.push_back(fitted.range.start);
  }
  const FitOptions options{.scale = 0.02, .prior = 0.003, .steps = 60};
  return with(start, fit_least_squares(
                         [&](const std::vector<double>& values) {
                           return residuals(rows, with(start, values));
                         },
                         ranges, first, options));
}

}  // namespace penstock
