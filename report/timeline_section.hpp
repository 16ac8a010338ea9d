// SPDX-License-Identifier: Apache-2.0
// A section that shows when everything ran: a lane for each device (or a predicted lane above a
// measured one) and in it a box for each op. The page zooms.
//
// A box takes 16 bytes (24 with its message), so 65,536 ops take 2 MB. A page with more than
// kMostBars boxes would be slow to open; such a section has the beginning of the run.
#pragma once

#include "report/section.hpp"
#include "traces/metrics.hpp"

#include <vector>

namespace penstock {

struct TimelineBar {
  Span span;
  Op op;
  Span message{-1, -1};        ///< the message that the op waited for; a negative end means none
  double recompute_share = 0;  ///< the share of the span, from its start, that is recomputation
};

struct TimelineLane {
  std::string name;               ///< "device 3"
  std::vector<TimelineBar> bars;  ///< in order of their start
  std::size_t clock = 0;          ///< the index of the TimelineClock whose updates it belongs to
};

/// The updates of one timeline. Two timelines can be aligned at the end of any update.
struct TimelineClock {
  std::string name;  ///< "predicted"; empty where there is only one
  std::vector<double>
      update_ends_s;  ///< the start of the run, then the end of each update; NaN: it never ends
};

struct TimelineSection {
  SectionText text;
  std::vector<TimelineLane> lanes;
  std::vector<TimelineClock> clocks{{}};
  /// The page opens on updates [first_update, end_update); on the whole run where these are equal.
  std::size_t first_update = 0, end_update = 0;
  /// The page opens on this time instead, unless the two are equal.
  double open_from_s = 0, open_to_s = 0;
};

/// Returns the share of an op's time that is recomputation, from 0 to 1; the share of its FLOPs
/// where only these are known.
double recompute_share(const Op& op, const StageCosts& costs);

/// Returns a device's ops as a lane, without those that never ran. `costs` has one entry per
/// virtual stage.
TimelineLane device_lane(const TimelineView& view, int device,
                         const std::vector<StageCosts>& costs);

inline constexpr std::size_t kMostBars = 400'000;

/// Returns the section as JSON text for `Report::sections`, with the first `most_bars` boxes of the
/// run.
std::string section_text(const TimelineSection& timeline, std::size_t most_bars = kMostBars);

/// Returns timeline sections that all open on as much time as the longest of them.
std::vector<std::string> on_one_scale(const std::vector<std::string>& timelines);

}  // namespace penstock
