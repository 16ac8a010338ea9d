// SPDX-License-Identifier: Apache-2.0
// What PipeMare (Yang, Zhang, Li, Re, Aberger, De Sa, MLSys'21) does against stale weights, as
// formulas. Stages s = 0 ... p-1 (the paper's i = s + 1), N microbatches per update; delays count
// updates. A backward uses the weights as they are (tau_bkwd = 0), a forward those of
//   tau_fwd(s) = (2 (p-1-s) + 1) / N     updates ago.
#pragma once

#include <cstdint>

namespace penstock::delayed {

/// The paper's D, of which the correction keeps a share over one delay; about e^-2.
inline constexpr double kDecay = 0.135;

/// Slots, and so microbatches, between F and B of a microbatch on a stage: 2 (p-1-s) + 1.
std::uint32_t slots(std::uint32_t depth, std::uint32_t stage);

/// tau_fwd, updates between the weights of a forward and those its gradient changes.
double delay(std::uint32_t depth, std::uint32_t stage, std::uint32_t per_update);

/// T1, learning-rate rescheduling: what update k multiplies the learning rate of a stage by,
/// tau^-p_k with p_k = 1 - min(k/K, 1); after K updates no more.
double learning_rate_factor(double delay, double update, double rescheduled_updates);

/// T2, discrepancy correction: gamma = D^(1 / (tau_fwd - tau_bkwd)), the share of the average
/// delta(t+1) = gamma delta(t) + (1 - gamma) (w(t+1) - w(t)) kept per update. The backward uses
/// w - (tau_fwd - tau_bkwd) delta. 0 without a delay.
double correction_decay(double delay, double decay = kDecay);

/// Largest learning rate with which a quadratic of this curvature stays stable:
/// (2 / lambda) sin(pi / (4 tau + 2)).
double stable_learning_rate(double curvature, double delay);

/// T2 in one buffer: u = w - tau delta, kept instead of delta, is after an update from w to w'
///   u' = keep u + before w + after w'
/// with keep = gamma, before = tau (1 - gamma) - gamma, after = 1 - tau (1 - gamma).
struct Correction {
  double keep, before, after;
};
Correction correction(double delay);

}  // namespace penstock::delayed
