// SPDX-License-Identifier: Apache-2.0
// The search for orders of a linear pipeline (stage s on device s) whose backward is split, for any
// times, transfer and memory limits: zero-bubble schedules (Qi et al., "Zero Bubble Pipeline
// Parallelism", ICLR'24, section 3), and what improves on them.
//
// All of it is linear in ops:
//   1. words in closed form: 1F1B, ZB-H1 and ZB-H2, kept within the limit;
//   2. a simulation in the order of time in which each device takes by a rule what is there
//      (dispatch.hpp), for the rules known to be good, and then for rules changed at random;
//   3. moves of single letters along the critical path (moves.hpp).
// What no order can beat is known (`least_cost`) and ends the search when it is reached; otherwise
// a number of simulated ops does, so the same problem always has the same answer.
#pragma once

#include "schedules/search/problem.hpp"

namespace penstock {

/// How a handcrafted order runs on a device: up to `ahead` forwards before the first I, then F and
/// I in turn, and a W as soon as `behind` more I have run than W.
struct Handcrafted {
  std::uint32_t ahead = 1, behind = 0;
};

/// ZB-H1 with reach 1, ZB-H2 with reach 2: device d runs reach (p-1-d) + 1 forwards ahead, and its
/// W are reach d behind.
inline Handcrafted handcrafted(std::uint32_t depth, std::uint32_t device, std::uint32_t reach) {
  return {reach * (depth - 1 - device) + 1, reach * device};
}

/// Calls put(pass, microbatch) for every op of a device, with W earlier than they should be where
/// an F would not fit without. Precondition: `ahead` activations fit.
template <class Put>
void each_handcrafted(Handcrafted how, std::uint32_t m, const StageTimes& time, double limit,
                      Put put) {
  double held = 0;
  std::uint32_t f = 0, w = 0;
  const auto weight = [&] {
    held -= time.activation_after_input;
    put(kW0, w++);
  };
  const auto fits = [&] { return held + time.activation <= with_slack(limit); };
  for (std::uint32_t i = 0; i < m; ++i) {
    while (f < m && f < i + how.ahead) {
      while (w < i && !fits()) weight();
      if (f > i && !fits()) break;
      held += time.activation;
      put(kF0, f++);
    }
    held -= time.activation - time.activation_after_input;
    put(kI0, i);
    if (i >= w + how.behind) weight();
  }
  while (w < m) weight();
}

/// What no order of the problem can beat.
OrderCost least_cost(const OrderProblem& problem);

inline constexpr std::uint64_t kUsualSteps = 8'000'000;

/// The best order found, never worse than 1F1B with a split backward, ZB-H1 and ZB-H2 where those
/// are kept within the same limits. Precondition: every device can hold one microbatch.
/// `steps`: what to spend beyond that; one is an op replayed, about 5 ns.
Order search_linear(const OrderProblem& problem, std::uint64_t steps = kUsualSteps);

}  // namespace penstock
