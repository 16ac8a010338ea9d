// SPDX-License-Identifier: Apache-2.0
// One clock for several GPUs and processes.
//
// Per GPU: a kernel answers pings through mapped host memory with %globaltimer; the fastest of
// 1,000 round trips gives its distance from the host's steady clock to within half that trip. A
// stamp kernel before and one after an event then place the event on %globaltimer, and the group's
// offset places the host's clock on rank 0's. Drift (some ppm) is not corrected: at most 10 us in a
// second-long run. With one GPU in one process none of this is needed: its first event is time 0.
#pragma once

#include "hw/cuda/events.hpp"

namespace penstock::cuda {

struct AlignedEvent {
  StampPtr event;                   ///< fired
  double steady_s = 0;              ///< when, on the host's steady clock
  unsigned long long timer_ns = 0;  ///< when, on the GPU's %globaltimer
  double uncertainty_s = 0;
};

/// Records an event on the idle GPU and says when that was.
AlignedEvent align_clocks(int gpu, cudaStream_t stream, const std::shared_ptr<EventPool>& events,
                          const RunControl& control);

/// By how much %globaltimer goes on at a time, nanoseconds: the greatest common divisor of steps
/// seen. The GPU is idle.
unsigned long long measure_tick_ns(int gpu, cudaStream_t stream);

}  // namespace penstock::cuda
