// Clocks: processor time of this process, for the rates a result states about itself; and time that
// only goes on.
#pragma once

namespace penstock {

/// CPU seconds (user and system, all threads) this process has used so far.
double process_cpu_seconds();

/// Seconds of this machine's steady clock: the same for all processes, from an unknown beginning.
double steady_s();

}  // namespace penstock
