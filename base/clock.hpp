// SPDX-License-Identifier: Apache-2.0
// Clocks: processor time, for the rates a result states about itself; and time that
// only goes on.
#pragma once

namespace penstock {

/// CPU seconds (user and system, all threads) that this process has used so far, and those of its
/// children that have ended.
double process_cpu_seconds();

/// Seconds of this machine's steady clock: the same for all processes, from an unknown beginning.
double steady_s();

}  // namespace penstock
