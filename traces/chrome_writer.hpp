// SPDX-License-Identifier: Apache-2.0
// Writes timelines as Chrome Trace Event JSON, which ui.perfetto.dev and chrome://tracing open.
//
// A device is a process. It has lanes for computing, for bubbles (why the device waits), for the
// sends and receives of each channel, joined by flow arrows, and for reductions beside the compute.
// Times are integer nanoseconds printed as microseconds. Messages that overlap (latency is
// pipelined) have lanes of their own, because viewers drop slices that overlap in one lane. Memory
// is a counter per device with a series per owner. See docs/trace-format.md.
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
  /// begins the names of its processes: "predicted " makes "predicted device 0"
  std::string prefix = {};
  bool memory_counters = true;  ///< false where memory over time is not known
  TimeWindow window = {};       ///< what lies outside of this time is left out
};

/// Writes the trace to `path`, compressed when it ends in `.gz`. Throws SystemError where it cannot
/// be written.
void write_chrome_trace(const ChromeTrace& trace, const std::string& path);

/// Writes several timelines to one file, each with processes of its own: device 0 of all of them,
/// then device 1 ... `other_data` is taken from the first. Requires at least one timeline. Throws
/// SystemError.
void write_chrome_traces(std::span<const ChromeTrace> traces, const std::string& path);

}  // namespace penstock
