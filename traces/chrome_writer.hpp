// SPDX-License-Identifier: Apache-2.0
// Timelines as Chrome Trace Event JSON, streamed: opens in ui.perfetto.dev and chrome://tracing.
//
// One process per device; lanes: compute, bubble (why the device waits), and per channel sends and
// receives, joined by flow arrows, and reductions that run beside the compute. Times are integer
// nanoseconds printed as microseconds. Messages that overlap (latency is pipelined) get lanes of
// their own, because viewers drop slices that overlap on one. Memory is a counter per device with a
// series per owner. See docs/trace-format.md.
#pragma once

#include "traces/memory.hpp"
#include "traces/metrics.hpp"

#include <functional>
#include <span>
#include <string>
#include <utility>

namespace penstock {

struct ChromeTrace {
  TimelineView view;
  MemoryInput memory;
  std::function<std::uint32_t(const Op&)> weight_version;
  std::vector<std::pair<std::string, std::string>> other_data;  ///< scenario, schedule, engine ...
  std::string prefix = {};  ///< of its processes' names: "predicted " makes "predicted device 0"
  bool memory_counters = true;  ///< false: nothing is known about memory over time
  TimeWindow window = {};       ///< what lies outside of it is left out
};

/// Writes the trace to `path` (gzip when it ends in `.gz`). Throws SystemError.
void write_chrome_trace(const ChromeTrace& trace, const std::string& path);

/// Several timelines in one file, each with processes of its own: device 0 of all of them, then
/// device 1 ... `other_data` is that of the first. Precondition: at least one.
void write_chrome_traces(std::span<const ChromeTrace> traces, const std::string& path);

}  // namespace penstock
