// SPDX-License-Identifier: Apache-2.0
// Why a predicted iteration time differs from the measured one: measured pieces are swapped into
// the prediction one after the other, and the schedule is evaluated again after each.
//
//   predicted -> + measured op times (median per stage and kind), without what the ranks of a
//                device exchange inside of them where that was recorded
//             -> + measured exchanges inside of ops
//             -> + measured message times (median per channel)
//             -> + measured delays of departures (from where the message could leave)
//             -> + measured launch overhead (from where an op could start) -> measured
//
// Each step's change is one cause; what is left is the order of ops and jitter. The causes add up
// to predicted - measured: negative ones made the prediction too fast.
#pragma once

#include "sim/engine.hpp"
#include "traces/recording.hpp"

#include <span>

namespace penstock {

struct Causes {
  double op_time_s = 0;
  double exchange_s = 0;
  double transfer_time_s = 0;
  double wait_s = 0;
  double launch_overhead_s = 0;
  double rest_s = 0;
  /// Whether links are shared; the replay then uses every channel's median message time.
  bool links_shared = false;

  double sum_s() const {
    return op_time_s + exchange_s + transfer_time_s + wait_s + launch_overhead_s + rest_s;
  }
};

/// Returns the causes of the difference between the iteration times `predicted_s` and `measured_s`.
Causes attribute_error(const SimulationInput& input, const Timeline& predicted,
                       std::span<const RecordedTimeline> runs, double predicted_s,
                       double measured_s);

}  // namespace penstock
