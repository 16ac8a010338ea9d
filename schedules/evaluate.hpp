// SPDX-License-Identifier: Apache-2.0
// What a compute order takes when each device runs its list strictly in order and no message is in
// another's way: start = max(end of the device's op before, end of the producer + transfer where
// that is another device). The time source of the searches; the engines in sim/ are the answer to
// a user. An F and a B that run together take what they take one after the other.
#pragma once

#include "schedules/generator.hpp"

namespace penstock {

struct Evaluation {
  double makespan = 0;    ///< end of the last op
  double stage_time = 0;  ///< the longest device, from its first op's start to its last op's end
  std::vector<double> stage_times;  ///< by device
  /// By device, in list order: the most activations held, +activation at F, less what I frees
  /// (activation - activation_after_input), less the rest at W; B frees all.
  std::vector<double> peaks;
  /// The ops that devices are stuck before, when the order can never finish; else empty.
  std::vector<Op> stuck;
};

/// `order`: one list per position of `where`, of one batch, microbatches 0 ... m-1.
Evaluation evaluate(const OpLists& order, const Placement& where, const ScheduleShape& shape);

}  // namespace penstock
