// SPDX-License-Identifier: Apache-2.0
// Communication of a run, in all and exposed, by dimension; computed from its Timeline.
//
// Times are device-seconds, summed over the devices that a communication concerns:
//   pipeline  total   = sum over messages of (arrival - departure), at the receiver, and a second
//                       time at the sender where it is held (blocking, coupled)
//             exposed = time a device stands idle while the message its next op waits for is under
//                       way, or its own send that holds it: the length of
//                       [device free, start of the next op] within the union of the two messages
//   data      total   = sum over devices and updates of the length of the gradient reduction, from
//                       the start of its first part to the end of its last
//             exposed = time a device stands idle in front of its STEP (detached reductions) or
//                       inside of and in front of its REDUCE_GRAD while that reduction is under
//                       way and no send of its own holds it
//   exchanges inside of ops (inner axes of the mesh, the host), together
//             exposed = sum over ops of the length of the op less its computing
//             total   = of collectives that the computing waits for, the same: each layer waits for
//                       its all-reduces (Shoeybi et al., 2019, "Megatron-LM", section 3), or for
//                       its all-gathers and reduce-scatters (Korthikanti et al., MLSys'23)
// so 0 <= exposed <= total. A message that waits for its turn (behind the one before on its
// channel, in line at a FIFO link) has not departed: the report's transfer_wait counts that time,
// these do not. Bytes are those that all GPUs send, those of a reduction as its algorithm does.
#pragma once

#include "sim/engine.hpp"

namespace penstock {

struct Communication {
  double total_s = 0;
  double exposed_s = 0;  ///< at most total_s
  double bytes = 0;
};

struct CommunicationByDimension {
  Communication pipeline, data;
  ByExchangeAxis<Communication> inner;
  /// The axes of exchanges inside of ops that are told: those of ranks, and others that are used.
  std::vector<Axis> axes() const {
    std::vector<Axis> told;
    for (const Axis axis : kExchangeAxes)
      if (axis == Axis::tensor || axis == Axis::context ||
          inner[static_cast<std::size_t>(axis)].bytes > 0)
        told.push_back(axis);
    return told;
  }
  std::vector<ByExchangeAxis<double>> exposed_of_device;  ///< seconds, of exchanges inside of ops
};

/// Sums of a whole run, of a stalled one until then.
CommunicationByDimension communication(const SimulationInput& input, const Timeline& timeline);

}  // namespace penstock
