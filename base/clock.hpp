// Processor time of this process, for the rates a result states about itself.
#pragma once

namespace penstock {

/// CPU seconds (user and system, all threads) this process has used so far.
double process_cpu_seconds();

}  // namespace penstock
