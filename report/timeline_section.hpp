// SPDX-License-Identifier: Apache-2.0
// When everything ran: a lane per device (or a predicted above a measured one), a box per op.
//
// Zoomed in the page; boxes are packed into 16 bytes (24 with messages), so 65,536 ops take 2 MB.
// Pages of more than kMostBars boxes would be slow to open: they show the beginning of the run.
#pragma once

#include "report/section.hpp"
#include "traces/metrics.hpp"

#include <vector>

namespace penstock {

struct TimelineBar {
  Span span;
  Op op;
  Span message{-1, -1};        ///< it waited for; a negative end: none
  double recompute_share = 0;  ///< of the span, from its start
};

struct TimelineLane {
  std::string name;               ///< "device 3"
  std::vector<TimelineBar> bars;  ///< in order of their start
  std::size_t clock = 0;          ///< whose updates it belongs to
};

/// Timelines whose updates end at different times can be laid on each other at any update.
struct TimelineClock {
  std::string name;                   ///< "predicted"; empty where there is only one
  std::vector<double> update_ends_s;  ///< the start of the run first; NaN: never
};

struct TimelineSection {
  SectionText text;
  std::vector<TimelineLane> lanes;
  std::vector<TimelineClock> clocks{{}};
  std::size_t first_update = 0, end_update = 0;  ///< shown first; equal: the whole run
  double open_from_s = 0, open_to_s = 0;         ///< or this time; equal: as the updates say
};

/// Returns how much of an op is recomputation, 0 to 1: by its time, or where only FLOPs are known
/// by those.
double recompute_share(const Op& op, const StageCosts& costs);

/// A device's ops as a lane; what never ran is left out. `costs` is per virtual stage.
TimelineLane device_lane(const TimelineView& view, int device,
                         const std::vector<StageCosts>& costs);

inline constexpr std::size_t kMostBars = 400'000;

std::string section_text(const TimelineSection& timeline, std::size_t most_bars = kMostBars);

/// Sections of timelines that open on as much time as the longest of them does.
std::vector<std::string> on_one_scale(const std::vector<std::string>& timelines);

}  // namespace penstock
